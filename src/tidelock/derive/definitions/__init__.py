"""What users write down: stream tables in SQL, in Python and in files, and how that is applied."""
