import json
import struct
import subprocess
import sys

import pytest

from core.models.catalog import EMBEDDED_PATH, ModelError, describe, hub_cache, list_models, models_here, require
from core.models.packaged import PACKAGED

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 8,
    "vocab_size": 16,
    "max_position_embeddings": 32,
}
TENSORS = {
    "model.embed_tokens.weight": [16, 8],
    "model.layers.0.self_attn.q_proj.weight": [8, 8],
    "model.layers.0.mlp.up_proj.weight": [24, 8],
    "model.layers.0.input_layernorm.weight": [8],
    "lm_head.weight": [16, 8],
}


def write_safetensors(path, tensors, dtype="F32", size=4):
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in tensors.items():
        start, count = end, 1
        for axis in shape:
            count *= axis
        end += count * size
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    raw = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + b"\0" * end)


@pytest.fixture
def folder(tmp_path):
    """A small model's folder, as save_pretrained writes it."""
    path = tmp_path / "small"
    path.mkdir()
    (path / "config.json").write_text(json.dumps(LLAMA))
    (path / "tokenizer.json").write_text("{}")
    write_safetensors(path / "model.safetensors", TENSORS)
    return path


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def cached(cache, folder, name, revision="abc"):
    """Put a model's folder into the cache under an id, as the hub's tools lay it out."""
    repo = cache / f"models--{name.replace('/', '--')}"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text(revision)
    (repo / "snapshots").mkdir()
    (repo / "snapshots" / revision).symlink_to(folder)


def test_embedded():
    info = require("embedded")
    assert info.path == EMBEDDED_PATH and info.ready
    assert info.architecture == "LlamaForCausalLM"
    assert 450_000 < info.parameters < 550_000
    assert info.parameters * 4 < info.bytes < 2_100_000
    assert (info.layers, info.hidden, info.vocab, info.context, info.dtype) == (3, 128, 44, 256, "F32")
    assert info.lora_targets == ("down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj")
    assert (info.tokenizer, info.chat_template) == ("fast", False)


def test_shapes_that_memory_is_planned_with(folder):
    info = require("embedded")
    assert (info.kv_heads, info.head_size) == (4, 32)
    shapes = {shape.name: (set(shape.sides), shape.count) for shape in info.linears}
    assert shapes["q_proj"] == ({128}, 3)
    assert shapes["down_proj"] == ({128, 256}, 3)
    weights = sum(shape.sides[0] * shape.sides[1] * shape.count for shape in info.linears)
    assert weights == 3 * (4 * 128**2 + 3 * 128 * 256)
    (folder / "config.json").write_text(json.dumps({**LLAMA, "num_attention_heads": 4, "num_key_value_heads": 2}))
    info = require(str(folder))
    assert (info.kv_heads, info.head_size) == (2, 2)
    assert [(shape.name, shape.sides, shape.count) for shape in info.linears] == [
        ("q_proj", (8, 8), 1), ("up_proj", (24, 8), 1),
    ]  # fmt: skip


def test_a_local_folder(folder):
    info = require(str(folder))
    assert info.path == folder
    assert info.parameters == 16 * 8 + 8 * 8 + 24 * 8 + 8 + 16 * 8
    assert info.lora_targets == ("q_proj", "up_proj")
    assert info.bytes == (folder / "model.safetensors").stat().st_size


def test_sharded_weights_count_together(folder):
    (folder / "model.safetensors").unlink()
    write_safetensors(folder / "a.safetensors", {"x": [10]}, "BF16", 2)
    write_safetensors(folder / "b.safetensors", {"y": [5]}, "F32", 4)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}))
    info = require(str(folder))
    assert (info.parameters, info.dtype) == (15, "BF16")
    (folder / "b.safetensors").unlink()
    assert "b.safetensors is missing" in describe(str(folder)).problem
    index.write_text(json.dumps({"weight_map": {"x": "../secret.safetensors"}}))
    assert "not a file beside it" in describe(str(folder)).problem


