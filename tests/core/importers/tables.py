"""A format for tests of what comes after reading: Parquet files of SCHEMA's columns, read as they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from core.importers.base import SCHEMA, Format, Found, Place, Places, Report


def write(folder: Path, file: str, **columns: Any) -> None:
    """A file of some rows; columns that are not named are missing."""
    folder.mkdir(parents=True, exist_ok=True)
    types = {name: SCHEMA.field(name).type for name in columns}
    pq.write_table(pa.table({name: pa.array(values, types[name]) for name, values in columns.items()}), folder / file)


def found(folder: Path) -> Found:
    return Found("tables", folder, tuple(sorted(folder.glob("*.parquet"))))


def read(found: Found, report: Report, done: Places) -> Iterator[pa.Table]:
    for path in found.files:
        size = path.stat().st_size
        if path.name in done and done[path.name].modified_ns == path.stat().st_mtime_ns:
            continue
        table = pq.read_table(path)
        yield table.append_column("file", pa.array([path.name] * len(table)))
        done[path.name] = Place(size, len(table), path.stat().st_mtime_ns)


TABLES = Format("tables", "Tables", "files of a test", lambda path: found(path), read)


def step(number: int, rewards: list[list[float]], **more: Any) -> dict[str, Any]:
    """Rows of one step: a prompt a list, a rollout a reward; the advantages are GRPO's with ddof 1, unless given."""
    groups = [np.array(group, float) for group in rewards]
    sizes = [len(group) for group in groups]
    count = sum(sizes)
    with np.errstate(invalid="ignore"):
        own = [(g - g.mean()) / (g.std(ddof=1) + 1e-4) if len(g) > 1 else np.zeros(1) for g in groups]
    return {
        "step": [number] * count,
        "prompt": [f"prompt {number}.{i}" for i, n in enumerate(sizes) for _ in range(n)],
        "text": [f"answer {number}.{i}.{j}" for i, n in enumerate(sizes) for j in range(n)],
        "reward": np.concatenate(groups).tolist(),
        "advantage": np.concatenate(own).tolist(),
    } | more
