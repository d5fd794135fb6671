"""What a model name means, read from its files alone: no torch, no network, nothing of the model is run.

A name is `embedded` (the model that ships with the lab), a packaged model such as `smollm2-135m`, a local folder, or
the id of a model in the local Hugging Face cache. Weights must be safetensors: pickled files can run code when they are
opened, so they are never loaded.
"""

from __future__ import annotations

import json
import os
import re
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from core.models.packaged import PACKAGED, Packaged

EMBEDDED = "embedded"
EMBEDDED_PATH = Path(__file__).with_name("embedded")
PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
GENERATES = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
LONGEST_HEADER = 100_000_000  # bytes, the safetensors format's own limit

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?\Z", re.ASCII)
_LAYER_LINEAR = re.compile(r"\.\d+\.(?:.+\.)?([^.]+)\.weight\Z")


class ModelError(ValueError):
    """A model that cannot be used; the message is one sentence that names it and says what would be right."""


@dataclass(frozen=True)
class LinearShape:
    """`count` linear modules of one name and shape; `sides` are their inputs and outputs, in the file's order."""

    name: str
    sides: tuple[int, int]
    count: int


@dataclass(frozen=True)
class ModelInfo:
    """A model as its files describe it; 0, "" and () where they say nothing."""

    name: str
    path: Path | None  # None: nothing found under this name, or a packaged model that is converted when it is loaded
    architecture: str = ""
    parameters: int = 0
    bytes: int = 0  # of the weight files
    layers: int = 0
    hidden: int = 0
    vocab: int = 0
    context: int = 0  # tokens
    kv_heads: int = 0
    head_size: int = 0
    dtype: str = ""  # of most weights, as safetensors writes it: F32, BF16, ...
    lora_targets: tuple[str, ...] = ()  # the linear modules inside the layers: what `all-linear` means
    linears: tuple[LinearShape, ...] = ()  # the same with their shapes
    tokenizer: str = ""  # "fast", "sentencepiece", or "" if there is none
    chat_template: bool = False
    problem: str | None = None  # one sentence

    @property
    def ready(self) -> bool:
        return self.problem is None


def describe(name: str) -> ModelInfo:
    """What is known of the model; never raises for a bad one, but says its `problem`."""
    if name in PACKAGED:
        return _describe_packaged(PACKAGED[name])
    try:
        path = locate(name)
    except ModelError as error:
        return ModelInfo(name, None, problem=str(error))
    return _read(name, path)


def require(name: str) -> ModelInfo:
    """The same, for a model that is about to be loaded. Raises ModelError if it is not ready."""
    info = describe(name)
    if info.problem:
        raise ModelError(info.problem)
    return info


def list_models() -> list[ModelInfo]:
    """Those of `models_here` that can be trained."""
    return [info for info in models_here() if info.ready]


def models_here() -> list[ModelInfo]:
    """The embedded model, the packaged ones, and every model of the Hugging Face cache; what cannot be trained, a
    package that is not installed say, has its `problem`."""
    cached = [folder.name for folder in sorted(hub_cache().glob("models--*"))]
    ids = [name.removeprefix("models--").replace("--", "/", 1) for name in cached]
    return [describe(name) for name in dict.fromkeys([EMBEDDED, *PACKAGED, *ids])]


def locate(name: str) -> Path:
    """The folder that a name means. Raises ModelError."""
    if name == EMBEDDED:
        return EMBEDDED_PATH
    try:
        folder = Path(name).expanduser()
        is_folder, is_file = folder.is_dir(), folder.is_file()
    except (ValueError, OSError, RuntimeError):  # null bytes, too long, no such user
        raise ModelError(f"model {name[:80]!r} is neither a folder's path nor a model's id") from None
    if is_folder:
        return folder.resolve()
    if is_file:
        raise ModelError(f"model {name!r} is a file: name the folder that holds config.json and the weights")
    if not _HUB_ID.match(name):
        raise ModelError(f"model {name[:200]!r} is not here: there is no such folder, and it is no id such as org/name")
    snapshot = _snapshot(name)
    if snapshot is None:
        raise ModelError(
            f"model {name!r} is not here: it is neither {EMBEDDED!r}, nor a packaged one ({', '.join(PACKAGED)}), nor "
            "a local folder, nor in the Hugging Face cache; the lab itself downloads nothing (to fetch it: "
            f"hf download {name})"
        )
    return snapshot


def _describe_packaged(model: Packaged) -> ModelInfo:
    if problem := model.problem():
        return ModelInfo(model.name, None, problem=problem)
    if model.converted:
        return _read(model.name, model.folder)
    linears = tuple(LinearShape(name, (a, b), model.facts["layers"]) for name, a, b in model.linears)
    targets = tuple(shape.name for shape in linears)
    return ModelInfo(model.name, None, **model.facts, lora_targets=targets, linears=linears)


def hub_cache() -> Path:
    """Where Hugging Face's tools keep downloaded models."""
    if cache := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return Path(cache).expanduser()
    home = os.environ.get("HF_HOME")
    if not home:
        home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    return Path(home).expanduser() / "hub"


def _snapshot(name: str) -> Path | None:
    repo = hub_cache() / f"models--{name.replace('/', '--')}"
    reference = repo / "refs" / "main"
    if reference.is_file():
        snapshot = repo / "snapshots" / reference.read_text(encoding="utf-8", errors="replace").strip()
        if snapshot.is_dir():
            return snapshot
    snapshots = [path for path in repo.glob("snapshots/*") if path.is_dir()]
    return max(snapshots, key=lambda path: path.stat().st_mtime, default=None)


