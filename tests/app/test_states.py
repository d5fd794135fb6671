"""Every page on run folders that something happened to: a sentence that says so, or what can still be shown."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from streamlit.testing.v1 import AppTest

from tests.app.conftest import break_status, texts
from tests.synthetic import make_run

PAGES: dict[str, dict[str, object]] = {
    "live": {}, "tokens": {}, "tokens?run": {"view": "run"}, "tokens?find": {"view": "find"}, "polarity": {},
    "polarity?step": {"part": "step"}, "favorability": {}, "whatif": {}, "compare": {}, "launch": {}, "sql": {},
    "imports": {},
}  # fmt: skip


def _cut(run: Path, table: str) -> None:
    """All files of a table end early, as after a full disk."""
    for file in run.glob(f"steps/*/{table}.parquet"):
        file.write_bytes(file.read_bytes()[:40])


def _not_numbers(run: Path) -> None:
    """Every third number is none, every fifth infinite."""
    for file in run.glob("steps/*/*.parquet"):
        table = pq.read_table(file)
        for place, field in enumerate(table.schema):
            if pa.types.is_floating(field.type):
                values = np.array(table.column(place).to_numpy(zero_copy_only=False), field.type.to_pandas_dtype())
                values[::3], values[1::5] = np.nan, np.inf
                table = table.set_column(place, field, pa.array(values))
        pq.write_table(table, file)


def _earlier(run: Path) -> None:
    """As a version of the lab wrote it that knew fewer tables and columns."""
    gone = {"rollouts": ["mass", "base_mass", "repeated", "minibatch"], "tokens": ["penalty", "tis", "proxy_logprob"]}
    for file in run.glob("steps/*/*.parquet"):
        if file.stem in ("positions", "strings"):
            file.unlink()
        elif file.stem in gone:
            table = pq.read_table(file)
            pq.write_table(table.drop_columns([name for name in gone[file.stem] if name in table.column_names]), file)


def _alone(run: Path, file: str) -> None:
    """Nothing is left but one file."""
    shutil.rmtree(run / "steps")
    for name in {"config.yaml", "status.json", "schema.json", "log.txt"} - {file}:
        (run / name).unlink()


ODD = "name: 3\nmethod: 7\nsteps: many\ngroup_size: [1]\ntask: {name: {}}\n"
HAPPENED: dict[str, Callable[[Path], object]] = {
    "metrics cut off": lambda run: _cut(run, "metrics"),
    "tokens cut off": lambda run: _cut(run, "tokens"),
    "no tokens": lambda run: [file.unlink() for file in run.glob("steps/*/tokens.parquet")],
    "no numbers": _not_numbers,
    "earlier": _earlier,
    "no config": lambda run: (run / "config.yaml").unlink(),
    "an odd config": lambda run: (run / "config.yaml").write_text(ODD, encoding="utf-8"),
    "no schema": lambda run: (run / "schema.json").unlink(),
    "status alone": lambda run: _alone(run, "status.json"),
    "config alone": lambda run: _alone(run, "config.yaml"),
    "killed": lambda run: break_status(run, state="running", heartbeat=1.0, finished=None, host=""),
    "strange folders": lambda run: [(run / "steps" / name).mkdir() for name in ("junk", "step=000099", "step=x")],
}
"""What happened to a run."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Whole runs, to be copied."""
    root = tmp_path_factory.mktemp("whole")
    make_run(root, "whole", steps=2, prompts=2, group_size=4)
    return root


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("happened", HAPPENED)
def test_a_page_says_what_it_can(
    folder: Path, no_runs: Path, open_page: Callable[..., AppTest], happened: str, page: str
) -> None:
    shutil.copytree(folder / "whole", no_runs / "whole")
    shutil.copytree(folder / "whole", no_runs / "odd")
    HAPPENED[happened](no_runs / "odd")
    name = page.partition("?")[0]
    choice = {"launch": {"from": "odd"}, "compare": {"run": ["whole", "odd"]}}.get(name, {"run": "odd"})
    at = open_page(name, **choice, **PAGES[page])
    said = texts(at)
    assert not at.exception and "Something went wrong" not in said
    assert at.header and len(said) > len(at.header[0].value) + 20
