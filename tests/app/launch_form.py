"""What tests read on the Launch page: its widgets, its command, and the experiment that the command would run."""

from __future__ import annotations

import shlex

from core import config as core_config
from core.config import load


def widget(kind, key):
    return next(one for one in kind if one.key == key)


def command(at) -> list[str]:
    return shlex.split(at.code[0].value)


def launched(at) -> core_config.ExperimentConfig:
    """What the shown command would run, read the way the command line reads it."""
    words = command(at)
    assert words[:4] == ["python", "-m", "core", "run"]
    name = words[words.index("--name") + 1] if "--name" in words else None
    return load(words[4], [words[i + 1] for i, word in enumerate(words) if word == "--set"], name)


def parameters(at) -> set[str]:
    """The parameters of the first method that have a widget, as "rule.parameter"."""
    start = "draft:methods.0."
    keys = {
        one.key.removeprefix(start) for one in [*at.number_input, *at.selectbox] if (one.key or "").startswith(start)
    }
    return keys - {"base"}


def widget_labels(kind) -> str:
    return "\n".join(one.label for one in kind)
