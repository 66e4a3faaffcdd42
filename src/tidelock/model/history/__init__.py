"""The history of a lake as values: commits, how they descend from each other, merges and diffs."""
