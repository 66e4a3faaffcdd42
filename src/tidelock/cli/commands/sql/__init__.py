"""`tidelock sql`: one query, or a script of statements."""
