"""Turns committed changes into sink writes and shape logs."""