def _read(name: str, path: Path) -> ModelInfo:
    known: dict[str, Any] = {}
    try:
        known.update(_read_config(name, path))
        known.update(_read_weights(name, path))
        known.update(_read_tokenizer(name, path))
    except ModelError as error:
        known["problem"] = str(error)
    return ModelInfo(name, path, **known)


def _read_config(name: str, path: Path) -> dict[str, Any]:
    if not (path / "config.json").is_file():
        raise ModelError(f"model {name!r}: there is no config.json in {path}")
    config = _json(name, path / "config.json")
    text = config.get("text_config") if isinstance(config.get("text_config"), dict) else config
    architectures = config.get("architectures") or []
    architecture = str(architectures[0]) if isinstance(architectures, list) and architectures else ""

    def number(*keys: str) -> int:
        return next((text[key] for key in keys if isinstance(text.get(key), int)), 0)

    known = {
        "architecture": architecture or str(config.get("model_type", "")),
        "layers": number("num_hidden_layers", "n_layer", "num_layers"),
        "hidden": number("hidden_size", "n_embd", "d_model"),
        "vocab": number("vocab_size"),
        "context": number("max_position_embeddings", "n_positions", "n_ctx"),
    }
    heads = number("num_attention_heads", "n_head")
    known["kv_heads"] = number("num_key_value_heads") or heads
    known["head_size"] = number("head_dim") or known["hidden"] // max(1, heads)
    if architecture and not architecture.endswith(GENERATES):
        known["problem"] = f"model {name!r} is a {architecture}, which writes no text: choose a causal language model"
    return known


def _read_weights(name: str, path: Path) -> dict[str, Any]:
    files = _weight_files(name, path)
    shapes: dict[str, list[int]] = {}
    dtypes: Counter[str] = Counter()
    for file in files:
        for tensor, shape, dtype in _tensors(name, file):
            shapes[tensor] = shape
            dtypes[dtype] += prod(shape)
    linears: Counter[tuple[str, int, int]] = Counter()
    for tensor, shape in shapes.items():
        if len(shape) == 2 and (match := _LAYER_LINEAR.search(tensor)):
            linears[match[1], shape[0], shape[1]] += 1
    return {
        "parameters": dtypes.total(),
        "bytes": sum(file.stat().st_size for file in files),
        "dtype": dtypes.most_common(1)[0][0] if dtypes else "",
        "lora_targets": tuple(sorted({name for name, *_ in linears})),
        "linears": tuple(LinearShape(name, (a, b), count) for (name, a, b), count in sorted(linears.items())),
    }


def _weight_files(name: str, path: Path) -> list[Path]:
    if (path / "model.safetensors").is_file():
        return [path / "model.safetensors"]
    index = path / "model.safetensors.index.json"
    if index.is_file():
        parts = _json(name, index).get("weight_map")
        if not isinstance(parts, dict) or not parts:
            raise ModelError(f"model {name!r}: {index.name} has no weight_map")
        names = sorted({str(part) for part in parts.values()})
        for part in names:
            if Path(part).name != part:
                raise ModelError(f"model {name!r}: {index.name} names {part!r}, which is not a file beside it")
            if not (path / part).is_file():
                raise ModelError(f"model {name!r}: the weight file {part} is missing, the download is not complete")
        return [path / part for part in names]
    pickled = sorted(file.name for file in path.iterdir() if file.suffix in PICKLED)
    if pickled:
        raise ModelError(
            f"model {name!r} has only pickled weights ({pickled[0]}), which can run code when they are opened: "
            "save it with safetensors (model.save_pretrained writes model.safetensors)"
        )
    raise ModelError(f"model {name!r}: there is no model.safetensors in {path}")


def _tensors(name: str, file: Path) -> Iterator[tuple[str, list[int], str]]:
    """Name, shape and type of each tensor, from the header: its length in 8 bytes, little-endian, then JSON."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        start = stream.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if not 2 <= length <= min(LONGEST_HEADER, size - 8):
            raise ModelError(f"model {name!r}: {file.name} is not a safetensors file, or is cut short")
        raw = stream.read(length)
    try:
        header = json.loads(raw)
        header.pop("__metadata__", None)
        entries = [
            (key, list(map(int, tensor["shape"])), str(tensor["dtype"]), int(tensor["data_offsets"][1]))
            for key, tensor in header.items()
        ]
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        raise ModelError(f"model {name!r}: the header of {file.name} is not that of a safetensors file") from None
    if max((end for *_, end in entries), default=0) > size - 8 - length:
        raise ModelError(f"model {name!r}: {file.name} is cut short, the download is not complete")
    for key, shape, dtype, _ in entries:
        yield key, shape, dtype


def _read_tokenizer(name: str, path: Path) -> dict[str, Any]:
    settings = path / "tokenizer_config.json"
    template = (path / "chat_template.jinja").is_file()
    if not template and settings.is_file():
        template = bool(_json(name, settings).get("chat_template"))
    if (path / "tokenizer.json").is_file():
        return {"tokenizer": "fast", "chat_template": template}
    if (path / "tokenizer.model").is_file():
        return {"tokenizer": "sentencepiece", "chat_template": template}
    raise ModelError(f"model {name!r}: there is no tokenizer.json in {path}")


def _json(name: str, file: Path) -> dict[str, Any]:
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        raise ModelError(f"model {name!r}: {file.name} cannot be read as JSON") from None
    if not isinstance(data, dict):
        raise ModelError(f"model {name!r}: {file.name} does not hold an object")
    return data
