"""A config being put together: where it starts from and what was changed, all of it in the URL.

`?preset=NAME` or `?from=RUN` says where it starts; each `set=a.b=value` changes one setting, the value as YAML, just
like `--set` on the command line. Widgets are drawn from the draft and write their change back as one `set`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import streamlit as st
import yaml

from app import data, urls
from app.inert import inert_markdown
from core.config import ConfigError, ExperimentConfig, RunConfig, dump, override, parse, read_run, renamed
from core.config_yaml import in_a_line

FIRST = "grpo"
SAID = 300
"""Characters of an error that the address caused: it may repeat a long value."""
_DEFAULTS = json.loads(RunConfig().model_dump_json())


@dataclass(frozen=True)
class Draft:
    """`base` is what it starts from, complete; `data` the same with `changes` (`a.b=value`) applied."""

    base: dict[str, Any]
    data: dict[str, Any]
    changes: tuple[str, ...] = ()
    title: str = ""

    def value(self, path: str) -> Any:
        """The setting now, as plain data; the default where the draft does not say."""
        return _at(self.data, path, _at(_DEFAULTS, path, None))

    def original(self, path: str) -> Any:
        """The setting where the draft started from."""
        return _at(self.base, path, _at(_DEFAULTS, path, None))

    def write(self, path: str, value: Any) -> None:
        """Change a setting in the URL; back to where it started, it leaves the URL."""
        kept = [change for change in self.changes if change.partition("=")[0].strip() != path]
        start = Draft(self.base, override(self.base, kept), tuple(kept)).name if path == "name" else self.original(path)
        if value != start:
            kept.append(f"{path}={in_a_line(value)}")
        urls.set_params(set=kept)

    @property
    def name(self) -> str:
        """What the runs will be called; as far as the draft says it where it is not possible yet."""
        try:
            return self.experiment().name
        except ConfigError:
            return str(self.value("name") or "")

    def experiment(self) -> ExperimentConfig:
        """The checked config. Raises ConfigError, one sentence that names the field."""
        finished = dict(self.data)
        changed = {change.partition("=")[0].strip() for change in self.changes}
        if changed & {"methods", "model", "task.name"}:
            finished["look_for"] = ""  # it was written for other curves
        if "name" not in changed and finished.get("name"):
            finished = renamed(self.base, finished)
            if self.changes and finished["name"] == self.base["name"]:
                finished["name"] = f"{finished['name']}, changed"
        return parse(finished)


def read_draft() -> Draft:
    """The draft that the URL describes; what cannot be used in it gives a sentence on the page."""
    base, title = _start()
    changes = urls.list_param("set")
    try:
        return Draft(base, override(base, changes), tuple(changes), title)
    except ConfigError as error:
        why = inert_markdown(str(error)[:SAID])
        st.warning(f"The changes in the address cannot be used, so they are left out: {why}.")
        return Draft(base, base, (), title)


def _start() -> tuple[dict[str, Any], str]:
    run_id = urls.param("from")
    if run_id:
        info = data.run(run_id)
        try:
            if info is None:
                raise ConfigError("there is no such run in this folder")
            return of_run(read_run(info.path / "config.yaml")), f"the run {inert_markdown(info.name)}"
        except ConfigError as error:
            st.warning(f"The settings of “{inert_markdown(run_id[:80])}” cannot be used: {inert_markdown(error)}.")
    presets = {preset.id: preset for preset in data.presets()}
    first = FIRST if FIRST in presets else next(iter(presets), None)
    chosen = urls.choice_param("preset", list(presets), first)
    if chosen is None:
        return yaml.safe_load(dump(parse({"name": "Experiment"}))), "the defaults"
    return yaml.safe_load(dump(presets[chosen].config)), f"the preset {inert_markdown(presets[chosen].title)}"


def of_run(config: RunConfig) -> dict[str, Any]:
    """A run's settings as the start of a new experiment; what ties them to the run is left out."""
    settings = json.loads(config.model_dump_json(exclude={"experiment", "imported"}))
    return yaml.safe_load(dump(parse({**settings, "name": config.name or "Experiment"})))


def _at(place: Any, path: str, default: Any) -> Any:
    for part in path.split("."):
        if not isinstance(place, dict) or part not in place:
            return default
        place = place[part]
    return place
