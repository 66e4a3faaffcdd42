"""Durations, schedules and waits, and what a local time means in a zone."""
