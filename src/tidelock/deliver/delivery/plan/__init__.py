"""What one delivery sends next, and what follows when it was sent or was not."""
