"""The command line. One small module for a few commands each; what is heavy is imported inside them.

Exit codes: 0 well, 1 the answer is no (a failed check, a failed run), 2 bad input, 130 stopped by Ctrl-C. Errors are
one sentence on stderr, without a traceback.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from core.cli import advantage, data, look, sql, train
from core.cli.common import BAD_INPUT, set_runs_folder

HELP = """Launch LoRA RLVR runs, watch them, and look inside: every token's advantage and why.

Start here: python -m core run quickstart

In the browser: python -m streamlit run app/main.py
"""


def build_app() -> typer.Typer:
    """All commands, in the order in which a person meets them."""
    app = typer.Typer(help=HELP, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
    app.callback()(set_runs_folder)
    for module in (train, look, sql, data, advantage):
        module.register(app)
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    try:
        build_app()(args=arguments, prog_name="python -m core")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    except (ValueError, OSError, RuntimeError) as error:
        if not type(error).__module__.startswith("core."):
            raise
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return BAD_INPUT
    return 0
