"""Configs as YAML text: reading a file, and `a.b=value` overrides."""

from __future__ import annotations

import copy
import json
import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from core.config_errors import ConfigError

NOT_A_MAPPING = "not a mapping of settings: write `steps: 100`, one setting a line"
PLURALS = {"methods": "method", "seeds": "seed"}
"""What an experiment says in place of a run's setting."""


def read_yaml(path: Path) -> dict[str, Any]:
    """A file's settings as plain data. Raises ConfigError with the line where it is not YAML."""
    try:
        data = _parsed(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such config file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or 'it is not text'})") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a number of 5000 digits is a ValueError
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "it cannot be parsed"
        raise ConfigError(f"{path}{where}: not valid YAML ({problem})") from error
    data = {} if data is None else data
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: {NOT_A_MAPPING}")
    return data


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # libyaml reads a config ten times as fast
    """Refuses a setting that is given twice, of which YAML would silently take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if isinstance(key, yaml.ScalarNode) and key.value in seen and key.value != "<<":
                raise yaml.constructor.ConstructorError(None, None, f"{key.value} is given twice", key.start_mark)
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else None)
        return super().construct_mapping(node, deep)


class _Values(_Loader):
    """Reads 1e-3 as a number, as people mean it; YAML 1.1 wants a point and a sign. What is in quotes stays text."""


_Values.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9]+)[eE][-+]?[0-9]+\Z"),
    list("-+.0123456789"),
)


def _parsed(text: str) -> Any:
    return yaml.load(text, Loader=_Loader)  # a safe loader


class _Dumper(yaml.SafeDumper):
    """Quotes a text with U+0085 in it, which YAML would read back as a space."""

    def represent_str(self, text: str) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:str", text, style='"' if "\x85" in text else None)


_Dumper.add_representer(str, _Dumper.represent_str)


def as_yaml(data: dict[str, Any]) -> str:
    """Settings as the text of a file that `read_yaml` reads back to the same."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


def in_a_line(value: Any) -> str:
    """The value as YAML in one line, for `a.b=value`: what cannot be seen, or is no YAML, by its number."""
    return "".join(map(_seen, json.dumps(value, ensure_ascii=False)))


def _seen(char: str) -> str:
    if unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"):
        return char
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"


def override(data: dict[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """Apply `a.b=value` strings to a nested mapping; returns a new one. Raises ConfigError."""
    data = copy.deepcopy(data)
    siblings = {**PLURALS, **{one: several for several, one in PLURALS.items()}}
    for item in overrides:
        key, equals, raw = item.partition("=")
        key = key.strip()
        if not equals or not key or not all(key.split(".")):
            raise ConfigError(f"--set {item}: write it as key=value, such as optimizer.lr=0.0005")
        try:
            value = yaml.load(raw, Loader=_Values)  # a safe loader
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise ConfigError(f"--set {item[:80]}: the value is not valid YAML") from error
        data.pop(siblings.get(key), None)
        *parents, last = key.split(".")
        place = data
        for parent in parents:
            inner = place.get(parent)
            if isinstance(inner, str) and parent == "method":
                inner = {"name": inner}
            if not isinstance(inner, dict | None):
                raise ConfigError(f"--set {item}: {parent} is {inner!r}, which has no settings in it")
            place[parent] = {} if inner is None else inner
            place = place[parent]
        place[last] = value
    return data


def numbers(value: Any) -> Any:
    """YAML 1.1 reads 1e-3 as text; people mean a number."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    if isinstance(value, list):
        return [numbers(item) for item in value]
    return {key: numbers(item) for key, item in value.items()} if isinstance(value, dict) else value
