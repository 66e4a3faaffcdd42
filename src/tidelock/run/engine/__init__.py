"""Where the Spark session of a lake comes from, and where it goes."""
