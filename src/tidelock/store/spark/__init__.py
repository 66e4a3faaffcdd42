"""Everything of the store that speaks with a Spark session. PySpark is imported here alone."""
