"""SQL as text, tokens and trees: what every part of Tidelock knows of it without an engine."""
