"""Runs grouped into families: the same method and settings, different seeds. And which of them numbers are about."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.inert import visible
from app.palette import run_styles
from core.config import ConfigError, RunConfig, parse_run
from core.runs import RunInfo
from core.runs.folders import raw_config

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


@dataclass(frozen=True, eq=False)
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


@dataclass(frozen=True)
class Judged:
    """The runs that numbers are about, by id, and those that are drawn but left out, each with the reason."""

    runs: tuple[str, ...]
    left_out: tuple[tuple[Member, str], ...] = ()


def judged(shown: Sequence[Family]) -> Judged:
    """Finished runs, once two families (or the only one) have some; until then all of them, as far as they have come.

    So a run that has just begun, or that failed early, does not cut all others to its few steps. Of runs with the same
    settings and the same seed only one counts: another one repeats it, and is no further seed.
    """
    finished = [family for family in shown if any(_finished(member) for member in family.members)]
    whole = len(finished) >= min(2, len(shown))
    runs, left_out = [], []
    for family in shown:
        seeds: set[int] = set()
        for member in sorted(family.members, key=lambda member: (member.info.seed, not _finished(member))):
            info = member.info
            if whole and not _finished(member):
                doing = "trains" if info.live else info.state
                left_out.append((member, f"{doing}, step {info.step} of {info.total}"))
            elif info.seed in seeds:
                left_out.append((member, f"a repeat of seed {info.seed}"))
            else:
                seeds.add(info.seed)
                runs.append(member.id)
    return Judged(tuple(runs), tuple(left_out))


def _finished(member: Member) -> bool:
    return member.info.state == "finished"


def own_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that make a family."""
    return {key: value for key, value in config.items() if key not in SAME_RUN}


def _distinct(labels: Mapping[str, str], configs: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Labels by key, made distinct by the settings in which namesakes differ, at most three of them; then by number."""
    out = dict(labels)
    for label in set(labels.values()):
        same = [key for key in labels if labels[key] == label]
        if len(same) < 2:
            continue
        plain = {key: flat(own_settings(configs[key])) for key in same}
        every = sorted({name for values in plain.values() for name in values})
        differing = [name for name in every if len({text_of(plain[key].get(name)) for key in same}) > 1][:3]
        for number, key in enumerate(same, 1):
            words = [
                f"{name.split('.')[-1]} {text_of(plain[key].get(name))}".removeprefix("name ") for name in differing
            ]
            out[key] = f"{label} ({', '.join(words) or number})"
        if len({out[key] for key in same}) < len(same):
            for number, key in enumerate(same, 1):
                out[key] = f"{label} ({number})"
    return out


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """A nested mapping with dotted keys; lists stay values."""
    if isinstance(value, Mapping):
        out: dict[str, Any] = {}
        for key, inner in value.items():
            out |= flat(inner, f"{prefix}.{key}" if prefix else str(key))
        return out
    return {prefix: value}


def text_of(value: Any) -> str:
    """A setting's value as plain text."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(text_of(item) for item in value) or "–"
    return visible(f"{value:g}" if isinstance(value, float) else value)


def _config(info: RunInfo) -> RunConfig | None:
    raw = raw_config(info.path)
    try:
        return parse_run(raw) if raw else None
    except ConfigError:
        return None
