"""A run as what a verl user runs on Ray: a launch script, the lab's advantages, the prompts, the reward."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from core.config import RunConfig
from core.exporters.cluster import (
    LAB,
    copy_file,
    lab_settings,
    messages,
    prompts_of,
    write_export,
    write_json,
)
from core.exporters.twins import Fate, as_markdown, code
from core.exporters.verl_settings import hydra, verl_settings
from core.tasks.base import Prompt

RUN = "run.sh"
HEAD = """#!/usr/bin/env bash
# {title}, as Advantage Lab's run of it in verl. README.md says what each line was, and what has no twin here.
# More settings can follow: bash run.sh trainer.nnodes=2 trainer.n_gpus_per_node=8
set -euo pipefail
cd "$(dirname "${{BASH_SOURCE[0]}}")"
export PYTHONPATH="$PWD${{PYTHONPATH:+:$PYTHONPATH}}"

"""
README = """# {title} in verl

Written by Advantage Lab for verl 0.9. Where verl and vLLM are installed, on a machine with a GPU or the head of a Ray
cluster:

```sh
bash run.sh                                             # further settings of verl may follow
ray job submit --working-dir . -- bash run.sh           # the same on a cluster that runs already
```

On several machines this folder must be the same path everywhere, or go along with `--working-dir`.

- `main.py` starts verl's own trainer with `lab_verl.py`, which registers the advantage estimator `lab` and the trainer
  mode `lab`: verl's synchronous trainer, with log-probs, entropies and the step handed to the lab's rules. Tokens that
  a method drops leave the response mask.
- `rollouts/` gets a file a step with each answer's group, reward, tokens and advantages. They open in the lab:
  `python -m core import rollouts`.
- `core/` is the lab's rules and verifiers, copied; `lab.json` says which of them, `data/` has the prompts.

{fates}"""


def export_verl(config: RunConfig, out: Path) -> list[Fate]:
    """Write the folder `out`; returns what became of every setting. Raises ExportError, TaskError."""
    pool, held_out = prompts_of(config)
    longest = max(len(prompt.text) for prompt in [*pool, *held_out])
    keys, fates = verl_settings(config, len(pool), longest)
    title = config.name or config.build_method().label

    def fill(folder: Path) -> None:
        lab = lab_settings(config, "verl")
        write_json(folder / LAB, lab)
        write_json(folder / "rollouts" / LAB, lab)
        (folder / "data").mkdir()
        write_prompts(config, pool, "train", folder / "data" / "train.parquet")
        write_prompts(config, held_out or pool[:1], "held_out", folder / "data" / "held_out.parquet")
        for name in ("lab_advantage.py", "lab_reward.py", "lab_verl.py", "main.py"):
            copy_file(name, folder)
        script = folder / RUN
        script.write_text(run_script(title, keys), encoding="utf-8")
        script.chmod(0o755)
        text = README.format(title=code(title), fates=as_markdown(fates, "verl"))
        (folder / "README.md").write_text(text, encoding="utf-8", errors="backslashreplace")

    write_export(config, out, fill)
    return fates


def run_script(title: str, keys: dict[str, Any]) -> str:
    """The launch script: each of verl's keys on a line of its own, quoted for the shell."""
    lines = [shlex.quote(f"{key}={hydra(value)}") for key, value in keys.items()]
    return HEAD.format(title=_line(title)) + " \\\n  ".join(["python3 main.py", *lines, '"$@"']) + "\n"


def write_prompts(config: RunConfig, prompts: Sequence[Prompt], split: str, path: Path) -> None:
    """verl's rows: the prompt as messages, the answer as the ground truth, the text for the verifier."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [
        {
            "data_source": config.task.name,
            "prompt": messages(config, prompt),
            "ability": "rlvr",
            "reward_model": {"style": "rule", "ground_truth": prompt.answer},
            "extra_info": {"split": split, "index": index, "prompt": prompt.text, "prompt_id": prompt.id},
        }
        for index, prompt in enumerate(prompts)
    ]
    pq.write_table(pa.Table.from_pylist(rows), path)


def _line(text: str) -> str:
    """A name of a person's own on one line of a comment."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
