"""Packaged GGUF models become folders of safetensors, once."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from filelock import FileLock
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from core.models.catalog import ModelError
from core.models.packaged import Packaged


def convert(model: Packaged) -> Path:
    """The folder of the converted model, made now if it is not there. Raises ModelError.

    Weights become float32: a block of the file holds 4-bit numbers with a 16-bit scale and offset, whose products
    bfloat16 would round. The folder is written aside and renamed; of several processes one converts, the others wait.
    """
    if problem := model.problem():
        raise ModelError(problem)
    folder = model.folder
    if model.converted:
        return folder
    aside = folder.with_name(f".{folder.name}.new")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_name(f".{folder.name}.lock")):
            if not model.converted:
                shutil.rmtree(aside, ignore_errors=True)
                _write(model.source, aside)
                aside.rename(folder)
    except (OSError, ValueError, RuntimeError, KeyError, ImportError) as error:
        shutil.rmtree(aside, ignore_errors=True)
        words = " ".join(str(error).split())
        raise ModelError(
            f"model {model.name!r} cannot be converted into {folder} (ADVANTAGE_LAB_CACHE names another cache, it "
            f"takes half a gigabyte): {words[:300]}"
        ) from error
    return folder


def _write(source: Path, folder: Path) -> None:
    options = {"gguf_file": source.name, "local_files_only": True, "trust_remote_code": False}
    tokenizer = AutoTokenizer.from_pretrained(source.parent, **options)
    model = AutoModelForCausalLM.from_pretrained(
        source.parent, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True), **options
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
