"""The operators of a query, their laws, and SQL made from them."""
