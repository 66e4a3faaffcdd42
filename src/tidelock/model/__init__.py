"""Pure values: names, schemas, pins, commits. No I/O, no Spark."""
