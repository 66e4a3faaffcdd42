"""Who is computed from whom, what moves together, and when."""
