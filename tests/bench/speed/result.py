"""What a bench found, for people and for machines."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


class PeerError(RuntimeError):
    """The peer did not do what it is compared for."""


FIRST = 20
"""Turns at the beginning of a training bench whose ratio stands beside that of all: a policy that has learned leaves
more groups without a signal, and more that is alike."""

SLIDER_S = 0.2
"""What a slider move of the what-if page may take."""


@dataclass(frozen=True)
class Comparison:
    """Medians over `rounds` turns of the lab and its peer; `ratio` above 1 means that the lab is faster."""

    what: str
    unit: str  # of `ours` and `theirs`: "s a step", "tokens/s"
    peer: str
    ours: float
    theirs: float
    ratio: float
    rounds: int
    threads: int
    seconds: bool = True  # whether `ours` is a time, or a rate
    more: dict[str, float] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Flat: `ours_s` and `trl_s`, or `ours_tokens_per_second` and the like."""
        ending = "s" if self.seconds else "tokens_per_second"
        numbers = {f"ours_{ending}": self.ours, f"{self.peer}_{ending}": self.theirs, "ratio": self.ratio, **self.more}
        rounded = {name: round(value, 4) for name, value in numbers.items()}
        return {"what": self.what, **rounded, "rounds": self.rounds, "threads": self.threads}
