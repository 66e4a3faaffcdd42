"""PostgreSQL as a source: logical replication, and first loads."""
