"""Two states of a lake compared: which rows, columns and rules differ, at the cost of what does."""
