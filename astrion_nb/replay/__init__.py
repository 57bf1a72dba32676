"""Recording and replaying a run."""
