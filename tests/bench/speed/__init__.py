"""How fast a training step and its rollouts are, each beside a named peer that runs in turn with it.

python -m core bench [NAME ...]
"""
