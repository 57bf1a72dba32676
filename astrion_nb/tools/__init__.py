"""Tools that agents can call."""
