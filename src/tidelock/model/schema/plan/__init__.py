"""What brings a lake from the tables that it has to those that are declared."""
