"""Where the What-if page's question goes on: whether a difference matters, only runs of both methods tell."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import streamlit as st

from app import data, urls
from app.slots import Slot
from app.words import count
from core.counterfactual import Spec
from core.runs import RunInfo

SEEDS = (0, 1, 2)


def is_it_real(info: RunInfo | None, good: Sequence[Slot]) -> None:
    """Links to the run's experiment in Compare, and to Launch with these methods. `info`: the run in view, if any."""
    specs = [slot.spec for slot in good if slot.spec]
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="whatif-real"):
        st.caption("Is the difference real?", width="content")
        if info is not None and info.experiment:
            runs = sum(other.experiment == info.experiment for other in data.runs())
            if runs > 1:
                urls.link(
                    "compare", f"Compare its experiment's {count(runs, 'run')}", icon=":material/monitoring:",
                    experiment=info.experiment, help="What became of the policies, with the spread over seeds",
                )  # fmt: skip
        place = {} if info is None else {"from": info.id}
        urls.link(
            "launch", f"Train {'them' if len(specs) > 1 else 'it'}, {len(SEEDS)} seeds each",
            icon=":material/rocket_launch:", set=changes(specs), **place,
            help="Opens Launch with these methods and parameters; nothing starts yet. A loss changed here is not taken "
            "along.",
        )  # fmt: skip


def changes(specs: Sequence[Spec]) -> list[str]:
    """The draft's changes that train these methods: `methods=[…]`, each once, and `seeds=[0, 1, 2]`."""
    entries: list[Any] = []
    for spec in specs:
        entry = {
            "name": spec.name, "base": spec.base, "also": list(spec.also), "set": dict(spec.params),
            "mass_matched": spec.mass_matched,
        }  # fmt: skip
        entry = {name: value for name, value in entry.items() if value}
        plain = entry["name"] if len(entry) == 1 else entry
        if plain not in entries:
            entries.append(plain)
    return [f"methods={json.dumps(entries)}", f"seeds={json.dumps(SEEDS)}"]
