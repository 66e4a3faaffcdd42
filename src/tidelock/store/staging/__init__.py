"""What a transaction does to one table, written and readable by its writer alone."""
