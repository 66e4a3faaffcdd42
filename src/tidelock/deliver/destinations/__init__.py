"""Where sinks deliver to: the protocol, and one file or folder for each kind."""
