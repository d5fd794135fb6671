"""One sentence, naming the field, out of what pydantic says about a config."""

from __future__ import annotations

import typing
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError


class ConfigError(ValueError):
    """A config that cannot run; the message is one sentence for the person who wrote it."""


_WORDS = {
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "string_type": "must be text",
    "tuple_type": "must be a list",
    "dict_type": "must be a mapping of settings, such as {{rho: 2}}",
    "model_type": "must be a mapping of its settings",
    "model_attributes_type": "must be a mapping of settings",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "literal_error": "must be {expected}",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
    "too_short": "must have {min_length} entries or more",
    "too_long": "must have {max_length} entries or fewer",
    "missing": "is missing",
}
"""What would be right, by pydantic's type of error; the braces are its context."""


def sentence(error: ValidationError, model: type[BaseModel]) -> str:
    """The first problem. A typo in a setting's name comes first: it explains the rest."""
    problems = error.errors()
    first = next((problem for problem in problems if problem["type"] == "extra_forbidden"), problems[0])
    field, names = _place(first["loc"], model)
    if first["type"] == "extra_forbidden":
        near = get_close_matches(field.rpartition(".")[2], names, n=1)
        return f"{field}: no such setting" + (f"; did you mean {near[0]}?" if near else "")
    if first["type"] == "value_error":
        message = first["msg"].removeprefix("Value error, ")
        return f"{field}: {message}" if field else message
    words = _WORDS.get(first["type"], "").format(**first.get("ctx", {}))
    words = words or first["msg"][0].lower() + first["msg"][1:]
    return f"{field}: {words}" + ("" if first["type"] == "missing" else f", but is {_short(first['input'])}")


def _place(location: tuple[Any, ...], model: type[BaseModel]) -> tuple[str, list[str]]:
    """The field's dotted name, without pydantic's union branches, and the settings that exist beside it."""
    parts: list[str] = []
    names = _names(model)
    here: Any = model
    for part in location:
        if isinstance(part, int):
            parts.append(str(part))
        elif hasattr(here, "model_fields"):
            parts.append(str(part))
            names = _names(here)
            here = _model_in(here.model_fields[part].annotation) if part in here.model_fields else None
    return ".".join(parts), names


def _names(model: type[BaseModel]) -> list[str]:
    several = ["methods", "seeds", "look_for"] if "prompts_per_step" in model.model_fields else []
    return [*model.model_fields, *several]


def _model_in(annotation: Any) -> Any:
    """The settings that an annotation holds: `Model` itself, or in `tuple[Model, ...]`; else None."""
    held = (annotation, *typing.get_args(annotation))
    return next((inner for inner in held if hasattr(inner, "model_fields")), None)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
