"""Magics and everything else that knows Jupyter."""
