"""`advantage`: a method on a batch from a file, without any run."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from core.cli.common import AsJson, number, one_line
from core.runs import RunError

if TYPE_CHECKING:
    from core.advantage import Batch, Trace


def register(app: typer.Typer) -> None:
    app.command()(advantage)


def advantage(
    batch: Annotated[Path, typer.Argument(metavar="BATCH.json", help="group, reward, length, truncated, max_length …")],
    method: Annotated[str, typer.Option(metavar="NAME", help="A recipe: grpo, a3po, adora_amplify …")],
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A parameter of the method: rho_positive=3.")
    ] = None,
    base: Annotated[str | None, typer.Option(metavar="NAME", help="Another base rule under it, such as dapo.")] = None,
    also: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Another recipe whose weights multiply in too.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compute a method on a batch from a file: every advantage, and the factors that made it."""
    from core.advantage import batch_from_json, build, compute, trace_to_json
    from core.config_yaml import override

    built = build(method, base=base, also=tuple(also or ()), params=override({}, settings or ()))
    read = batch_from_json(_read(batch))
    trace = compute(built, read)
    if as_json:
        typer.echo(json.dumps(trace_to_json(trace, read), allow_nan=False))
    else:
        for line in table(trace, read):
            typer.echo(line)


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunError(f"{path}: no such file") from None
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{path}: cannot be read as JSON ({one_line(str(error))})") from error


def table(trace: Trace, batch: Batch) -> Iterable[str]:
    """One line a rollout: its group, reward and length, base advantage, mean of each factor, mean advantage."""
    yield f"{trace.method.label}: {one_line(trace.base_reason, 400)}"
    for factor in trace.factors:
        yield f"  × {factor.id}: {one_line(factor.reason, 400)}"
    mask, lengths = batch.mask, batch.length
    spreads = {factor.id: factor.spread(batch) for factor in trace.factors}
    titles = ["rollout", "group", "class", "reward", "length", "base"]
    titles += [*(f"× {name}" for name in spreads), "advantage", "kept"]
    classes = dict(zip(batch.groups.tolist(), trace.classes.label, strict=True))
    rows = [titles]
    for i, group in enumerate(batch.group.tolist()):

        def mean(values: Any, i: int = i) -> str:
            row = values[i] if values.ndim == 1 else values[i][mask[i]].mean() if lengths[i] else 0.0
            return number(float(row))

        rows.append(
            [str(i), str(group), classes[group], number(float(batch.reward[i])), str(int(lengths[i])), mean(trace.base)]
            + [mean(spread) for spread in spreads.values()]
            + [mean(trace.advantage), "yes" if trace.kept[i].any() else "no"]
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(titles))]
    for row in rows:
        yield "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
    yield "Factors and advantages are means over the response's tokens; --json has every token."
