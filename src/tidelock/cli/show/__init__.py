"""How values are shown: to people as text, to programs as JSON."""
