"""Turns sources into staged writes with source offsets."""
