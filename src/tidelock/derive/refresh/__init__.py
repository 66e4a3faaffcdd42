"""Bringing stream tables up to date: in full or by delta, in one commit for each unit."""
