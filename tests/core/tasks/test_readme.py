"""README's "Bring your own" holds: its config is one, on a file like the one it names, and its function is a reward."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml

from core.config import parse
from core.tasks import Prompt, get_task

README = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
SECTION = README.partition("## Bring your own\n")[2].partition("\n## ")[0]


def test_its_config_trains_on_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [{"question": f"{n}+1=?", "result": n + 1} for n in range(50)]
    Path("sums.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (text,) = re.findall(r"```yaml\n(.*?)```", SECTION, re.DOTALL)
    (run,) = parse(yaml.safe_load(text)).expand(None)
    task = get_task(run.task)
    (prompt,) = task.train_pool(1, 0)
    assert task.verify(prompt, rf"\boxed{{{prompt.answer}}}").reward == 1.2


def test_its_function_is_a_reward():
    (code,) = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)
    made: dict = {}
    exec(code, made)
    prompt = Prompt("1+1=?", "2")
    assert made["score"](prompt=prompt.text, answer=prompt.answer, response="2!") == {"correct": 1.0, "calm": 0.0}
