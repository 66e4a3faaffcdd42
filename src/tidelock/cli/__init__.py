"""The command line: parse, validate, call, render."""
