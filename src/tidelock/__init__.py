"""Tidelock: a transactional, incremental data pipeline for PySpark."""
