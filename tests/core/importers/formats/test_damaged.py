"""Whatever happened to a file: reading it raises nothing but ImportFailed, and every row is taken or refused."""

import json
import random
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.importers.base import ImportFailed, Report
from core.importers.formats import all_formats, find
from tests.core.importers.formats.reading import EXAMPLES, example_rows, read, write_lines

LINES = {
    "areal": "areal/rollout/3/17.jsonl",
    "nemo-rl": "nemo_rl/train_data_step3.jsonl",
    "open-instruct": "open_instruct/run1_rollouts_000000.jsonl",
    "prime-rl": "prime_rl/rollouts/step_3/train/effective/traces.jsonl",
    "prime-rl-tokens": "prime_rl/token_exports/step_3/rank_0.jsonl",
    "rllb": "rllb/run1/rollout_data_rank_0.jsonl",
    "tinker": "tinker/iteration_000003/train_rollout_summaries.jsonl",
    "verifiers": "verifiers/outputs/evals/sum--m/ab12cd34/results.jsonl",
    "verl": "verl/rollout/3.jsonl",
}
"""Of the formats with a rollout a line."""

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def damaged(value, draw):
    """The value with something else in one place of it."""
    if isinstance(value, dict | list) and value and draw(st.booleans()):
        key = draw(st.sampled_from(sorted(value) if isinstance(value, dict) else range(len(value))))
        changed = value.copy()
        how = draw(st.sampled_from(["inside", "inside", "gone"]))
        if how == "gone":
            del changed[key]
        else:
            changed[key] = damaged(value[key], draw)
        return changed
    return draw(anything)


def read_apart(path, name, report):
    """The rows that a format takes of a file, also where nothing recognises it any more."""
    found = find(EXAMPLES / LINES[name]) if name in LINES else find(EXAMPLES / name)
    form = all_formats()[found.format]
    rows = 0
    for table in form.read(type(found)(found.format, path, (path,)), report, {}):
        table.validate(full=True)
        table.to_pylist()
        rows += len(table)
    return rows


@pytest.mark.parametrize("name", LINES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_damaged_values_are_left_empty_or_refuse_their_row(name, data):
    rows = example_rows(LINES[name])
    hurt = [damaged(row, data.draw) for row in rows] + data.draw(st.lists(anything, max_size=2))
    with tempfile.TemporaryDirectory() as folder:
        path = write_lines(Path(folder, "3.jsonl"), hurt)
        Path(folder, "STABLE").touch()
        report = Report()
        taken = read_apart(path, name, report)
        assert taken + sum(report.refused.values()) >= len(hurt)
        if name != "prime-rl":  # an episode may have several traces
            assert taken + sum(report.refused.values()) == len(hurt)


ODD = [None, True, 3, -1.5, float("nan"), 10**30, "x", "\ud800", [], [None], [[True]], {}, {"x": True}]


def places(value, most=2):
    """Where something lies in a value: paths of keys, of a list the first few."""
    yield ()
    inside = value.items() if isinstance(value, dict) else enumerate(value[:most]) if isinstance(value, list) else ()
    for key, inner in inside:
        yield from ((key, *path) for path in places(inner, most))


def instead(value, path, other):
    """The value with another one at a path."""
    if not path:
        return other
    changed = value.copy()
    changed[path[0]] = instead(value[path[0]], path[1:], other)
    return changed


@pytest.mark.parametrize("name", LINES)
def test_any_value_at_any_place_costs_its_row_alone(name, tmp_path):
    row = example_rows(LINES[name])[0]
    hurt = [instead(row, path, other) for path in places(row) for other in ODD]
    path = write_lines(tmp_path / "3.jsonl", hurt)
    (tmp_path / "STABLE").touch()
    report = Report()
    taken = read_apart(path, name, report)
    assert taken + sum(report.refused.values()) >= len(hurt)


@pytest.mark.parametrize("name", LINES)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_damaged_bytes_cost_no_more_than_their_lines(name, data):
    raw = bytearray((EXAMPLES / LINES[name]).read_bytes())
    for place in data.draw(st.lists(st.integers(0, len(raw) - 1), max_size=4)):
        if raw[place] != ord("\n"):
            raw[place] = data.draw(st.integers(0, 255).filter(lambda byte: byte not in (10, 13, 32)))
    kept = bytes(raw[: data.draw(st.integers(0, len(raw)))])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "3.jsonl")
        path.write_bytes(kept)
        Path(folder, "STABLE").touch()
        report = Report()
        taken = read_apart(path, name, report)
        torn = any("torn" in note for note in report.notes)
        lines = sum(bool(line.strip()) for line in kept.split(b"\n"))
        assert taken + sum(report.refused.values()) == lines - torn
        try:
            find(path)
        except ImportFailed as failed:
            assert str(path) in str(failed)


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_damaged_columns_in_a_line_account_for_every_row(data):
    row = json.loads((EXAMPLES / "ms_swift" / "completions.jsonl").read_text())
    for _ in range(data.draw(st.integers(1, 3))):
        key = data.draw(st.sampled_from(sorted(row)))
        row[key] = data.draw(st.lists(anything, min_size=4, max_size=4))
    with tempfile.TemporaryDirectory() as folder:
        report = Report()
        taken = read_apart(write_lines(Path(folder, "a.jsonl"), [row]), "ms_swift", report)
        assert taken + sum(report.refused.values()) == 4


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_damaged_object_raises_nothing(data):
    run = damaged(json.loads((EXAMPLES / "unipo" / "run.json").read_text()), data.draw)
    written = json.dumps(run)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run.json")
        path.write_text(written[: data.draw(st.integers(0, len(written)))])
        read_apart(path, "unipo", Report())


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_columns_of_any_type_account_for_every_row(data):
    rows = 6
    typed = st.sampled_from(
        [
            st.integers(-5, 5), st.floats(), st.text(max_size=5), st.booleans(), st.none(), st.binary(max_size=5),
            st.dates(), st.decimals(-9, 9, places=2), st.lists(st.integers(0, 3), max_size=2),
            st.lists(st.fixed_dictionaries({"role": st.just("user"), "content": st.text(max_size=3)}), max_size=2),
            st.fixed_dictionaries({"a": st.integers(0, 3)}),
        ]
    )  # fmt: skip
    names = ["step", "prompt", "completion", "advantage", "reward", "right", "extra", "more"]
    kept = ["completion", "prompt", *data.draw(st.lists(st.sampled_from(names), unique=True))]
    columns = {}
    for name in dict.fromkeys(kept):
        each = data.draw(typed)
        columns[name] = pa.array(data.draw(st.lists(each | st.none(), min_size=rows, max_size=rows)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "completions_00001.parquet")
        pq.write_table(pa.table(columns), path)
        report = Report()
        assert len(read(path, report)) + sum(report.refused.values()) == rows


@pytest.mark.parametrize("seed", range(40))
def test_damaged_parquet_raises_nothing(seed, tmp_path):
    chance = random.Random(seed)
    raw = bytearray((EXAMPLES / "trl" / "completions" / "completions_00003.parquet").read_bytes())
    for _ in range(chance.randint(1, 5)):
        raw[chance.randrange(4, len(raw))] = chance.randrange(256)
    (tmp_path / "completions_00001.parquet").write_bytes(bytes(raw[: chance.randint(len(raw) // 2, len(raw))]))
    good = tmp_path / "completions_00002.parquet"
    good.write_bytes((EXAMPLES / "trl" / "completions" / "completions_00003.parquet").read_bytes())
    report = Report()
    assert len(read(tmp_path, report)) + sum(report.refused.values()) >= 4
