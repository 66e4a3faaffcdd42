"""Tables as Lance datasets: immutable versions, their files, and what changed between two."""
