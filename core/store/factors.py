"""schema.json: which factor columns a run's tables have, and the composition that trained it, every number written out.

A factor with one value a rollout or a group is the column `f_<id>` of `rollouts`, one with a value a token that of
`tokens`; a token's advantage is its base advantage times all of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.advantage import AdvantageError, Method, Trace, factor_columns
from core.advantage.stored import method_from_json, method_to_json
from core.store.errors import StoreError
from core.store.files import replace_text

if TYPE_CHECKING:
    from core.config import RunConfig

SCHEMA = "schema.json"
FORMAT = 1
"""The version of the store's layout."""


@dataclass(frozen=True)
class Factors:
    """The factor columns of a run, by the table that has them."""

    rollout: tuple[str, ...] = ()
    token: tuple[str, ...] = ()

    @classmethod
    def of(cls, traces: Iterable[Trace]) -> Factors:
        """The factors that the traces name, in order."""
        factors = [factor for trace in traces for factor in trace.factors]
        return cls(
            tuple(dict.fromkeys(factor.id for factor in factors if factor.per != "token")),
            tuple(dict.fromkeys(factor.id for factor in factors if factor.per == "token")),
        )


def write_schema(run_dir: str | Path, config: RunConfig, also: tuple[str, ...] = ()) -> Factors:
    """Write the schema.json of a run that has this config: its method says which factors it will have.

    `also` names factors of tokens that come with an imported run's rollouts.
    """
    method = trained_method(run_dir, config)
    columns = factor_columns(method)
    factors = Factors(
        tuple(name for name, per in columns.items() if per != "token"),
        (*(name for name, per in columns.items() if per == "token"), *also),
    )
    about = {"method": method.name, "label": method.label, "settings": settings_of(config)}
    write_factors(run_dir, factors, **about, composition=method_to_json(method))
    return factors


def trained_method(run_dir: str | Path, config: RunConfig) -> Method:
    """The composition that this run trains with: the one that its schema.json wrote out, while the config's settings of
    it are the same, else what they stand for now. So a recipe may change, and a run's numbers stay.

    Raises StoreError where the stored one cannot be.
    """
    path = Path(run_dir) / SCHEMA
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        stored = data["composition"] if data["settings"] == settings_of(config) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        stored = None
    if stored is None:
        return config.build_method()
    try:
        return method_from_json(stored)
    except AdvantageError as error:
        raise StoreError(f"{path}: {error}") from error


def settings_of(config: RunConfig) -> dict[str, Any]:
    """What a config says of its composition."""
    own = {"dynamic_sampling": config.dynamic_sampling.enabled}
    return {"method": config.method.model_dump(mode="json"), "loss": config.loss.model_dump(mode="json"), **own}


def write_factors(run_dir: str | Path, factors: Factors, **about: Any) -> None:
    """Write schema.json, with whatever else is known of the method."""
    columns = {"rollout_factors": list(factors.rollout), "token_factors": list(factors.token)}
    replace_text(Path(run_dir) / SCHEMA, json.dumps({"format": FORMAT, **about, **columns}, indent=2) + "\n")


def read_schema(run_dir: str | Path) -> Factors | None:
    """The factor columns of a run; None without a schema.json. Raises StoreError where the file is something else."""
    path = Path(run_dir) / SCHEMA
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        found, rollout, token = data["format"], data["rollout_factors"], data["token_factors"]
        if found == FORMAT and not all(re.fullmatch("[a-z0-9_]{1,60}", factor) for factor in [*rollout, *token]):
            raise StoreError(f"{path}: a factor's id is made of a-z, 0-9 and _")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise StoreError(f"{path}: not a schema of this store") from error
    if found != FORMAT:
        raise StoreError(f"{path}: its format is {found!r}, this version reads {FORMAT}")
    return Factors(tuple(rollout), tuple(token))
