"""What users run on parts of their own: contracts, and a store that fails on request."""
