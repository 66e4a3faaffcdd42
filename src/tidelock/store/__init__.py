"""Durable truth: objects, tables, commits, snapshots, branches, intents, recovery, maintenance."""
