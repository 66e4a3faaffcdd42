"""Composition: the Lake handle, the Spark session, retries."""
