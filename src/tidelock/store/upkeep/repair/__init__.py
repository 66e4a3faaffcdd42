"""Whether everything in a lake is what was written, and what is done where it is not."""
