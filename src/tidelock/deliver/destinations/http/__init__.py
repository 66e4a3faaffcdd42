"""HTTP as a destination."""
