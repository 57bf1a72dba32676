"""The wiring place: configuration, the public team, the command line."""
