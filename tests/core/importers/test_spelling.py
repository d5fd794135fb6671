"""Token ids alone, spelled by a model's tokenizer.json."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from core.exporters.cluster import EMBEDDED
from core.importers.base import ImportFailed
from core.importers.formats import all_formats, find
from core.importers.manifest import read_manifest
from core.importers.spelling import Speller
from core.importers.write import Imported, bring_in
from core.store import open_runs
from core.store.check import check
from tests.core.importers.formats.reading import write_lines

TEXTS = ("1+2=3", "7-4=3")


def rows(folder: Path, step: int, shift: int = 0) -> Path:
    """open-instruct's rows: ids without a text, as the embedded model's tokenizer has them; some moved by `shift`."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(EMBEDDED / "tokenizer.json"))
    made = []
    for i, text in enumerate(TEXTS * 2):
        ids = [token + shift for token in tokenizer.encode(text).ids] + [tokenizer.token_to_id("<eos>")]
        made.append({
            "step": step, "prompt_idx": i % 2, "sample_idx": i, "prompt_tokens": tokenizer.encode("4+5").ids,
            "response_tokens": ids, "logprobs": [-0.5] * len(ids), "reward": float(i < 2), "advantage": 0.0,
            "finish_reason": "stop", "ground_truth": "3",
        })  # fmt: skip
    return write_lines(folder / f"run1_rollouts_{step:06d}.jsonl", made)


def bring(root: Path, folder: Path, tokenizer: Path | None) -> Imported:
    found = find(folder)
    return bring_in(root, all_formats()[found.format], found, tokenizer=tokenizer)


def test_ids_get_the_texts_of_tokens_responses_and_prompts(root: Path, tmp_path: Path) -> None:
    model = Path(shutil.copytree(EMBEDDED, tmp_path / "model"))
    folder = tmp_path / "dump"
    rows(folder, 0)
    made = bring(root, folder, model)
    assert not {"tokens", "text"} & set(made.manifest.lacks) and check(made.path).ok
    assert any("spelled with the tokenizer model" in note for note in made.manifest.notes)
    with open_runs([made.path]) as lab:
        rollout = lab.rows('SELECT text FROM rollouts ORDER BY "group", rollout')[0]
        tokens = lab.rows('SELECT token FROM tokens WHERE "group" = 0 AND rollout = 0 ORDER BY position')
        assert lab.rows("SELECT DISTINCT prompt FROM groups") == [{"prompt": "4+5"}]
    assert rollout["text"] == TEXTS[0]
    assert [row["token"] for row in tokens] == [*TEXTS[0], "<eos>"]
    rows(folder, 1)
    again = bring(root, folder, None)  # goes on with the tokenizer that it had
    assert (again.path, again.new_steps) == (made.path, 1)
    with open_runs([made.path]) as lab:
        assert lab.rows("SELECT count(*) AS n FROM rollouts WHERE text IS NULL") == [{"n": 0}]
    rows(folder, 2)
    shutil.rmtree(model)
    with pytest.raises(ImportFailed, match=r"there is no tokenizer\.json"):
        bring(root, folder, None)


def test_without_one_and_with_another_models(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "dump"
    rows(folder, 0, shift=1000)
    plain = bring(root, folder, None)
    assert {"tokens", "text"} <= set(plain.manifest.lacks)
    spelled = bring(root, folder, EMBEDDED / "tokenizer.json")
    assert spelled.path != plain.path
    assert any("20 token ids are not in the tokenizer tokenizer.json" in note for note in spelled.manifest.notes)
    shared = spelled.manifest.shareable()
    assert (shared.source, shared.tokenizer, shared.places) == ("dump", "tokenizer.json", None)
    assert read_manifest(spelled.path) == spelled.manifest


@pytest.mark.parametrize("content", [b"", b"[1]", b"\xff\xfe", b'{"version": 1, "model": {"type": "Evil"}}', None])
def test_what_is_no_tokenizer_is_one_sentence(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(ImportFailed, match=r"^the tokenizer .*tokenizer\.json") as failed:
        Speller(tmp_path)
    assert "\n" not in str(failed.value)


def test_pieces_of_characters_and_spaces_are_shown(tmp_path: Path) -> None:
    """A byte-level vocabulary, and SentencePiece's underscore."""
    vocab = {"Ġhi": 0, "Ã": 1, "©": 2, "▁so": 3, "<s>": 4}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "pre_tokenizer": None,
        "post_processor": None,
        "added_tokens": [{"id": 4, "content": "<s>", "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True}],
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
    }  # fmt: skip
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    speller = Speller(tmp_path)
    assert [speller.token(i) for i in (0, 1, 2, 3, 4, 99, -1)] == [" hi", "Ã", "©", " so", "<s>", "<99>", "<-1>"]
    assert speller._texts([[0, 1, 2, 4], []], skip=True) == [" hié", ""]
    assert np.isscalar(speller.unknown)


@pytest.mark.parametrize(
    "decoder",
    [
        {"type": "Strip", "content": "a", "start": 10**9, "stop": 10**9},  # its library panics
        {"type": "Replace", "pattern": {"String": "a"}, "content": "x" * 20_000},
    ],
)
def test_a_tokenizer_that_breaks_or_swells_while_it_spells_is_one_sentence(tmp_path: Path, decoder: object) -> None:
    parts = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor"))
    model = {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(parts | {"version": "1.0", "added_tokens": [], "decoder": decoder, "model": model}))
    with pytest.raises(ImportFailed, match=r"tokenizer tokenizer\.json (cannot spell|spells one).*: name the folder"):
        Speller(file).token(0)
