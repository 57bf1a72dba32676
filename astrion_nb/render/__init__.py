"""A conversation as text, Markdown and safe HTML."""
