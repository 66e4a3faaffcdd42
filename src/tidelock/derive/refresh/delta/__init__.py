"""From the changes of what a view reads to the changes of its tables."""
