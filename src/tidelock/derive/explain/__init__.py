"""How a stream table is kept, what its next refresh does, and why."""
