"""One module a rule: base rules and weights. `core.advantage.registry` finds whatever lies here, and is the guide."""
