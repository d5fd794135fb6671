"""Runs grouped into families: the same method and settings, different seeds. And what differs between families."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from app.inert import visible
from app.palette import run_styles
from core.config import ConfigError, RunConfig, read_run
from core.runs import RunInfo

SAME_RUN = frozenset({"seed", "name", "experiment", "imported", "threads", "device", "checkpoint", "record"})
"""Settings that do not make another method: families ignore them."""


@dataclass(frozen=True)
class Member:
    """A run of a family; `config` is empty where the run's config cannot be read."""

    info: RunInfo
    config: Mapping[str, Any]

    @property
    def id(self) -> str:
        return self.info.id


@dataclass(frozen=True)
class Family:
    """Runs that differ in their seed only. `label` is plain text, distinct among the families shown together."""

    key: str
    method: str
    label: str
    members: tuple[Member, ...]
    colour: str
    dash: str

    @property
    def n(self) -> int:
        return len(self.members)

    @property
    def runs(self) -> list[str]:
        return [member.id for member in self.members]


def families(infos: Sequence[RunInfo], dark: bool = False) -> list[Family]:
    """The families of these runs, in the order of their first runs; seeds ascending within one."""
    grouped: dict[str, list[Member]] = {}
    labels: dict[str, str] = {}
    for info in infos:
        config = _config(info)
        data = config.model_dump(mode="json") if config else {}
        key = json.dumps({k: v for k, v in data.items() if k not in SAME_RUN}, sort_keys=True) if data else info.id
        grouped.setdefault(key, []).append(Member(info, data))
        labels[key] = visible(info.label)
    distinct = _distinct(labels, {key: members[0].config for key, members in grouped.items()})
    methods = [members[0].info.method for members in grouped.values()]
    return [
        Family(key, method, distinct[key], tuple(sorted(members, key=lambda m: (m.info.seed, m.id))), colour, dash)
        for (key, members), method, (colour, dash) in zip(
            grouped.items(), methods, run_styles(methods, dark), strict=True
        )
    ]


def differences(shown: Sequence[Family]) -> pd.DataFrame:
    """Settings that are not the same in all families: a row a setting, a column a family, "–" where there is none.

    Seeds and names are left out; a family whose config cannot be read has an empty column.
    """
    flat = {family.label: _flat(_settings(family.members[0].config)) for family in shown}
    keys = sorted({key for values in flat.values() for key in values})
    rows = []
    for key in keys:
        texts = [_text(values.get(key)) if key in values else "–" for values in flat.values()]
        if len(set(texts)) > 1:
            rows.append([key, *texts])
    return pd.DataFrame(rows, columns=["setting", *flat])


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in SAME_RUN}


def _distinct(labels: Mapping[str, str], configs: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Labels by key, made distinct by the settings in which namesakes differ, at most three of them; then by number."""
    out = dict(labels)
    for label in set(labels.values()):
        same = [key for key in labels if labels[key] == label]
        if len(same) < 2:
            continue
        flat = {key: _flat(_settings(configs[key])) for key in same}
        every = sorted({name for values in flat.values() for name in values})
        differing = [name for name in every if len({_text(flat[key].get(name)) for key in same}) > 1][:3]
        for number, key in enumerate(same, 1):
            words = [f"{name.split('.')[-1]} {_text(flat[key].get(name))}".removeprefix("name ") for name in differing]
            out[key] = f"{label} ({', '.join(words) or number})"
        if len({out[key] for key in same}) < len(same):
            for number, key in enumerate(same, 1):
                out[key] = f"{label} ({number})"
    return out


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """A nested mapping with dotted keys; lists stay values."""
    if isinstance(value, Mapping):
        out: dict[str, Any] = {}
        for key, inner in value.items():
            out |= _flat(inner, f"{prefix}.{key}" if prefix else str(key))
        return out
    return {prefix: value}


def _text(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(_text(item) for item in value) or "–"
    return visible(f"{value:g}" if isinstance(value, float) else value)


def _config(info: RunInfo) -> RunConfig | None:
    try:
        return read_run(info.path / "config.yaml")
    except ConfigError:
        return None
