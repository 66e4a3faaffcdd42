"""What changed between two pins of a table, whatever moved its rows meanwhile."""
