"""What each preset gives on the embedded model, over seeds: the table of `runs/README.md`, from stored runs.

    python -m tests.bench.outcomes --runs DIR [--train] [--seeds 0 1 2] [PRESET ...]

With `--train` every method of the named presets trains first, one seed after the other (a minute a run on two cores);
without it the table is made of the finished runs that DIR holds.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from core.runs import list_runs, presets
from core.store import open_runs

LEFT_OUT = {"grpo", "a3po", "adora_on_dapo", "smoke", "small_pool", "smollm2_sums"}
"""Quickstart's first method, two that `mass_matched` trains beside their controls, too short to say anything, GRPO on
another pool, and another model and task."""

FIRST_AND_LAST = """
SELECT run, min_by(pass_at_1, step) AS pass_start, max_by(pass_at_1, step) AS pass_end,
       min_by(greedy, step) AS greedy_start, max_by(greedy, step) AS greedy_end,
       min_by(pass_at_k, step) AS k_start, max_by(pass_at_k, step) AS k_end,
       max_by(entropy, step) AS entropy_end, max_by(length_correct, step) AS length_correct,
       max_by(traits['self_check'], step) AS self_check
FROM evals GROUP BY run
"""
COLUMNS = {
    "pass_end": "pass@1", "pass_gain": "gain", "greedy_end": "greedy", "greedy_gain": "gain", "k_end": "pass@8",
    "entropy_end": "entropy, nats", "length_correct": "length of right answers, tokens",
    "self_check": "self-checks, share",
}  # fmt: skip


def train(root: Path, names: list[str], seeds: list[int]) -> None:
    """Train each preset with each of its methods over the seeds, through the command line."""
    for name in names:
        command = [sys.executable, "-m", "core", "run", name, "--set", f"seeds={seeds}", "--runs", str(root)]
        subprocess.run(command, check=True)


def outcomes(root: Path) -> dict[str, list[dict[str, float]]]:
    """The last evaluation of every finished run and its gain over the first, by the method's label."""
    infos = {info.id: info for info in list_runs(root, examples=False) if info.state == "finished"}
    found: dict[str, list[dict[str, float]]] = {}
    with open_runs([info.path for info in infos.values()]) as lab:
        for row in lab.rows(FIRST_AND_LAST):
            row["pass_gain"] = row["pass_end"] - row["pass_start"]
            row["greedy_gain"] = row["greedy_end"] - row["greedy_start"]
            found.setdefault(infos[row["run"]].label, []).append(row)
    return found


def table(found: dict[str, list[dict[str, float]]]) -> str:
    """Markdown: mean over seeds, lowest to highest in brackets."""
    lines = ["| method | seeds | " + " | ".join(COLUMNS.values()) + " |", "|---" * (len(COLUMNS) + 2) + "|"]
    for label, rows in sorted(found.items(), key=lambda item: -_mean(item[1], "pass_end")):
        cells = [_cell(rows, column) for column in COLUMNS]
        lines.append(f"| {label} | {len(rows)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _mean(rows: list[dict[str, float]], column: str) -> float:
    return sum(row[column] for row in rows) / len(rows)


def _cell(rows: list[dict[str, float]], column: str) -> str:
    digits, sign = (1, "") if column == "length_correct" else (2, "+" if column.endswith("gain") else "")
    low, high = min(row[column] for row in rows), max(row[column] for row in rows)
    return f"{_mean(rows, column):{sign}.{digits}f} ({low:{sign}.{digits}f} to {high:{sign}.{digits}f})"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.outcomes", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="PRESET", help="presets to train; all of them if none is named")
    parser.add_argument("--runs", type=Path, required=True, metavar="DIR", help="the folder of these runs")
    parser.add_argument("--train", action="store_true", help="train first")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    arguments = parser.parse_args()
    if arguments.train:
        names = arguments.names or [preset.id for preset in presets() if preset.id not in LEFT_OUT]
        train(arguments.runs, names, arguments.seeds)
    print(table(outcomes(arguments.runs)))


if __name__ == "__main__":
    main()
