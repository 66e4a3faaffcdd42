"""Named, immutable bytes: on files, on S3 and in memory; where each is, and how damage is told."""
