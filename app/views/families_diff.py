"""What differs between families of runs: by setting, as a diff of two configs, and whether they compare at all."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import yaml

from app.inert import inert_html, inert_markdown, visible
from app.palette import Theme, rgba
from app.views.families import Family, Member, flat, own_settings, text_of
from app.views.settings import all_settings
from app.words import DASH, count
from core.advantage import AdvantageError
from core.config import ConfigError, parse_run

MOST_COLUMNS = 4
"""More families than this are named beside their value instead of having a column each."""
RECIPE = " (the recipe's)"
CHANGED = "≠"
CAN_BE_METHOD = ("method.", "loss.", "dynamic_sampling.")
"""Settings that are a part of the method."""
COMPOSED = ("method.base", "method.also")
"""Settings of which the rules that they lead to are listed instead."""
SAME_QUESTION = {
    "model": "model",
    "task.name": "task",
    "sampling.temperature": "temperature, at which entropies and log-probs are taken",
    "sampling.max_new_tokens": "longest response",
    "correct_threshold": "threshold from which an answer counts as correct",
    "evaluate.k": "k of pass@k",
}
"""Settings that change what the numbers mean, and what they are called in a sentence."""


def differences(shown: Sequence[Family]) -> pd.DataFrame:
    """Settings that are not the same in all families: a row a setting, a column a family, "–" where there is none.

    What a config leaves to the recipe is filled in and marked so, and the method stands as its rules with their
    parameters. Seeds and names are left out; a family whose config cannot be read has an empty column.
    """
    plain = {family.label: _resolved(family.members[0].config) for family in shown}
    keys = list(dict.fromkeys(key for values in plain.values() for key in values))
    rows = []
    for key in keys:
        texts = [values.get(key, DASH) for values in plain.values()]
        if len({text.removesuffix(RECIPE) for text in texts}) > 1:
            rows.append([key, *texts])
    return pd.DataFrame(rows, columns=["setting", *plain])


def table(frame: pd.DataFrame, base: str, theme: Theme) -> str:
    """The differences as HTML, the base's column first; what is not the base's is marked and tinted. Inert."""
    labels = {setting.path: setting.label for setting in all_settings()}
    names = [base, *(name for name in frame.columns[1:] if name != base)]
    columns = len(names) <= MOST_COLUMNS
    head = ["setting", f"{names[0]} (base)", *names[1:]] if columns else ["setting", f"{base} (base)", "others"]
    cell = f"padding:.35rem .6rem;border-top:1px solid {theme.grid};vertical-align:top;overflow-wrap:anywhere"
    tint = f"background:{rgba(theme.warning, 0.16)};font-weight:600"
    body = []
    for row in frame.to_dict("records"):
        own = row[base]
        others = [(name, row[name]) for name in names[1:]] if columns else _by_value(row, names[1:], own)
        key = str(row["setting"])
        title = f'{inert_html(labels[key])}<br><span style="color:{theme.muted}">' if key in labels else "<span>"
        cells = [f"{title}<code>{_breakable(key)}</code></span>", inert_html(own)]
        marked = [
            (f"{CHANGED} {inert_html(value)}" if _changed(value, own) else inert_html(value))
            + ("" if columns else f': <span style="font-weight:400">{inert_html(name)}</span>')
            for name, value in others
        ]
        drawn = "".join(f'<td style="{cell}">{text}</td>' for text in cells)
        if columns:
            drawn += "".join(
                f'<td style="{cell};{tint if _changed(value, own) else ""}">{text}</td>'
                for (_, value), text in zip(others, marked, strict=True)
            )
        else:
            drawn += f'<td style="{cell};{tint}">{"<br>".join(marked)}</td>'
        body.append(f"<tr>{drawn}</tr>")
    heads = "".join(
        f'<th style="text-align:left;padding:.2rem .6rem;color:{theme.muted};font-weight:600">{inert_html(name)}</th>'
        for name in head
    )
    return (
        f'<table style="width:100%;border-collapse:collapse;font-size:.88rem;color:{theme.text}">'
        f"<thead><tr>{heads}</tr></thead><tbody>{''.join(body)}</tbody></table>"
    )


def unified(a: Member, b: Member) -> str:
    """The two runs' configs as one unified diff of YAML, inert as plain text; "" where they are the same."""
    texts = [visible(yaml.safe_dump(dict(one.config), sort_keys=False, allow_unicode=True)) for one in (a, b)]
    names = [f"{visible(one.id)}/config.yaml" for one in (a, b)]
    return "\n".join(difflib.unified_diff(*(text.splitlines() for text in texts), *names, n=2, lineterm=""))


