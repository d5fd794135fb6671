"""What is in a bundle from anybody, its hashes in order: settings, tables and adapters that no lab writes."""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import yaml
from safetensors.numpy import save

from core.config import read_run
from core.exporters.bundle import BundleError, layout, open_bundle, papers, write_bundle
from core.runs.folders import run_info
from core.store import StoreError
from tests.core.exporters.bundles import ADAPTER, bundle, changed, files_of, nothing_left, refused, send

Files = dict[str, bytes]


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("core.exporters.bundle.open.EXAMPLES", tmp_path / "no examples")
    monkeypatch.setenv("ADVANTAGE_LAB_LOCKS", str(tmp_path / "locks"))
    return tmp_path / "inner" / "runs"


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("mine")
    return write_bundle(send(place, method="grpo"), place / "sent.zip")


@pytest.fixture(scope="module")
def files(sent: Path) -> Files:
    return files_of(sent)


NASTY: list[Any] = [
    None, -1, 0, 10**30, "x" * 10, "../../x", "<script>alert(1)</script>", [], [[]], {}, {"a": {"b": 1}}, True, "1e999",
    "__import__('os').system('id')", "\x00", "os:system", "\ud800",
]  # fmt: skip


def test_a_config_is_what_the_lab_could_have_written(files: Files, tmp_path: Path) -> None:
    """Any value in any place: refused by name, or harmless once it is cleaned."""
    honest = yaml.safe_load(files["config.yaml"])
    taken = 0
    for key, value in honest.items():
        for nasty in [
            *NASTY,
            *([{**value, next(iter(value)): item} for item in NASTY] if isinstance(value, dict) else []),
        ]:
            try:
                run = papers.config({**honest, key: nasty}, imported=True)
            except ValueError:
                continue
            taken += 1
            assert run.imported and not run.task.verify.function
            assert not re.search(r"\.\.|^/", run.model + run.task.file.path)
    assert taken > 50
    for text in (
        "a: &a [1]\nb: *a\n", "!!python/object/apply:os.system ['id']", "a: !!python/name:os.system", "- 1", "[" * 40,
        "a: " + "[" * 20 + "]" * 20, "x: {1: 2", "1: 2", "\x00",
    ):  # fmt: skip
        (tmp_path / "config.yaml").write_text(text)
        with pytest.raises(BundleError, match=r"^config\.yaml: "):
            papers.read_config(tmp_path / "config.yaml")


