"""Branches merged: bases, decisions table by table, rows, columns and stream tables."""
