"""Keeping a lake quick, small and whole: folding, collecting, verifying, mending."""