def test_a_hostile_config_schema_or_status_is_refused_whole(files: Files, root: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.zip"

    def told(name: str, data: bytes, words: str) -> None:
        refused(bundle(file, {**files, name: data}), root, words)

    config = yaml.safe_load(files["config.yaml"])
    told("config.yaml", yaml.safe_dump({**config, "reward_module": "x:y"}).encode(), "reward_module: no such setting")
    told("config.yaml", b"\xff\xfe", "is not YAML")
    told("status.json", b"[]", "status.json: is no run's status")
    told("status.json", b"[" * 100_000, "status.json: is no run's status")
    told("schema.json", b"{}", "not a schema of this store")
    schema = json.loads(files["schema.json"])
    told("schema.json", json.dumps({**schema, "token_factors": ["a b; DROP"]}).encode(), "made of a-z")
    evil = {**schema["composition"], "base": {"name": "os.system", "params": {}}}
    told("schema.json", json.dumps({**schema, "composition": evil}).encode(), "there is no rule 'os.system'")
    loss = {**schema["composition"], "loss": {**schema["composition"]["loss"], "clip_low": "<b>"}}
    told("schema.json", json.dumps({**schema, "composition": loss}).encode(), "clip_low")
    told("import.json", b'{"version": 1}', "is not what an import says")
    told("tables/pack.json", b'{"format": 1}', "damaged")
    for name, value in (("format", 2), ("run", "other"), ("packed", "yes"), ("lab", None), ("files", [1])):
        refused(bundle(file, files, **{name: value}), root, "format is|does not say")


def table_with(name: str, column: str, values: Callable[[pa.Table], Any]) -> Callable[[Files], Files]:
    def change(rows: pa.Table) -> pa.Table:
        return rows.set_column(rows.column_names.index(column), column, values(rows))

    return lambda files: changed(files, name, change)


def repeated(value: Any, kind: pa.DataType) -> Callable[[pa.Table], Any]:
    return lambda rows: pa.array([value] * rows.num_rows, kind)


def one_long_text(rows: pa.Table) -> pa.Array:
    return pa.array(["x" * (17 * layout.MB), *[""] * (rows.num_rows - 1)])


@pytest.mark.parametrize(
    ("attack", "words"),
    [
        (table_with("tokens", "advantage", repeated("x", pa.string())), "tokens.advantage is VARCHAR"),
        (table_with("tokens", "position", repeated(None, pa.int32())), "of no step, split or place"),
        (table_with("tokens", "position", repeated(0, pa.int32())), "holds rows twice"),
        (table_with("rollouts", "split", repeated("'; DROP", pa.string())), "of no step, split or place"),
        (table_with("rollouts", "step", repeated(99, pa.int64())), "of no step, split or place"),
        (table_with("groups", "group", repeated(-1, pa.int32())), "of no step, split or place"),
        (table_with("summary", "polarity", repeated(9, pa.int8())), "of no step, split or place"),
        (table_with("rollouts", "length", repeated(2**31 - 1, pa.int32())), "length is not between 0 and 16,777,216"),
        (table_with("evals", "k", repeated(2**40, pa.int64())), "k is not between 0 and 100,000"),
        (table_with("groups", "n", repeated(5, pa.int32())), "groups have other rollouts than they say"),
        (table_with("rollouts", "text", one_long_text), "text would be larger than 16 MB"),
        (table_with("groups", "prompt", lambda rows: pc.cast(pa.array([b"\xff"] * rows.num_rows), pa.binary())),
         "groups.prompt is"),
        (lambda files: changed(files, "metrics", lambda rows: rows.drop_columns(["step"])), "has no column step"),
        (lambda files: changed(files, "evals", lambda rows: pa.concat_tables([rows, rows])), "holds rows twice"),
        (lambda files: changed(files, "strings", lambda rows: rows.take(np.zeros(200_000, int))), "which do not fit"),
        (lambda files: files | {"tables/tokens.parquet": b"PAR1" + bytes(100) + b"PAR1"},
         r"^a\.zip: tables/tokens\.parquet: not a Parquet file"),
        (lambda files: files | {"tables/pack.json": files["tables/pack.json"].replace(b'"steps": [0', b'"steps": [-1')},
         "damaged"),
    ],
)  # fmt: skip
def test_tables_that_no_lab_writes(attack: Any, words: str, files: Files, root: Path, tmp_path: Path) -> None:
    refused(bundle(tmp_path / "a.zip", attack(files)), root, words)


def test_damaged_parquet_with_hashes_that_fit(files: Files, root: Path, tmp_path: Path) -> None:
    """What DuckDB and Arrow make of a table that is wrong inside: a sentence, or a run that can be read."""
    draw, name = random.Random(3), "tables/evals.parquet"
    root.mkdir(parents=True)
    for turn in range(12):
        data = bytearray(files[name])
        for _ in range(1 + turn % 3):
            data[draw.randrange(4, len(data) - 8)] ^= 1 << draw.randrange(8)
        try:
            path = open_bundle(bundle(tmp_path / "a.zip", {**files, name: bytes(data)}), root)
        except BundleError as error:
            assert "\n" not in str(error)
            nothing_left(root)
        else:
            os.rename(path, tmp_path / f"opened-{turn}")


def adapter_with(**changes: Any) -> bytes:
    return json.dumps(ADAPTER | changes).encode()


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("adapter_model.safetensors", b"\x80\x04cos\nsystem\n", "is not a safetensors file"),
        ("adapter_model.safetensors", save({"lm_head.weight": np.ones(4, np.float32)}), "more than the weights"),
        ("adapter_model.safetensors", save({"a.lora_A.weight": np.ones(4, np.int64)}), "more than the weights"),
        ("adapter_config.json", b"[]", "is no JSON object"),
        ("adapter_config.json", adapter_with(peft_type="PROMPT_TUNING"), "does not describe a LoRA adapter"),
        ("adapter_config.json", adapter_with(modules_to_save=["lm_head"]), "does not describe a LoRA adapter"),
        ("adapter_config.json", adapter_with(target_modules="(a+)+$"), "does not describe a LoRA adapter"),
        ("adapter_config.json", adapter_with(r="4"), "does not describe a LoRA adapter"),
        ("adapter_config.json", adapter_with(r=2.5), "does not describe a LoRA adapter"),
        ("adapter_config.json", adapter_with(lora_alpha=1e308), "does not describe a LoRA adapter"),
        ("adapter_config.json", adapter_with(target_modules=[]), "does not describe a LoRA adapter"),
    ],
)
def test_adapters_that_are_none(name: str, data: bytes, words: str, files: Files, root: Path, tmp_path: Path) -> None:
    refused(bundle(tmp_path / "a.zip", {**files, f"adapter/{name}": data}), root, words)


