"""Files as a destination: objects with rows, and a manifest that lists them."""
