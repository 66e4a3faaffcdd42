"""Finding rows: by key, by where they lie, by sequence."""
