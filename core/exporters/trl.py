"""A run as a TRL script: a GRPOTrainer that uses the lab's advantages, the prompts, the reward."""

from __future__ import annotations

import json
import pprint
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from core.config import RunConfig
from core.exporters.cluster import (
    LAB,
    copy_file,
    has_chat_template,
    lab_settings,
    messages,
    model_there,
    prompts_of,
    write_export,
    write_json,
)
from core.exporters.trl_settings import trl_settings
from core.exporters.twins import Fate, as_markdown, code, plain
from core.tasks.base import Prompt

SCRIPT = '''"""Train with TRL's GRPOTrainer on the lab's advantages: {launch}

README.md says what each setting was in the lab, and what has no twin here.
"""

from lab_trl import train

MODEL = {model}
THREADS = {threads}
LORA = {lora}
ARGUMENTS = {arguments}

if __name__ == "__main__":
    train(MODEL, LORA, ARGUMENTS, threads=THREADS)
'''
README = """# {title} in TRL

Written by Advantage Lab for TRL 1.16 with peft. Where both are installed:

```sh
{launch}
```

- `train.py` has the settings; `lab_trl.py` is a `GRPOTrainer` whose advantages come from the lab's rules, token by
  token. Tokens that a method drops leave the loss.
- `output/completions/` gets a file a step with each answer's group, reward, tokens and advantages. They open in the
  lab: `python -m core import output`.
- `core/` is the lab's rules and verifiers, copied; `lab.json` says which of them, `data/` has the prompts.

{fates}"""


def export_trl(config: RunConfig, out: Path) -> list[Fate]:
    """Write the folder `out`; returns what became of every setting. Raises ExportError, TaskError."""
    pool, held_out = prompts_of(config)
    arguments, fates = trl_settings(config)
    several = config.processes > 1
    launch = f"accelerate launch --num_processes {config.processes} train.py" if several else "python train.py"
    title = " ".join((config.name or config.build_method().label).split())

    def fill(folder: Path) -> None:
        lab = lab_settings(config, "trl")
        write_json(folder / LAB, lab)
        write_json(folder / "output" / "completions" / LAB, lab)
        write_prompts(config, pool, folder / "data" / "train.jsonl")
        write_prompts(config, held_out or pool[:1], folder / "data" / "held_out.jsonl")
        for name in ("lab_advantage.py", "lab_reward.py", "lab_trl.py"):
            copy_file(name, folder)
        script = SCRIPT.format(
            launch=launch,
            model=repr(model_there(config)[0]),
            threads=config.cpu_threads,
            lora=_literal(_lora(config)),
            arguments=_literal(arguments),
        )
        (folder / "train.py").write_text(script, encoding="utf-8")
        text = README.format(title=code(title), launch=launch, fates=as_markdown(fates, "TRL"))
        (folder / "README.md").write_text(text, encoding="utf-8", errors="backslashreplace")

    write_export(config, out, fill)
    return fates


def _lora(config: RunConfig) -> dict[str, Any]:
    lora = config.lora
    return {
        "r": lora.r,
        "lora_alpha": lora.alpha,
        "lora_dropout": lora.dropout,
        "target_modules": plain(lora.targets),
        "task_type": "CAUSAL_LM",
    }


def _literal(value: dict[str, Any]) -> str:
    """A dictionary of plain values as Python reads it back, an entry a line."""
    return "{\n" + "".join(f"    {key!r}: {pprint.pformat(item, compact=True)},\n" for key, item in value.items()) + "}"


def write_prompts(config: RunConfig, prompts: Sequence[Prompt], path: Path) -> None:
    """TRL's rows: the prompt, as messages for a chat model, with what the verifier reads beside it."""
    chat = has_chat_template(config)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        for prompt in prompts:
            asked = messages(config, prompt) if chat else prompt.text
            row = {"prompt": asked, "text": prompt.text, "answer": prompt.answer}
            file.write(json.dumps(row) + "\n")
