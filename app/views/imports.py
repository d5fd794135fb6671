"""What an import has to say, in words and as a table: what was taken, what was not, what is missing, and what fits."""

from __future__ import annotations

import pandas as pd

from app.inert import inert_markdown, visible
from app.words import count, number, share
from core.importers.manifest import Manifest

MOST = 12
"""Reasons and notes that are shown; the command line lists all."""


def taken(manifest: Manifest) -> str:
    """How much came from where. Markdown."""
    pieces = [count(manifest.steps, "step"), count(manifest.rollouts, "rollout")]
    pieces += [count(manifest.tokens, "token")] if manifest.tokens else ["no tokens"]
    return f"**{', '.join(pieces)}** from {inert_markdown(manifest.label)}, `{_code(manifest.source)}`"


def refused(manifest: Manifest) -> list[str]:
    """What was not taken and why, most rows first. Markdown."""
    ranked = sorted(manifest.refused.items(), key=lambda one: -one[1])
    said = [
        f"{count(rows, 'row')}: {inert_markdown(reason)}"
        + (f" (first: {inert_markdown(where)})" if (where := manifest.examples.get(reason)) else "")
        for reason, rows in ranked[:MOST]
    ]
    return said + _more(len(ranked), "reason")


def notes(manifest: Manifest) -> list[str]:
    """What else there is to say of the files. Markdown."""
    return [inert_markdown(note) for note in manifest.notes[:MOST]] + _more(len(manifest.notes), "note")


def lacking(manifest: Manifest) -> list[str]:
    """What the files do not have, so that pages lack it. Markdown."""
    return [inert_markdown(lack) for lack in manifest.lacking()]


def fits(manifest: Manifest) -> pd.DataFrame:
    """Conventions by how far their advantages are from the imported ones, best first; no rows without any."""
    return pd.DataFrame(
        [
            {
                "convention": visible(fit.label),
                "largest difference": number(fit.largest),
                "mean difference": number(fit.mean),
                "rollouts that agree": share(fit.within),
            }
            for fit in manifest.fits
        ]
    )


def progress(what: str, done: int, of: int | None) -> tuple[float, str]:
    """The share of a bar and its words. How many rollouts there are to read is not known before they are read."""
    if what == "writing" and of:
        return 0.5 + 0.5 * min(1.0, done / of), f"Written: {number(done)} of {count(of, 'step')}"
    if what == "reading":
        return 0.5 * done / (done + 50_000), f"Read: {count(done, 'rollout')}"
    return 0.0, "Looking at the files"


def _more(total: int, what: str) -> list[str]:
    return [f"and {count(total - MOST, what)} more"] if total > MOST else []


def _code(text: str) -> str:
    """Text for a code span: no backtick in it."""
    return visible(text).replace("`", "'").replace("\n", " ")
