"""What SQL is kept, and how: the document, and the examples that it is made from."""
