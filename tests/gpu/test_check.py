"""The GPU check on a CPU: it runs, its comparisons hold against itself, and it notices what does not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.gpu import check
from tests.gpu.check import Comparison, Reference, compare, main, reference
from tests.gpu.models import SMALL
from tests.gpu.trial import PHASES, Size

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> str:
    return str(SMALL[1].write(tmp_path_factory.mktemp("models")))


@pytest.fixture(scope="module")
def cpu(small) -> Reference:
    return reference(small)


def test_it_needs_no_database_and_no_test_framework():
    unwanted = ("duckdb", "pyarrow", "pandas", "pytest", "streamlit")
    code = f"import sys, tests.gpu.check; print([name for name in {unwanted} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[]", done.stderr[-2000:]


def test_without_a_gpu_it_says_so(capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main([]) == 2
    assert "--device cpu" in capsys.readouterr().err


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_the_cpu_agrees_with_itself(small, cpu, precision, checkpointing):
    found = compare("small", small, "cpu", precision, checkpointing, cpu)
    assert {one.what for one in found} == set(check.LIMITS[precision])
    assert all(one.ok for one in found), [check.said(one) for one in found if not one.ok]
    assert any(one.value > 0 for one in found) or precision == "float32"


def test_another_model_is_noticed(small, cpu, tmp_path):
    """One weight of the base model moved a little: every comparison with it fails."""
    model = AutoModelForCausalLM.from_pretrained(small)
    with torch.no_grad():
        model.model.layers[0].mlp.down_proj.weight.mul_(3.0)
    for file in Path(small).glob("tokenizer*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    model.save_pretrained(tmp_path)
    failed = {one.what for one in compare("moved", str(tmp_path), "cpu", "float32", False, cpu) if not one.ok}
    assert failed >= {"logprob", "gradient", "adapter"}


def test_a_number_that_is_none_fails():
    assert not Comparison("model", "float32", "loss", float("nan"), 1.0).ok
    assert not Comparison("model", "float32", "loss", 2.0, 1.0).ok
    assert Comparison("model", "float32", "loss", 0.5, 1.0).ok


def test_the_whole_of_it_with_one_model(monkeypatch, capsys):
    """As `--device cpu --json` runs it, on the embedded model alone and with few tokens."""
    monkeypatch.setattr(check, "models", lambda folder, large: {"embedded": "embedded"})
    monkeypatch.setattr(check, "TIMED", {False: Size(2, 2, 8), True: Size(2, 2, 8)})
    monkeypatch.setattr(check, "TIMED_STEPS", 1)
    assert main(["--device", "cpu", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert {one["variant"] for one in said["timings"]} == {
        "float32", "float32, checkpointing", "bfloat16", "bfloat16, checkpointing",
    }  # fmt: skip
    for one in said["timings"]:
        assert set(one["shares"]) == set(PHASES)
        assert sum(one["shares"].values()) == pytest.approx(1)
        assert one["rollout_tokens_per_s"] > 0 < one["training_tokens_per_s"]
        assert one["planned_bytes"] > 0
    assert all(one["ok"] for one in said["comparisons"])


def test_a_comparison_that_fails_ends_with_1(monkeypatch, capsys):
    bad = Comparison("model", "float32", "loss", 2.0, 1.0)
    monkeypatch.setattr(check, "check", lambda device, large, log: (log(check.said(bad)), ([bad], []))[1])
    assert main(["--device", "cpu"]) == 1
    out = capsys.readouterr().out
    assert "FAIL model" in out
    assert "0 of 1 comparisons hold" in out
