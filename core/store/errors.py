"""The store's error: one sentence for the person who meets it."""


class StoreError(RuntimeError):
    """A run folder, a step or a query that cannot be served; the message names it and says what would be right."""
