"""Every page on runs that were imported: what the files lack is said, nothing breaks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from core.importers.formats import all_formats, find
from core.importers.manifest import read_manifest
from core.importers.write import bring_in
from tests.app.conftest import texts

EXAMPLES = Path(__file__).parents[1] / "core" / "importers" / "formats" / "examples"
KINDS = ("trl", "nemo_rl", "rllb", "tinker")
"""Text alone; tokens by id; tokens by text; lengths alone. Every view is opened on these."""
OTHERS = (
    "areal", "ms_swift", "open_instruct", "prime_rl/rollouts", "prime_rl/token_exports", "unipo", "verifiers", "verl",
)  # fmt: skip
"""Of the other formats every page is opened once."""
PAGES: dict[str, dict[str, object]] = {
    "live": {}, "tokens": {}, "tokens?prompt": {"view": "prompt"}, "tokens?run": {"view": "run"},
    "tokens?strings": {"view": "find"}, "tokens?longest": {"view": "find", "find": "longest"},
    "tokens?text": {"view": "find", "find": "text", "q": "5"}, "tokens?extreme": {"view": "find", "find": "tokens"},
    "polarity": {}, "polarity?strings": {"part": "strings"}, "polarity?entropy": {"part": "entropy"},
    "polarity?distributions": {"part": "distributions"}, "polarity?step": {"part": "step"},
    "polarity?boundary": {"part": "boundary"}, "favorability": {}, "whatif": {}, "whatif?step": {"scope": "step"},
    "compare": {}, "launch": {}, "sql": {}, "runs": {},
    "imports": {},
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The runs of the example files, by format."""
    root = tmp_path_factory.mktemp("imported")
    runs = {}
    for kind in (*KINDS, *OTHERS):
        found = find(EXAMPLES / kind)
        runs[kind] = bring_in(root, all_formats()[found.format], found).path
    return runs


def test_every_format_is_among_them(folder: dict[str, Path]) -> None:
    manifests = [read_manifest(run) for run in folder.values()]
    assert {manifest.format for manifest in manifests if manifest} == set(all_formats())


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize(
    ("kind", "page"),
    [(kind, page) for kind in KINDS for page in PAGES]
    + [(kind, page) for kind in OTHERS for page in PAGES if "?" not in page],
)
def test_an_imported_run_opens_in_every_page(
    folder: dict[str, Path], monkeypatch: pytest.MonkeyPatch, open_page: Callable[..., AppTest], kind: str, page: str
) -> None:
    monkeypatch.setenv("ADVANTAGE_LAB_RUNS", str(folder[kind].parent))
    name = page.partition("?")[0]
    run = folder[kind].name
    choice: dict[str, object] = {"launch": {"from": run}, "runs": {}}.get(name, {"run": run})
    at = open_page(name, **choice, **PAGES[page])
    said = texts(at)
    assert not at.exception and "Something went wrong" not in said
    assert at.header and len(said) > len(at.header[0].value) + 20
