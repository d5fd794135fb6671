"""What an imported run says of its import: what was taken, what was not and why, what it lacks, and what fits."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
import streamlit as st

from app import downloads, urls
from app.importing.told import manifest_of, origin_of
from app.inert import inert_markdown, visible
from app.words import age, count, share
from core.importers.manifest import Manifest, to_json
from core.runs import RunInfo

MOST_NOTES = 50
LINKS = {
    "tokens": ("Open in Tokens", ":material/grid_on:"),
    "live": ("Live", ":material/monitor_heart:"),
    "polarity": ("Polarity", ":material/exposure:"),
    "favorability": ("Favorability", ":material/star:"),
    "whatif": ("What if…", ":material/alt_route:"),
    "compare": ("Compare", ":material/stacked_line_chart:"),
}


def show(info: RunInfo) -> None:
    """Where to look at the run, and all that its import has to say."""
    links(info.id)
    manifest, sent = manifest_of(info), origin_of(info)
    if sent is not None:
        st.markdown(
            f"Opened {age(sent.opened)} from a file that holds the run **{inert_markdown(sent.run)}** of another lab "
            f"(version {inert_markdown(sent.lab)}). It is data: every page reads it, nothing starts or resumes it."
        )
    if manifest is None:
        if sent is None:
            st.caption("It does not say where it came from: its import.json is missing or damaged.")
        return
    st.markdown(_taken(manifest))
    st.markdown(inert_markdown(manifest.sentence))
    _fits(manifest)
    if lacking := manifest.lacking():
        st.caption(f"Not in the files: {inert_markdown('; '.join(lacking))}. Views that need it say so.")
    _reasons(manifest)
    st.download_button(
        "The report", lambda: to_json(manifest.shareable()).encode(), "import.json", "application/json",
        key=f"import:report:{info.id}", icon=":material/download:", type="tertiary", on_click="ignore",
    )  # fmt: skip


def links(run: str) -> None:
    """The pages that show the run."""
    with st.container(horizontal=True, gap="small"):
        for page, (label, icon) in LINKS.items():
            urls.link(page, label, icon=icon, run=run)


def _taken(manifest: Manifest) -> str:
    """How much came from where. Markdown."""
    pieces = [count(manifest.steps, "step"), count(manifest.rollouts, "rollout")]
    pieces += [count(manifest.tokens, "token")] if manifest.tokens else ["no tokens"]
    label, source = inert_markdown(manifest.label), inert_markdown(manifest.source)
    return f"{', '.join(pieces)}; from {label}: {source}, {age(manifest.imported)}."


def _fits(manifest: Manifest) -> None:
    """How near each convention comes to the imported advantages."""
    if not manifest.fits:
        return
    title = f"How near each of {count(len(manifest.fits), 'convention')} comes"
    with st.expander(title, icon=":material/straighten:"):
        st.caption(f"Compared on {count(manifest.compared, 'rollout')} that came with an advantage.")
        table = pd.DataFrame(
            {
                "convention": visible(fit.label),
                "rollouts that agree": share(fit.within),
                "mean difference": fit.mean,
                "largest": fit.largest,
            }
            for fit in manifest.fits
        )
        numbers = {name: st.column_config.NumberColumn(format="%.3g") for name in ("mean difference", "largest")}
        st.dataframe(table, hide_index=True, height="content", column_config=numbers)
        downloads.menu("conventions", key="imports-fits", frame=pd.DataFrame(map(vars, manifest.fits)))


def _reasons(manifest: Manifest) -> None:
    """Rows that were not taken, and what else there is to say of the files."""
    if manifest.refused:
        rows = sum(manifest.refused.values())
        with st.expander(f"{count(rows, 'row')} not taken, and why", icon=":material/rule:", expanded=True):
            st.markdown("\n".join(_table(manifest)))
    if notes := manifest.notes:
        title = f"{count(len(notes), 'remark')} on the files"
        with st.expander(title, icon=":material/info:", expanded=len(notes) < 4):
            st.markdown("\n".join(f"- {_plain(note)}" for note in notes[:MOST_NOTES]))
            if len(notes) > MOST_NOTES:
                st.caption(f"The report has the other {len(notes) - MOST_NOTES}.")


def _table(manifest: Manifest) -> Iterator[str]:
    yield from ("| reason | rows | first |", "|:--|--:|:--|")
    for reason, rows in sorted(manifest.refused.items(), key=lambda item: -item[1])[:MOST_NOTES]:
        first = inert_markdown(manifest.examples.get(reason, ""))
        yield f"| {_plain(reason)} | {rows:,} | {first} |"


def _plain(text: str) -> str:
    """A sentence of the importer without its marks of code, which an escaped text would show."""
    return inert_markdown(text.replace("`", ""))
