"""The command line. One small module for a few commands each; what is heavy is imported inside them.

Exit codes: 0 well, 1 the answer is no (a failed check, a failed run), 2 bad input, 130 stopped by Ctrl-C. Errors are
one sentence on stderr, without a traceback.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence

import typer

from core.cli import advantage, bench, data, examples, export, imports, look, sql, train
from core.cli.common import BAD_INPUT, one_line, set_runs_folder

UsageError = typer.BadParameter.__mro__[1]
"""What Typer raises for a wrong command line; it has no public name of its own."""

HELP = """Launch LoRA RLVR runs, watch them, and look inside: every token's advantage and why.

Start here: python -m core run quickstart

In the browser: python -m streamlit run app/main.py
"""


LONGEST = 2000
"""Characters of an error that are shown."""


def build_app() -> typer.Typer:
    """All commands, in the order in which a person meets them."""
    app = typer.Typer(help=HELP, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
    app.callback()(set_runs_folder)
    for module in (train, look, sql, data, imports, export, advantage, examples, bench):
        module.register(app)
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that knows no emoji shows its number
    try:
        code = build_app()(args=arguments, prog_name="python -m core", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except UsageError as error:
        return _wrong_usage(error)
    except (KeyboardInterrupt, typer.Abort):
        print(file=sys.stderr)
        return 130
    except (ValueError, OSError, RuntimeError) as error:
        if str(error) == "Query interrupted":  # DuckDB's word for Ctrl-C
            print(file=sys.stderr)
            return 130
        if type(error).__module__.startswith("core."):
            words = str(error)
        elif isinstance(error, OSError) and error.strerror:  # the disk or a path, not the program
            words = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        else:
            raise
        print(f"error: {one_line(words, LONGEST)}", file=sys.stderr)
        return BAD_INPUT


def _wrong_usage(error: UsageError) -> int:
    """An option that is not there, an argument that is missing: one sentence, and where to read more."""
    command = error.ctx.command_path if error.ctx else "python -m core"
    if words := error.format_message():
        print(f"error: {one_line(words, LONGEST).rstrip('.')} ({command} --help says more)", file=sys.stderr)
    return error.exit_code
