"""Rollouts of token ids get their texts from a tokenizer that is named, also in the next import of the same path."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models
from tokenizers.decoders import Fuse

from core.importers.base import ImportFailed
from core.importers.decode import Decoder
from core.importers.formats import all_formats, find
from core.importers.formats._values import ids_shown
from core.importers.manifest import read_manifest
from core.importers.write import bring_in
from core.store import open_runs

EXAMPLES = Path(__file__).with_name("formats") / "examples"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder with a tokenizer whose token 7 is `<7>`."""
    words = {f"<{i}>": i for i in range(50_000)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<0>"))
    tokenizer.decoder = Fuse()
    (tmp_path / "model").mkdir()
    tokenizer.save(str(tmp_path / "model" / "tokenizer.json"))
    return tmp_path / "model"


def test_ids_become_texts_and_it_is_remembered(tmp_path: Path, model: Path) -> None:
    source = shutil.copytree(EXAMPLES / "open_instruct", tmp_path / "there")
    found = find(source)
    form = all_formats()[found.format]
    plain = bring_in(tmp_path / "plain", form, found)
    assert {"tokens", "text"} <= set(plain.manifest.lacks)
    made = bring_in(tmp_path / "runs", form, found, tokenizer=model)
    assert not {"tokens", "text"} & set(made.manifest.lacks)
    with open_runs([made.path]) as lab:
        tokens = lab.rows("SELECT token_id, token FROM tokens")
        assert tokens and all(row["token"] == f"<{row['token_id']}>" for row in tokens)
        texts = lab.rows('SELECT text, prompt FROM rollouts JOIN groups USING (step, split, "group")')
        assert all(row["text"].startswith("<") and row["prompt"].startswith("<") for row in texts)
    (file,) = (path for path in source.rglob("*.jsonl") if "rollouts" in path.name)
    line = file.read_text().splitlines()[0]
    later = file.with_name(file.name.replace("000000", "000001"))
    later.write_text(line.replace('"step": ', '"step": 1') + "\n")
    again = bring_in(tmp_path / "runs", form, find(source))
    assert again.followed and again.new_steps == 1
    with open_runs([again.path]) as lab:
        assert {row["token"][0] for row in lab.rows("SELECT token FROM tokens")} == {"<"}
    assert read_manifest(again.path).tokenizer == str(model)


def test_a_folder_without_a_tokenizer_is_said(tmp_path: Path) -> None:
    with pytest.raises(ImportFailed, match=r"--tokenizer .*there is no such file"):
        Decoder(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(ImportFailed, match="not a tokenizer that can be read"):
        Decoder(tmp_path)


@pytest.mark.parametrize(
    ("text", "ids"), [("token ids 3 14", [3, 14]), ("token ids ", []), ("3 14", []), ("token ids 3 x", [])]
)
def test_only_ids_are_taken_for_ids(text: str, ids: list[int]) -> None:
    assert ids_shown(text) == ids
