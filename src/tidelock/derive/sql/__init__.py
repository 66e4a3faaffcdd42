"""Queries as operators: parsed, decorrelated, and lowered to a small algebra."""
