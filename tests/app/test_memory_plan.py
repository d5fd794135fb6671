"""The memory plan on the Launch page, with an nvidia-smi on the PATH that answers as a driver does."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import pytest

from core.runs import hardware, memory
from core.runs.hardware import Memory
from tests.app.conftest import texts
from tests.app.test_launch import widget


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """`card(total, free)` in MiB: the lab takes this machine for one with such a GPU."""
    for place in ("core.runs.locks.has_cuda", "core.runs.create.has_cuda"):
        monkeypatch.setattr(place, lambda: True)
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def install(total: int, free: int, name: str = "NVIDIA T4") -> None:
        (folder / "nvidia-smi").write_text(f"#!/bin/sh\necho '0, GPU-1, {name}, {total}, {free}'\n")
        (folder / "nvidia-smi").chmod(0o755)
        hardware._ask.cache_clear()

    yield install
    hardware._ask.cache_clear()


@pytest.fixture
def medium(tmp_path: Path) -> Path:
    """The files of a Llama of 126 million parameters; the weights are a hole in a file."""
    layers, hidden, vocab = 10, 1024, 512
    shapes = {"model.embed_tokens.weight": [vocab, hidden]}
    for layer in range(layers):
        for name, shape in (("q_proj", [1, 1]), ("k_proj", [1, 1]), ("v_proj", [1, 1]), ("o_proj", [1, 1])):
            shapes[f"model.layers.{layer}.self_attn.{name}.weight"] = [side * hidden for side in shape]
        shapes[f"model.layers.{layer}.mlp.up_proj.weight"] = [4 * hidden, hidden]
        shapes[f"model.layers.{layer}.mlp.down_proj.weight"] = [hidden, 4 * hidden]
    header, end = {}, 0
    for name, (rows, columns) in shapes.items():
        start, end = end, end + 4 * rows * columns
        header[name] = {"dtype": "F32", "shape": [rows, columns], "data_offsets": [start, end]}
    folder = tmp_path / "medium"
    folder.mkdir()
    raw = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(raw)) + raw)
        file.truncate(8 + len(raw) + end)
    sizes = {"num_hidden_layers": layers, "hidden_size": hidden, "vocab_size": vocab, "num_attention_heads": 16}
    (folder / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"], **sizes}))
    (folder / "tokenizer.json").write_text("{}")
    return folder


def plan_table(at) -> dict[str, tuple[str, str]]:
    """part -> (sampling, training), as the page writes it."""
    text = next(markdown.value for markdown in at.markdown if markdown.value.startswith("| | sampling | training |"))
    rows = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in text.splitlines()[2:]]
    return {name: (sampling, training) for name, sampling, training in rows}


def test_the_embedded_model_on_a_cpu_needs_no_plan(no_runs, open_page):
    at = open_page("launch")
    assert not at.exception
    assert "Memory" not in texts(at)


def test_on_a_gpu_the_plan_stands_against_the_card(no_runs, open_page, card):
    card(15360, 15000)
    at = open_page("launch")
    assert not at.exception
    assert not at.error
    assert "of the 15.0\u00a0GB that NVIDIA T4 has" in texts(at)
    rows = plan_table(at)
    assert rows["CUDA itself"] == ("700\u00a0MB", "700\u00a0MB")
    assert rows["key-value cache"][1] == rows["activations"][0] == ""
    assert all(rows["logits"])
    assert any(f"Memory: up to {size}" in texts(at) for size in rows["together"])
    assert not widget(at.button, "start").disabled


def test_a_card_that_others_use_is_said(no_runs, open_page, card):
    card(15360, 100)
    at = open_page("launch")
    assert "Only 100\u00a0MB are free right now" in at.warning[0].value
    assert not widget(at.button, "start").disabled


def test_a_run_that_cannot_fit_is_refused_and_its_plan_shown(no_runs, open_page, card, medium):
    card(4096, 4000, "<b>Odd</b> card")
    asked = [f"model={medium}", "prompts_per_step=64", "group_size=16", "optimizer.lr=0.0001", "precision=bfloat16"]
    at = open_page("launch", set=asked)
    assert not at.exception
    assert len(at.error) == 1
    said = at.error[0].value.replace("\\", "")
    assert said.startswith("memory: the run needs about ")
    assert "has 4.0 GB: set gradient_checkpointing to true, or batch_tokens to 2048" in said
    assert plan_table(at)["activations"][1].replace("\u00a0", " ") in said
    assert "<b>" not in texts(at)
    assert widget(at.button, "start").disabled
    at = open_page("launch", set=[*asked, "gradient_checkpointing=true"])
    assert not at.error
    assert not widget(at.button, "start").disabled


def test_a_larger_model_on_a_cpu_is_planned_in_the_machines_memory(no_runs, open_page, medium, monkeypatch):
    asked = [f"model={medium}", "device=cpu", "optimizer.lr=0.0001"]
    at = open_page("launch", set=asked)
    assert not at.exception
    assert plan_table(at)["model"][0] == "482\u00a0MB"
    assert "that this machine has" in texts(at)
    monkeypatch.setattr(memory, "host_memory", lambda: Memory("this machine", 2**30, 2**29))
    at = open_page("launch", set=asked)
    assert "but this machine has 1.0 GB" in at.error[0].value.replace("\\", "")


def test_a_card_that_does_not_tell_is_no_obstacle(no_runs, open_page, card):
    card(0, 0)
    at = open_page("launch")
    assert not at.exception
    assert "nothing is compared" in texts(at)
    assert not widget(at.button, "start").disabled
