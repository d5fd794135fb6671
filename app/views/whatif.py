"""What the What-if component draws: a panel a method, all on one colour domain, and the difference of two of them.

Pure functions of the rollouts in view and the answers to them. Numbers travel as 16-bit parts of their largest, which
is finer than any digit that is shown.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence

import numpy as np

from app.inert import visible, visible_token
from app.palette import SIGN, Theme
from app.views.explain import ledgers
from app.views.tokens_fields import limit
from app.views.whatif_source import Shown, Source, View
from app.words import count, number
from core.advantage import Batch
from core.counterfactual import Pair

LETTERS = "ABCD"
"""The slots' names; a slot's colour is its method's, so two slots of one method share it."""
NEAR = 2
"""Positions on either side of the chosen token whose ledgers travel along, so that the arrow keys need not wait."""

Chosen = tuple[int, int]
"""A pair of methods, places in a list of Shown: the difference is the second minus the first."""


def drawn(view: View, shown: Sequence[Shown], group: int | None) -> np.ndarray:
    """(M,) bool: the rollouts that the picture shows. Of a whole step, those of prompts with an advantage under any of
    the methods, as long as there are some.
    """
    everyone = np.ones(len(view.rows), dtype=bool)
    if group is not None:
        return everyone
    signal = np.any([one.answer.trace.advantage.any(axis=1) for one in shown], axis=0)
    return np.isin(view.batch.group, view.batch.group[signal]) if signal.any() else everyone


def panels(
    shown: Sequence[Shown],
    notes: Sequence[str],
    theme: Theme,
    pair: Chosen | None,
    compared: Pair | None,
    mask: np.ndarray,
) -> list[dict[str, object]]:
    """One panel a method, its note under its name, and, for a pair, its difference with its marks. `compared` is of
    (second, first); `mask` (M, T) are the tokens to draw, on one colour domain that all methods share: their 2nd to
    98th percentile.
    """
    reach = limit(np.concatenate([one.answer.trace.advantage[mask] for one in shown]))
    found = [
        {
            "id": one.letter.lower(), "letter": one.letter, "label": visible(one.label), "colour": one.colour(theme),
            "note": note, "reach": reach, "dropped": _bits(~one.answer.trace.kept[mask]),
            **_values(one.answer.trace.advantage[mask]),
        }
        for one, note in zip(shown, notes, strict=True)
    ]  # fmt: skip
    if pair is None or compared is None:
        return found
    first, second = (shown[place].letter for place in pair)
    difference, factor = compared.difference[mask], (compared.by_factor & compared.changed)[mask]
    own = limit(difference)
    extra = {
        "id": "difference", "letter": f"{second}−{first}", "label": f"{second} minus {first}", "pair": True,
        "note": f"full colour ±{number(own)}" if own else "equal on every token",
        "reach": own, "flipped": _bits(compared.flipped[mask]), "factor": _bits(factor),
        **_values(difference),
    }  # fmt: skip
    return [*found, extra]


def payload(
    source: Source,
    view: View,
    shown: Sequence[Shown],
    notes: Sequence[str],
    theme: Theme,
    *,
    pair: Chosen | None,
    compared: Pair | None,
    key: str,
    mark: str,
    group: int | None,
    selected: tuple[int, int],
    drawn: np.ndarray,
) -> dict[str, object]:
    """What the component gets: plain JSON, every foreign text already made visible.

    `key` names the rollouts in view, `mark` all that is drawn of them; `group` is None for a whole step, which is drawn
    without texts and ledgers. `selected` is (row of the view, position); `drawn` (M,) are the rows to draw.
    """
    found = panels(shown, notes, theme, pair, compared, view.batch.mask & drawn[:, None])
    reach, rows = found[0]["reach"], np.flatnonzero(drawn).tolist()
    return {
        "key": key, "mark": mark, "step": group is None, "panels": found, "reach": reach,
        "rows": _rows(source, view, group, rows),
        "selected": {"row": rows.index(selected[0]) if selected[0] in rows else 0, "position": selected[1]},
        "explain": {} if group is None else _explained(source, view, shown, *selected),
        "about": {} if group is None else {selected[0]: _about(view.batch, selected[0])},
        "low": number(-reach), "high": number(reach, signed=True),
        "note": "one scale for all methods" if reach else "0 on every token, under every method",
        "positive": theme.reinforced, "negative": theme.suppressed, "text": theme.text,
        "background": theme.background,
    }  # fmt: skip


def row_title(view: View, row: int) -> str:
    """`rollout 3: wrong, truncated, reward 0, 23 tokens`."""
    batch = view.batch
    words = ["correct" if batch.correct[row] else "wrong"]
    if batch.truncated[row]:
        words.append("truncated")
    words += [f"reward {number(float(batch.reward[row]))}", count(int(batch.length[row]), "token")]
    return f"rollout {int(view.rollout[row])}: {', '.join(words)}"


def _explained(source: Source, view: View, shown: Sequence[Shown], row: int, position: int) -> dict[str, object]:
    """The ledgers of the chosen token and its neighbours under each method, and the row of the picture they are of."""
    answers, i = [one.whole for one in shown], int(view.rows[row])
    return ledgers(answers, source.batch, i, position, row=row, ratio=source.ratio, window=NEAR)


def strongest(view: View, shown: Sequence[Shown], compared: Pair | None) -> tuple[int, int]:
    """(row, position) worth a first look: where the pair differs most, else the largest advantage."""
    values = compared.difference if compared is not None else shown[0].answer.trace.advantage
    if not np.any(values):
        values = shown[0].answer.trace.advantage
    row, position = np.unravel_index(np.argmax(np.abs(values)), values.shape)
    return int(row), int(position)


def _rows(source: Source, view: View, group: int | None, rows: Sequence[int]) -> list[dict[str, object]]:
    batch, found = view.batch, []
    for row in rows:
        one = {
            "rollout": int(view.rollout[row]), "group": int(batch.group[row]), "length": int(batch.length[row]),
            "sign": SIGN[1 if batch.correct[row] else -1], "title": row_title(view, row),
        }  # fmt: skip
        if group is not None:
            own = [str(token) for token in source.texts(int(view.rows[row]))]
            one["tokens"] = [_short(visible_token(token)) for token in own]
            one["breaks"] = [t for t, token in enumerate(own[:-1]) if token.endswith("\n")]
        found.append(one)
    return found


def _about(batch: Batch, row: int) -> list[str]:
    """What is known of each token of a rollout before any method: its probability and entropy."""
    length = int(batch.length[row])
    words = [""] * length
    if batch.sampler_logprob is not None:
        words = [f" · p {number(p)}" for p in np.exp(batch.sampler_logprob[row, :length]).tolist()]
    if batch.entropy is not None:
        own = batch.entropy[row, :length].tolist()
        words = [f"{word} · entropy {number(h, 'nats')}" for word, h in zip(words, own, strict=True)]
    return words


def _values(values: np.ndarray) -> dict[str, object]:
    """16-bit parts of the largest |value|, little-endian, base64."""
    most = float(np.abs(values).max(initial=0.0))
    codes = np.round(values * (32767 / most)) if most else np.zeros(len(values))
    return {"most": most, "values": base64.b64encode(codes.astype("<i2").tobytes()).decode("ascii")}


def _bits(flags: np.ndarray) -> str | None:
    """One bit a token, base64; None where none is set."""
    return base64.b64encode(np.packbits(flags).tobytes()).decode("ascii") if flags.any() else None


LONGEST_WORD = 60
"""Characters of a token that are drawn: a word typed by hand may be a page long."""


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_WORD else text[:LONGEST_WORD] + "…"
