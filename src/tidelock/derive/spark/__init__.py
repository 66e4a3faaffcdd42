"""Asking the engine: one query over local and large tables, several at once, and its verdicts."""
