"""The kinds of rules, one file each, and what they are compared with."""
