"""Engines: what draws responses from the current policy. `base.py` has the protocol, `transformers.py` the default."""
