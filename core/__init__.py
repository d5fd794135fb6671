"""Advantage Lab without its pages: methods, training, the store and the runs. Nothing here imports streamlit."""

__version__ = "0.1.0"
"""Of the lab: pyproject.toml says the same."""
