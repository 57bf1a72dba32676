"""Run, watch, steer and teach a team of LLM agents inside a Jupyter notebook."""

__version__ = "0.1.0"
