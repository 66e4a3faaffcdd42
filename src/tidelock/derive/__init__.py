"""Turns SQL into a graph, the graph into delta plans, plans into staged writes."""
