"""Whatever is written comes back, whatever it is: records made by hypothesis, written, sealed and read."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from core.advantage import Batch, Method, Rule, Trace, classify
from core.store import Lab, SplitRecord, StepRecord, open_runs, seal, write_step
from core.store.text import decode

texts = st.text(st.characters(codec=None), max_size=8)
numbers = st.floats(width=32, allow_nan=False)
values = st.dictionaries(texts, st.floats(allow_nan=False, width=64), max_size=3)


@st.composite
def splits(draw: st.DrawFn) -> SplitRecord:
    groups = draw(st.integers(1, 3))
    sizes = [draw(st.integers(1, 3)) for _ in range(groups)]
    n = sum(sizes)
    length = np.array(draw(st.lists(st.integers(1, 5), min_size=n, max_size=n)))
    width = int(length.max()) + draw(st.integers(0, 2))

    def tokens(of: st.SearchStrategy[Any]) -> np.ndarray:
        return np.array(draw(st.lists(of, min_size=n * width, max_size=n * width))).reshape(n, width)

    def rows(of: st.SearchStrategy[Any], count: int = n) -> list[Any]:
        return draw(st.lists(of, min_size=count, max_size=count))

    correct = np.array(rows(st.booleans()))
    group = np.repeat(np.arange(groups), sizes)
    batch = Batch(group, correct.astype(float), correct, length, np.zeros(n, bool), max_length=9)
    trace = Trace(
        method=Method("x", "X", Rule("grpo")), base=np.array(rows(numbers)), base_reason="",
        explain_base=lambda i, t: "",
        factors=[SimpleNamespace(id="odd", per="token", values=tokens(numbers))], advantage=tokens(numbers),
        kept=tokens(st.booleans()), polarity=np.where(correct, 1, -1), classes=classify(batch),
        minibatch=np.zeros(n, np.int32),
    )  # fmt: skip
    return SplitRecord(
        split="train", prompt_id=rows(texts, groups), prompt=rows(texts, groups), answer=rows(texts, groups),
        attempt=np.array(rows(st.integers(0, 9), groups)), group_kept=np.array(rows(st.booleans(), groups)),
        group=group, rollout=np.concatenate([np.arange(size) for size in sizes]), text=rows(texts),
        reward=np.array(rows(numbers)), correctness=np.array(rows(numbers)), correct=correct, parts=rows(values),
        traits=rows(values), length=length, truncated=np.array(rows(st.booleans())), max_length=9,
        token_ids=tokens(st.integers(0, 2**31 - 1)), token_text=[rows(texts, size) for size in length.tolist()],
        sampler_logprob=tokens(st.floats(-50, 0, width=32)), entropy=tokens(st.floats(0, 9, width=32)), trace=trace,
    )  # fmt: skip


@hypothesis_settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(splits(), st.booleans())
def test_a_record_comes_back(split: SplitRecord, sealed: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        run_dir.mkdir()
        write_step(run_dir, StepRecord(7, [split], metrics={"reward": 0.5, "traits": split.traits[0]}))
        if sealed:
            (run_dir / "status.json").write_text('{"state": "finished"}')
            seal(run_dir)
            shutil.rmtree(run_dir / "steps")
        with open_runs([run_dir]) as lab:
            compare(lab, split)


def compare(lab: Lab, split: SplitRecord) -> None:
    groups = lab.rows('SELECT * FROM groups ORDER BY "group"')
    for name in ("prompt_id", "prompt", "answer"):
        assert [decode(group[name]) for group in groups] == getattr(split, name)
    assert [group["kept"] for group in groups] == split.group_kept.tolist()
    rollouts = lab.rows('SELECT * FROM rollouts ORDER BY "group", rollout')
    assert [decode(row["text"]) for row in rollouts] == split.text
    for name in ("reward", "correctness"):
        assert [row[name] for row in rollouts] == getattr(split, name).astype(np.float32).tolist()
    for name in ("parts", "traits"):
        assert [{decode(key): value for key, value in row[name].items()} for row in rollouts] == getattr(split, name)
    tokens = lab.rows('SELECT * FROM tokens ORDER BY "group", rollout, position')
    mask = np.arange(split.token_ids.shape[1]) < split.length[:, None]
    assert [decode(token["token"]) for token in tokens] == [text for texts in split.token_text for text in texts]
    for name, array in (
        ("token_id", split.token_ids), ("entropy", split.entropy), ("sampler_logprob", split.sampler_logprob),
        ("advantage", split.trace.advantage), ("kept", split.trace.kept), ("f_odd", split.trace.factors[0].values),
    ):  # fmt: skip
        assert [token[name] for token in tokens] == array[mask].tolist()
    assert [token["trainer_logprob"] for token in tokens] == [None] * len(tokens)
    assert sum(row["n"] for row in lab.rows("SELECT n FROM summary WHERE field = 'entropy'")) == len(tokens)
