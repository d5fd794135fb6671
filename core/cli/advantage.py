"""`advantage`: methods on a batch from a file, without any run."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from core.cli.advantage_text import comparison, ledger, table
from core.cli.batch_file import read_json
from core.cli.common import AsJson
from core.runs import RunError

if TYPE_CHECKING:
    from core.advantage import Batch, Line
    from core.counterfactual import Answer, Spec

Several = list[str] | None


def register(app: typer.Typer) -> None:
    app.command()(advantage)


def advantage(
    batch: Annotated[Path, typer.Argument(metavar="BATCH.json", help="group, reward, length, truncated, max_length …")],
    method: Annotated[
        list[str],
        typer.Option(metavar="NAME", help="A recipe, or a line such as 'a3po;base=dapo;ratio=0.1'. Several: compared."),
    ],
    settings: Annotated[
        Several, typer.Option("--set", metavar="KEY=VALUE", help="A parameter of the method: rho_positive=3.")
    ] = None,
    base: Annotated[str | None, typer.Option(metavar="NAME", help="Another base rule under it, such as dapo.")] = None,
    also: Annotated[Several, typer.Option(metavar="NAME", help="Another recipe whose weights multiply in too.")] = None,
    loss: Annotated[
        Several, typer.Option(metavar="KEY=VALUE", help="A field of the loss: aggregation=token_mean.")
    ] = None,
    mass_matched: Annotated[
        bool, typer.Option("--mass-matched", help="Rescale the batch to the base rule's advantage mass.")
    ] = False,
    threshold: Annotated[float, typer.Option(metavar="X", help="A rollout is correct from this reward on.")] = 0.5,
    step: Annotated[
        int | None, typer.Option(metavar="N", help="The rollout step of schedules; else the file's.")
    ] = None,
    token: Annotated[
        str | None,
        typer.Option("--explain", metavar="ROLLOUT:TOKEN", help="Why one token has its advantage; from 0:0."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compute a method on a batch from a file: every advantage, and the factors that made it. Several are compared."""
    from core.advantage import batch_from_json, explain, refuse_lone_rollouts
    from core.counterfactual import Spec, answer

    specs = [Spec.parse(line) for line in method]
    if settings or base or also or loss or mass_matched:
        if len(specs) > 1:
            raise RunError("with several methods, write what each changes in its own line: --method 'a3po;ratio=0.1'")
        specs = [_changed(specs[0], settings or (), base, also or (), loss or (), mass_matched)]
    methods = [spec.build() for spec in specs]
    data = read_json(batch)
    if step is not None and isinstance(data, dict):
        data = {**data, "step": step}
    read = batch_from_json(data, threshold)
    place = None if token is None else _place(token, read)
    for built in methods:
        refuse_lone_rollouts(built, read)
    answers = [answer(built, read) for built in methods]
    ledgers = [explain(one.trace, read, *place) if place else [] for one in answers]
    if as_json:
        text = json.dumps(_as_json(answers, ledgers, read), allow_nan=False)
    elif place:
        told = [ledger(one, lines, read, *place) for one, lines in zip(answers, ledgers, strict=True)]
        text = "\n\n".join("\n".join(lines) for lines in told)
    else:
        text = "\n".join(comparison(answers, read) if len(answers) > 1 else table(answers[0].trace, read))
    typer.echo(text)


def _changed(
    spec: Spec, params: Iterable[str], base: str | None, also: Iterable[str], loss: Iterable[str], mass_matched: bool
) -> Spec:
    return replace(
        spec,
        base=base or spec.base,
        also=(*spec.also, *also),
        params={**spec.params, **_pairs("--set", params)},
        loss={**spec.loss, **_pairs("--loss", loss)},
        mass_matched=spec.mass_matched or mass_matched,
    )


def _pairs(option: str, items: Iterable[str]) -> dict[str, Any]:
    from core.counterfactual.spec import parse_value

    found = {}
    for item in items:
        key, equals, value = (side.strip() for side in item.partition("="))
        if not equals or not key:
            raise RunError(f"{option} {item[:60]}: write it as key=value, such as {_LIKE[option]}")
        if key in found:
            raise RunError(f"{option} {key} is given twice: give it once")
        found[key] = parse_value(key, value)
    return found


_LIKE = {"--set": "rho_positive=3", "--loss": "clip_high=0.3"}


def _place(text: str, batch: Batch) -> tuple[int, int]:
    """Rollout and token of `3:7`, as they stand in the file, from 0."""
    rollout, colon, token = text.partition(":")
    if not (colon and rollout.isdecimal() and token.isdecimal() and len(text) < 20):
        raise RunError(f"--explain {text[:60]}: write it as ROLLOUT:TOKEN, such as 0:0, both counted from 0")
    i, t = int(rollout), int(token)
    if i >= len(batch.group):
        raise RunError(f"--explain {text}: the batch has no rollout {i}, the last is {len(batch.group) - 1}")
    if t >= batch.length[i]:
        raise RunError(f"--explain {text}: rollout {i} has no token {t}, the last is {batch.length[i] - 1}")
    return i, t


def _as_json(answers: list[Answer], ledgers: list[list[Line]], batch: Batch) -> dict[str, Any]:
    """The trace of one method; of several, all of them and their pairs by place."""
    from core.advantage import trace_to_json
    from core.counterfactual import compare

    methods = [trace_to_json(one.trace, batch) for one in answers]
    for found, lines in zip(methods, ledgers, strict=True):
        if lines:
            found["explain"] = [asdict(line) for line in lines]
    if len(methods) == 1:
        return methods[0]
    pairs = combinations(range(len(answers)), 2)
    return {
        "methods": methods,
        "pairs": [{"a": a, "b": b, **compare(answers[a], answers[b], batch).numbers} for a, b in pairs],
    }
