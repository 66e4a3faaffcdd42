"""What became of every refresh, and which stream tables cannot be refreshed because of it."""
