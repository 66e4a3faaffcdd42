"""Garbage collection: what is needed is marked, the rest is swept."""
