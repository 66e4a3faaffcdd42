"""Spark streams into the lake: each micro-batch is one commit."""
