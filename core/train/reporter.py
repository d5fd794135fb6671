"""What the training loop says to whoever started it, and how it fails. No torch here."""

from __future__ import annotations

from typing import Any, Protocol


class TrainingError(RuntimeError):
    """Training cannot go on: one sentence about what happened, and what to try."""


class Reporter(Protocol):
    def loading(self, text: str) -> None:
        """Before the first step: what is being loaded."""
        ...

    def started(self, total: int, start_step: int) -> None:
        """Training begins at `start_step` of `total`."""
        ...

    def step_done(self, step: int, metrics: dict[str, Any]) -> None:
        """The step is written and, where it is due, its checkpoint."""
        ...

    def should_stop(self) -> bool:
        """Asked before every step."""
        ...

    def log(self, text: str) -> None:
        """A line for the run's log."""
        ...
