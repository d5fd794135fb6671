"""python -m tests.bench.speed [NAME ...] [--json] [--write] [--rounds N] [--threads N]"""

from __future__ import annotations

import argparse
import json
import sys

from core.config import ConfigError, RunConfig, parse_run
from core.engines.base import EngineError
from tests.bench.speed.benches import BENCHES, Bench, BenchError, find
from tests.bench.speed.report import lines
from tests.bench.speed.result import Comparison, PeerError
from tests.bench.speed.table import TableError, write

BAD_INPUT = 2


def main() -> int:
    """Run the named benches, or all that can run here; 2 for what is missing or unknown, in one sentence."""
    options = _options()
    try:
        found = {bench.name: _run(bench, options) for bench in _chosen(options.names)}
        if options.write:
            write(found)
    except (BenchError, ConfigError, EngineError, PeerError, TableError) as error:
        print(f"error: {error}", file=sys.stderr)
        return BAD_INPUT
    if options.json:
        print(json.dumps({name: comparison.as_json() for name, comparison in found.items()}, indent=2))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m core bench", description="Time ours and a peer in turn.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(BENCHES)}; all of them if none is named")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--write", action="store_true", help="keep the results in tests/bench/README.md")
    parser.add_argument("--rounds", type=int, help="turns that are measured")
    parser.add_argument("--threads", type=int, help="CPU threads of both")
    return parser.parse_args()


def _chosen(names: list[str]) -> list[Bench]:
    if not names:
        here = [bench for bench in BENCHES.values() if not bench.missing()]
        for bench in BENCHES.values():
            if why := bench.missing():
                print(f"left out: {why}", file=sys.stderr)
        return here
    chosen = [find(name) for name in names]
    for bench in chosen:
        if why := bench.missing():
            raise BenchError(why)
    return chosen


def _run(bench: Bench, options: argparse.Namespace) -> Comparison:
    config: RunConfig = bench.config()
    if options.threads is not None:
        config = parse_run(config.model_dump() | {"threads": options.threads})
    found = bench.run(config, options.rounds or bench.rounds)
    if not options.json:
        print(*lines(bench.name, found), sep="\n", flush=True)
    return found


if __name__ == "__main__":
    sys.exit(main())
