"""Subqueries become joins."""
