"""What tables are: their declared schemas, and pins whose columns agree with them."""