def test_the_chat_template_is_found_in_either_place(folder):
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
    assert require(str(folder)).chat_template
    (folder / "tokenizer_config.json").write_text("{}")
    assert not require(str(folder)).chat_template
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    assert require(str(folder)).chat_template


def test_a_cached_model_by_its_id(folder, empty_cache):
    cached(empty_cache, folder, "org/small-model")
    assert require("org/small-model").parameters == require(str(folder)).parameters
    listed = [info.name for info in list_models()]
    assert (listed[0], listed[-1]) == ("embedded", "org/small-model")
    (folder / "model.safetensors").unlink()
    assert [info.name for info in list_models()] == listed[:-1]


def test_what_cannot_be_trained_is_here_too_with_its_reason(folder, empty_cache):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    cached(empty_cache, folder, "org/pickled")
    here = {info.name: info for info in models_here()}
    assert list(here) == ["embedded", *PACKAGED, "org/pickled"]
    assert "can run code" in here["org/pickled"].problem
    assert all(info.ready for info in list_models())


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        ({"HF_HUB_CACHE": "/a"}, "/a"),
        ({"HF_HOME": "/b"}, "/b/hub"),
        ({"XDG_CACHE_HOME": "/c"}, "/c/huggingface/hub"),
        ({"HOME": "/d"}, "/d/.cache/huggingface/hub"),
    ],
)
def test_the_cache_is_where_hugging_face_keeps_it(monkeypatch, variables, place):
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert str(hub_cache()) == place


@pytest.mark.parametrize(
    "name", ["org/unknown", "embeded", "a b", "../up/../and/away", "\0", "x" * 5000, "", "~nobody/x"]
)
def test_an_unknown_name_is_named_with_what_would_be_right(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    info = describe(name)
    assert not info.ready
    assert info.problem.startswith(f"model {name[:80]!r}"[:40])
    assert "\n" not in info.problem
    with pytest.raises(ModelError):
        require(name)


def test_what_is_missing_is_said():
    problem = describe("org/unknown").problem
    assert "hf download org/unknown" in problem and "the lab itself downloads nothing" in problem


def test_pickled_weights_are_refused_with_the_reason(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    problem = describe(str(folder)).problem
    assert "pytorch_model.bin" in problem and "can run code" in problem and "safetensors" in problem


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: (f / "config.json").unlink(), "no config.json"),
        (lambda f: (f / "config.json").write_text("{"), "config.json cannot be read as JSON"),
        (lambda f: (f / "config.json").write_text("[]"), "config.json does not hold an object"),
        (lambda f: (f / "config.json").write_text("[" * 100_000), "config.json cannot be read as JSON"),
        (
            lambda f: (f / "config.json").write_text('{"architectures": ["BertModel"]}'),
            "BertModel, which writes no text",
        ),
        (lambda f: (f / "model.safetensors").unlink(), "no model.safetensors"),
        (lambda f: (f / "model.safetensors").write_bytes(b"abc"), "not a safetensors file"),
        (lambda f: (f / "model.safetensors").write_bytes(b"\xff" * 500), "not a safetensors file"),
        (lambda f: (f / "model.safetensors").write_bytes(struct.pack("<Q", 4) + b"[12]"), "not that of a safetensors"),
        (lambda f: (f / "model.safetensors").write_bytes((f / "model.safetensors").read_bytes()[:-9]), "is cut short"),
        (lambda f: (f / "tokenizer.json").unlink(), "no tokenizer.json"),
        (lambda f: (f / "tokenizer_config.json").write_text("nope"), "tokenizer_config.json cannot be read"),
    ],
)
def test_a_damaged_folder_is_not_ready_and_says_why(folder, change, words):
    change(folder)
    info = describe(str(folder))
    assert words in info.problem and repr(str(folder)) in info.problem
    assert not info.ready


def test_a_file_is_no_model(folder):
    assert "is a file" in describe(str(folder / "model.safetensors")).problem


def test_no_torch():
    code = (
        "import sys, core.models.catalog as catalog; catalog.describe('embedded'); "
        "print(sorted({'torch', 'transformers', 'peft', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
