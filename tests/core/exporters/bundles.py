"""Runs that are sent, and bundles made by hand: what an attacker would change, with hashes that fit again."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file

from core.exporters.bundle import BundleError, open_bundle
from tests.synthetic import make_run

RUN = "20260101-000000-a3po-s0-abcd"
SECRET = "a-place-of-mine"
TINY = {"steps": 3, "prompts": 2, "group_size": 4}
ADAPTER = {
    "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 4, "lora_alpha": 8.0, "lora_dropout": 0.0, "bias": "none",
    "target_modules": ["v_proj", "q_proj"], "base_model_name_or_path": f"/home/{SECRET}/model", "modules_to_save": None,
    "auto_mapping": {"parent_library": "evil", "base_model_class": "Evil"}, "rank_pattern": {}, "alpha_pattern": {},
}  # fmt: skip


def send(root: Path, name: str = RUN, **changes: Any) -> Path:
    """A run with an adapter, whose files speak of the machine wherever they can."""
    task = {
        "pool_size": 6, "name": "file", "file": {"path": f"/home/{SECRET}/sums.jsonl"},
        "verify": {"kind": "function", "function": f"{SECRET.replace('-', '_')}:score"},
    }  # fmt: skip
    settings = TINY | {"method": {"name": "a3po", "also": ["adora_attenuate"]}, "task": task} | changes
    path = make_run(root, name, model=f"/home/{SECRET}/small-model", **settings)
    (path / "log.txt").write_text(f"07:57:01  training from step 0 to 3\n07:57:02  /home/{SECRET}/x is full\n")
    (path / "adapter").mkdir()
    (path / "adapter" / "adapter_config.json").write_text(json.dumps(ADAPTER))
    (path / "adapter" / "README.md").write_text(f"trained in /home/{SECRET}")
    (path / "adapter" / "made_with.json").write_text(json.dumps({"lab": "0.1.0", "where": f"/home/{SECRET}"}))
    name = "base_model.model.layers.0.q_proj.lora_A.weight"
    save_file({name: np.ones((4, 8), np.float32)}, path / "adapter" / "adapter_model.safetensors")
    return path


def files_of(bundle: Path) -> dict[str, bytes]:
    """The files of a bundle by their names below its folder, bundle.json left out."""
    with zipfile.ZipFile(bundle) as archive:
        found = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
    del found["bundle.json"]
    return found


def contents(files: Mapping[str, bytes], run: str = RUN, /, **changes: Any) -> bytes:
    """The bundle.json that fits the files."""
    hashes = {name: [len(data), hashlib.sha256(data).hexdigest()] for name, data in files.items()}
    return json.dumps({"format": 1, "lab": "0.1.0", "run": run, "packed": False, "files": hashes} | changes).encode()


def bundle(place: Path, files: Mapping[str, bytes], run: str = RUN, /, extra: Any = (), **changes: Any) -> Path:
    """An archive of the files and a bundle.json that fits; `extra` entries are (name or ZipInfo, content)."""
    with zipfile.ZipFile(place, "w") as archive:
        archive.writestr(f"{run}/bundle.json", contents(files, run, **changes))
        for name, data in files.items():
            archive.writestr(f"{run}/{name}", data)
        for entry, data in extra:
            archive.writestr(entry, data)
    return place


def changed(files: Mapping[str, bytes], table: str, change: Any) -> dict[str, bytes]:
    """The files with another table in place of one, and a pack.json that counts its rows."""
    name = f"tables/{table}.parquet"
    rows = change(pq.read_table(pa.BufferReader(files[name])))
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd")
    listed = json.loads(files["tables/pack.json"])
    listed["rows"][table] = rows.num_rows
    return {**files, name: sink.getvalue().to_pybytes(), "tables/pack.json": json.dumps(listed).encode()}


def refused(file: Path, root: Path, words: str) -> str:
    """Opening says so in one sentence, and leaves nothing behind."""
    with pytest.raises(BundleError, match=words) as caught:
        open_bundle(file, root)
    said = str(caught.value)
    assert "\n" not in said and str(root) not in said and len(said) < 600
    nothing_left(root)
    return said


def nothing_left(root: Path) -> None:
    assert sorted(path.name for path in root.iterdir()) == []
    assert sorted(path.name for path in root.parent.iterdir()) == ["runs"]
