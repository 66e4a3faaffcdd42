"""What there is to deliver of a table, in the order of its positions."""