def unlike(shown: Sequence[Family], exams: Mapping[str, Sequence[str]]) -> list[str]:
    """Why these runs should not be compared, in sentences of Markdown; none where they answer the same questions.

    `exams` are the ids of the held-out prompts that each run was asked; a run without any is left out of that.
    """
    plain = {family: flat(dict(family.members[0].config)) for family in shown if family.members[0].config}
    found = []
    for key, words in SAME_QUESTION.items():
        by_value: dict[str, list[str]] = {}
        for family, values in plain.items():
            by_value.setdefault(text_of(values.get(key)), []).append(family.label)
        if len(by_value) > 1:
            each = "; ".join(
                f"{inert_markdown(value)} ({inert_markdown(', '.join(names[:4]))})" for value, names in by_value.items()
            )
            found.append(f"**Not the same {words}**: {each}.")
    asked = [set(exams[run]) for family in shown for run in family.runs if exams.get(run)]
    shared, every = (set.intersection(*asked), set.union(*asked)) if asked else (set(), set())
    if shared != every:
        found.append(
            f"**Not the same held-out prompts**: {len(shared) or 'none'} of {count(len(every), 'prompt')} "
            f"{'was' if len(shared) == 1 else 'were'} asked of all runs, so held-out numbers are not about one exam."
        )
    return found


def _breakable(key: str) -> str:
    """A dotted path that may be broken after its dots and underscores. HTML."""
    return inert_html(key).replace(".", ".<wbr>").replace("_", "_<wbr>")


def _by_value(row: Mapping[str, Any], names: Sequence[str], own: str) -> list[tuple[str, str]]:
    """(the families, their value) of each value that is not the base's."""
    by_value: dict[str, list[str]] = {}
    for name in names:
        if _changed(row[name], own):
            by_value.setdefault(row[name], []).append(name)
    return [(", ".join(of), value) for value, of in by_value.items()]


def _changed(value: str, own: str) -> bool:
    return value.removesuffix(RECIPE) != own.removesuffix(RECIPE)


def _resolved(config: Mapping[str, Any]) -> dict[str, str]:
    """The settings of a config as text by dotted path, with what the method's recipe says where the config does not."""
    texts = {key: text_of(value) for key, value in flat(own_settings(config)).items()}
    try:
        method = parse_run(config).build_method() if config else None
    except (ConfigError, AdvantageError):
        return texts
    if method is None:
        return texts
    chosen = {f"loss.{name}": value for name, value in vars(method.loss).items()}
    chosen["dynamic_sampling.enabled"] = method.dynamic_sampling
    for key, value in chosen.items():
        if texts.get(key, DASH) == DASH and text_of(value) != DASH:
            texts[key] = text_of(value) + RECIPE
    rules = (method.base, *method.weights)
    texts = {key: text for key, text in texts.items() if key not in COMPOSED and not key.startswith("method.set.")}
    composed = {"method.rules": " × ".join(rule.name for rule in rules)}
    composed |= {f"method.{rule.name}.{name}": text_of(value) for rule in rules for name, value in rule.params.items()}
    return {"method.name": texts.pop("method.name", DASH), **composed, **texts}
