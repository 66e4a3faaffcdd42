"""Rows on their way in: users' values made into exactly a table's types, or refused."""
