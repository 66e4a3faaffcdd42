"""What a table is: columns, key and rules, and what follows when they are altered or merged."""
