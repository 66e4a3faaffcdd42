"""The operations that are staged on one table, and how each is applied to a pin."""