def test_hostile_texts_stay_texts(files: Files, root: Path, tmp_path: Path) -> None:
    config = yaml.safe_load(files["config.yaml"])
    name, file = "![x](http://a.example/x) <b>", tmp_path / "a.zip"
    config |= {"name": name, "model": "../../models/mine", "system_prompt": "/no_think"}
    status = json.loads(files["status.json"]) | {"state": "running", "host": "a", "pid": 1, "error": "no /home/x"}
    log = b"07:00:00  \x1b[31mred\x1b[0m\n07:00:01  see /etc/passwd\n"
    data = {**files, "config.yaml": yaml.safe_dump(config).encode(), "log.txt": log}
    opened = open_bundle(bundle(file, {**data, "status.json": json.dumps(status).encode()}), root)
    info = run_info(opened)
    assert (info.name, info.model, info.state, info.host, info.error) == (name, "mine", "stopped", "", "")
    assert read_run(opened / "config.yaml").system_prompt == "/no_think"
    assert (opened / "log.txt").read_text() == "07:00:00  red\n"


def test_papers_that_are_not_there_are_said(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="is no run's status"):
        papers.status(tmp_path)
    with pytest.raises((BundleError, StoreError), match="missing"):
        papers.write_schema(tmp_path, tmp_path, papers.config({}))


def test_numbers_that_no_page_could_show_are_refused_or_left_out(files: Files, root: Path, tmp_path: Path) -> None:
    """Whole numbers of any length, infinities and years that no clock has, wherever JSON holds a number."""
    file, huge = tmp_path / "a.zip", 10**400
    said = {"version": 1, "notes": [], "lacks": [], "refused": {}, "examples": {}, "fits": [], "places": None}
    said |= dict.fromkeys(("format", "label", "source", "convention", "sentence", "tokenizer"), "x")
    said |= dict.fromkeys(("imported", "steps", "rollouts", "tokens", "compared"), 1) | {"evaluation": False}
    fit = {"name": "x", "label": "x", "largest": math.inf, "mean": 0.0, "within": 1.0}
    for wrong in ({"refused": {"x": math.inf}}, {"imported": -math.inf}, {"steps": huge}, {"fits": [fit]}):
        refused(
            bundle(file, {**files, "import.json": json.dumps(said | wrong).encode()}), root, r"^import\.json: is not"
        )
    refused(bundle(file, {**files, "adapter/adapter_config.json": adapter_with(r=huge)}), root, "does not describe")
    status = json.loads(files["status.json"]) | {"created": 1e300, "heartbeat": huge, "step": huge, "finished": -1e99}
    info = run_info(open_bundle(bundle(file, {**files, "status.json": json.dumps(status).encode()}), root))
    assert time.localtime(info.created) and time.localtime(info.updated) and info.step == 0


def test_rows_belong_together_and_steps_have_some(files: Files, root: Path, tmp_path: Path) -> None:
    file, pack = tmp_path / "a.zip", json.loads(files["tables/pack.json"])
    listed = json.dumps(pack | {"steps": list(range(50_000))}).encode()
    refused(
        bundle(file, {**files, "tables/pack.json": listed}),
        root,
        "names 50,000 steps, and the tables have rows of 4",
    )
    for table, owner in (("rollouts", "rollout"), ("groups", "group")):
        attack = table_with(table, owner, lambda rows, owner=owner: pc.add(rows[owner], pa.scalar(1000, pa.int32())))
        refused(bundle(file, attack(files)), root, f"of [0-9]+ {table} that the run lacks")
    names = {name: [len(data), hashlib.sha256(data).hexdigest()] for name, data in files.items()}
    said = refused(bundle(file, files, files=names | {"\x1b[31m\n" + "a" * 9000: [1, "x"]}), root, "disagree about '")
    assert "\x1b" not in said
