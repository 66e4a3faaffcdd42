"""How two states of a lake descend from each other, and which rows and columns are which."""
