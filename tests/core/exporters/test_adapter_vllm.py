"""The exported archive in plain vLLM, without anything of the lab."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from core.engines.vllm_process import environment
from core.exporters.adapter import adapter_zip
from core.models.catalog import EMBEDDED_PATH
from tests.core.train.runs import run
from tests.needs import need_vllm

SCRIPT = Path(__file__).with_name("plain_vllm.py")


def test_vllm_reads_the_archive_and_gives_pefts_log_probs(tmp_path: Path) -> None:
    need_vllm()
    run_dir = run(tmp_path / "run", method="nsr_pm1", steps=2, lora={"r": 4}, evaluate={"every": 0})
    with zipfile.ZipFile(io.BytesIO(adapter_zip(run_dir))) as archive:
        archive.extractall(tmp_path / "out")
    (adapter,) = (tmp_path / "out").iterdir()
    ids = AutoTokenizer.from_pretrained(EMBEDDED_PATH)("7+8-3+6=?")["input_ids"]
    command = [sys.executable, str(SCRIPT), str(EMBEDDED_PATH), str(adapter), json.dumps(ids)]
    done = subprocess.run(
        command, env=environment("cpu", None, 1, tmp_path), capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    base, adapted = json.loads(done.stdout.strip().splitlines()[-1])
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(EMBEDDED_PATH), adapter).eval()
    tokens = torch.tensor([ids + adapted["ids"]])
    with torch.no_grad():
        logp = model(tokens).logits[0].log_softmax(-1)[len(ids) - 1 : -1]
    expected = logp.gather(-1, tokens[0, len(ids) :, None])[:, 0]
    torch.testing.assert_close(torch.tensor(adapted["logprobs"]), expected, atol=1e-4, rtol=0)
    assert (torch.tensor(base["logprobs"][:1]) - expected[:1]).abs() > 1e-3, "the adapter does something"
