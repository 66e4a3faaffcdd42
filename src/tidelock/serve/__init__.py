"""HTTP over shape logs and snapshots, and the dashboard."""
