"""A method in one line, for addresses and the command line: `a3po;base=dapo;also=adora_amplify;rho_positive=3`.

The recipe's name, then parts `key=value` between semicolons:
- `base`: another base rule under it; `also`: recipes whose weights multiply in, with commas between them;
- `mass_matched`, `dynamic_sampling`: 1 or 0;
- `loss.FIELD`: a changed field of the loss, such as `loss.clip_high=0.3`;
- anything else is a parameter, `rho_positive` or, where two rules share a name, `a3po.ratio`.

Values are numbers, words, or `none` where a parameter may be unused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from core.advantage import AdvantageError, Method, build

if TYPE_CHECKING:
    from core.config import RunConfig

LONGEST = 1000
"""Characters of a line that are read."""
LOSS = "loss."
_KEY = re.compile(r"[a-z0-9_]{1,60}(\.[a-z0-9_]{1,60})?")
_WORD = re.compile(r"[A-Za-z0-9_+-]{1,60}")
_WHOLE = re.compile(r"[+-]?[0-9]{1,300}")
_NUMBER = re.compile(r"[+-]?([0-9]{1,300}\.?[0-9]{0,300}|\.[0-9]{1,300})([eE][+-]?[0-9]{1,5})?")
_SWITCH = {"1": True, "true": True, "0": False, "false": False}

Value = float | int | str | None


@dataclass(frozen=True)
class Spec:
    """What `core.advantage.build` takes. Equal specs have equal texts but for the order of their parts."""

    name: str
    base: str | None = None
    also: tuple[str, ...] = ()
    params: Mapping[str, Value] = field(default_factory=dict)
    loss: Mapping[str, Value] = field(default_factory=dict)
    mass_matched: bool = False
    dynamic_sampling: bool | None = None  # None: as the base has it

    @classmethod
    def parse(cls, text: str) -> Spec:
        """The spec of a line. Raises AdvantageError, one sentence; whether such a method exists `build` says."""
        if len(text) > LONGEST:
            raise AdvantageError(f"a method's line may have {LONGEST} characters, this one has {len(text)}")
        name, *parts = (part.strip() for part in text.split(";"))
        if not 0 < len(name) <= 60 or "=" in name:
            raise AdvantageError(f"a method's line begins with its name, as a3po;base=dapo does, not {name[:60]!r}")
        found: dict[str, Any] = {"also": (), "params": {}, "loss": {}}
        seen = set()
        for part in filter(None, parts):
            key, equals, value = (side.strip() for side in part.partition("="))
            if not equals or not _KEY.fullmatch(key):
                raise AdvantageError(f"{part[:60]!r} is no setting: write key=value, such as rho_positive=3")
            if key in seen:
                raise AdvantageError(f"{key} stands twice in the method's line")
            seen.add(key)
            if key == "also":
                found[key] = tuple(_word(key, one.strip()) for one in value.split(","))
            elif key == "base":
                found[key] = _word(key, value)
            elif key in ("mass_matched", "dynamic_sampling"):
                found[key] = _switch(key, value)
            elif key.startswith(LOSS):
                found["loss"][key.removeprefix(LOSS)] = parse_value(key, value)
            else:
                found["params"][key] = parse_value(key, value)
        return cls(name=name, **found)

    @classmethod
    def of_run(cls, config: RunConfig) -> Spec:
        """The method that a run trains with."""
        method = config.method
        return cls(
            name=method.name,
            base=method.base,
            also=tuple(method.also),
            params=dict(method.set),
            loss=config.loss.model_dump(exclude_none=True),
            mass_matched=method.mass_matched,
            dynamic_sampling=config.dynamic_sampling.enabled,
        )

    @property
    def text(self) -> str:
        """The line that `parse` reads back."""
        parts = [self.name]
        parts += [f"base={self.base}"] if self.base else []
        parts += [f"also={','.join(self.also)}"] if self.also else []
        parts += [f"{key}={_text(value)}" for key, value in self.params.items()]
        parts += ["mass_matched=1"] if self.mass_matched else []
        parts += [] if self.dynamic_sampling is None else [f"dynamic_sampling={int(self.dynamic_sampling)}"]
        parts += [f"{LOSS}{key}={_text(value)}" for key, value in self.loss.items()]
        return ";".join(parts)

    def build(self) -> Method:
        """The composition. Raises AdvantageError where it cannot be."""
        return build(
            self.name,
            base=self.base,
            also=self.also,
            params=self.params,
            loss=self.loss,
            dynamic_sampling=self.dynamic_sampling,
            mass_matched=self.mass_matched,
        )


def parse_value(key: str, text: str) -> Value:
    """A number, a word, or None for `none`. Raises AdvantageError."""
    if _WHOLE.fullmatch(text):
        return int(text)
    if _NUMBER.fullmatch(text):
        return float(text)
    return None if text == "none" else _word(key, text)


def _word(key: str, text: str) -> str:
    if not _WORD.fullmatch(text):
        raise AdvantageError(f"{key} must be a number or a word, but is {text[:60]!r}")
    return text


def _switch(key: str, text: str) -> bool:
    if text not in _SWITCH:
        raise AdvantageError(f"{key} must be 1 or 0, but is {text[:60]!r}")
    return _SWITCH[text]


def _text(value: Value) -> str:
    return "none" if value is None else str(value)
