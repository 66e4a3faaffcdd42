"""What a Lake handle offers, by what it is about; lake.py puts them together."""
