"""Where objects are: one file for each kind of store, and what a URI means to it."""
