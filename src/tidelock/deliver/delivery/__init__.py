"""One tick of one sink: planned, sent, settled."""
