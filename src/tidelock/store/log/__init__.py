"""The commit log: which commit exists next, and how a transaction becomes one."""
