"""Advantage Lab without its pages: methods, training, the store and the runs. Nothing here imports streamlit."""
