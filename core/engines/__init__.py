"""Engines: what draws responses from the current policy. `base.py` has the protocol, `choose.py` says which one a run
takes: `transformers.py`, with the trainer's own model, or `vllm.py`, in a process of its own."""
