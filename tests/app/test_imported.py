"""Every page on runs that were imported: what the files lack is said, nothing breaks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from core.importers.formats import all_formats, find
from core.importers.write import bring_in
from tests.app.conftest import texts

EXAMPLES = Path(__file__).parents[1] / "core" / "importers" / "formats" / "examples"
KINDS = ("trl", "nemo_rl", "rllb", "tinker")
"""Text alone; tokens by id; tokens by text; lengths alone."""
PAGES: dict[str, dict[str, object]] = {
    "live": {}, "tokens": {}, "tokens?prompt": {"view": "prompt"}, "tokens?run": {"view": "run"},
    "tokens?strings": {"view": "find"}, "tokens?longest": {"view": "find", "find": "longest"},
    "tokens?text": {"view": "find", "find": "text", "q": "5"}, "tokens?extreme": {"view": "find", "find": "tokens"},
    "polarity": {}, "polarity?strings": {"part": "strings"}, "polarity?entropy": {"part": "entropy"},
    "polarity?distributions": {"part": "distributions"}, "polarity?step": {"part": "step"},
    "polarity?boundary": {"part": "boundary"}, "favorability": {}, "whatif": {}, "whatif?step": {"scope": "step"},
    "compare": {}, "launch": {}, "sql": {}, "runs": {}, "import": {},
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The runs of the example files, by format."""
    root = tmp_path_factory.mktemp("imported")
    runs = {}
    for kind in KINDS:
        found = find(EXAMPLES / kind)
        runs[kind] = bring_in(root, all_formats()[found.format], found).path
    return runs


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("kind", KINDS)
def test_an_imported_run_opens_in_every_page(
    folder: dict[str, Path], monkeypatch: pytest.MonkeyPatch, open_page: Callable[..., AppTest], kind: str, page: str
) -> None:
    monkeypatch.setenv("ADVANTAGE_LAB_RUNS", str(folder[kind].parent))
    name = page.partition("?")[0]
    run = folder[kind].name
    choice: dict[str, object] = {"launch": {"from": run}, "runs": {}, "import": {}}.get(name, {"run": run})
    at = open_page(name, **choice, **PAGES[page])
    said = texts(at)
    assert not at.exception and "Something went wrong" not in said
    assert at.header and len(said) > len(at.header[0].value) + 20
