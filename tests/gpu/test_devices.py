"""Whole runs on a device that is not the CPU, as far as that can be had without one: see `pretend.py`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.core.train.runs import Reporter, run, table

ROOT = Path(__file__).parents[2]
RUNS = {
    "packed, AdamW": {},
    "padded, GSPO, SGD": {
        "gradient_checkpointing": True, "lora": {"dropout": 0.1}, "loss": {"objective": "gspo"},
        "optimizer": {"name": "sgd", "lr": 0.5},
    },
    "bfloat16, minibatches, KL, SGD": {
        "precision": "bfloat16", "updates": {"minibatches": 2}, "loss": {"kl": 0.01}, "evaluate": {"every": 0},
        "optimizer": {"name": "sgd", "lr": 0.1}, "sampling": {"max_new_tokens": 12},
    },
}  # fmt: skip


def spawn(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("name", RUNS)
def test_a_run_on_another_device_is_the_cpus(tmp_path, name):
    """Stopped, resumed, evaluated and recorded there: nothing mixes devices, and the numbers are the CPU's."""
    settings = RUNS[name]
    done = spawn("-m", "tests.gpu.on_pretend", str(tmp_path), json.dumps(settings))
    assert done.returncode == 0, done.stderr[-3000:]
    here = run(tmp_path / "here", Reporter(), **settings)
    there = tmp_path / "run"
    if settings.get("precision") == "bfloat16":  # after a step of roundings other tokens are drawn
        first = [table(place, 0, "tokens") for place in (here, there)]
        assert first[0].column("token_id") == first[1].column("token_id")
        after = [np.array(tokens.column("after_logprob")) for tokens in first]
        assert np.abs(after[0] - after[1]).mean() < 0.05
        return
    for step in range(3):
        tokens = [table(place, step, "tokens").column("token_id") for place in (here, there)]
        assert tokens[0] == tokens[1]
    adapters = [load_file(place / "adapter" / "adapter_model.safetensors") for place in (here, there)]
    flat = [torch.cat([tensor.flatten() for _, tensor in sorted(adapter.items())]) for adapter in adapters]
    assert (flat[0] - flat[1]).norm() < 1e-3 * flat[0].norm()


def test_the_device_finds_what_would_break_on_a_gpu(tmp_path):
    """The three mistakes it is there for: another device's tensor, its numbers without a move, a shared copy."""
    code = """
import torch
from tests.gpu import pretend
with pretend.machine():
    there, here = torch.arange(3.0, device=pretend.NAME), torch.arange(3.0)
    assert there.device.type == "pretend" and (there + 1).sum().item() == 6.0
    for mistake in (lambda: there + here, lambda: here[there > 1], lambda: torch.cat([here, there]), there.numpy):
        try:
            mistake()
        except RuntimeError:
            continue
        raise SystemExit(f"nobody noticed {mistake}")
    moved = there.cpu()
    there.add_(1)
    assert moved.tolist() == [0.0, 1.0, 2.0] and there.cpu().tolist() == [1.0, 2.0, 3.0]
"""
    done = spawn("-c", code)
    assert done.returncode == 0, done.stderr[-2000:]
