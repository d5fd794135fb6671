"""The look before an import: what was recognised, and the first rollouts."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.exporters.cluster import EMBEDDED
from core.importers.base import ImportFailed
from core.importers.formats._look import MAX_ENTRIES
from core.importers.glimpse import ROWS, glimpse
from tests.core.importers.formats.reading import write_lines

EXAMPLES = Path(__file__).with_name("formats") / "examples"


@pytest.mark.parametrize("example", sorted(path.name for path in EXAMPLES.iterdir()))
def test_every_example_shows_its_first_rollouts(example: str) -> None:
    seen = glimpse(EXAMPLES / example)
    assert seen.label and seen.names and seen.bytes > 0 and 0 < len(seen.rows) <= ROWS
    assert any(row["text"] or row["length"] for row in seen.rows) or seen.ids_alone or example == "rllb"
    assert seen.ids_alone == (example == "open_instruct")


def test_the_format_the_tokenizer_and_what_is_lacking_are_as_chosen(tmp_path: Path) -> None:
    seen = glimpse(EXAMPLES / "trl", "trl")
    assert seen.rows[0]["prompt"] == "What is 2+3?" and seen.rows[0]["reward"] == 2.0
    assert "tokens, and what is known of each" in seen.lacks and not any("reward" in words for words in seen.lacks)
    with pytest.raises(ImportFailed, match=r"nothing there looks like verl \("):
        glimpse(EXAMPLES / "trl", "verl")
    spelled = glimpse(EXAMPLES / "open_instruct", tokenizer=EMBEDDED)
    assert spelled.ids_alone and spelled.rows[0]["text"] and "the responses' texts" not in spelled.lacks
    (tmp_path / "completions").mkdir()
    row = {"input": "x" * 5000, "output": "y", "score": 1.0, "step": 3}
    write_lines(tmp_path / "3.jsonl", [row])
    (tmp_path / "lab.json").write_text("{}", encoding="utf-8")
    seen = glimpse(tmp_path)
    assert len(seen.rows[0]["prompt"]) < 1000 and seen.lab == "" and "left aside" in seen.notes[0]


def test_a_whole_disk_is_no_folder_of_rollouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_ENTRIES >= 100_000
    monkeypatch.setattr("core.importers.formats._look.MAX_ENTRIES", 3)
    for name in "abcd":
        (tmp_path / name).touch()
    with pytest.raises(ImportFailed, match="more than 3 entries"):
        glimpse(tmp_path)
