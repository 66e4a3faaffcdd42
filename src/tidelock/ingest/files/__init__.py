"""Files of rows, read into the types of a table: CSV, JSON lines, Parquet."""
