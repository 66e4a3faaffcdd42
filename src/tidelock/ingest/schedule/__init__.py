"""Sources by schedule: which of them are read by this process, and when."""
