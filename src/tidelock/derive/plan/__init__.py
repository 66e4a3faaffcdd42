"""How a view is kept: cut into segments, each with its table, its columns and its SQL."""
