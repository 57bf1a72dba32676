"""Models: one protocol, one vendor a file."""
