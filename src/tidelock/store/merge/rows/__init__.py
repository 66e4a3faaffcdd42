"""The merge of rows: which each side touched, what becomes of them, and how they are written."""
