"""A batch file's JSON, read strictly: what cannot be meant is one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from core.cli.common import one_line
from core.runs import RunError

LARGEST = 500_000_000
"""Bytes of a batch file that are read."""


def read_json(path: Path) -> Any:
    """The file's value. Raises RunError where it is no JSON in UTF-8, too large, or names a key twice."""
    from core.advantage.files import parse_json

    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise RunError(f"{path}: {(error.strerror or 'cannot be read').lower()}") from error
    if len(data) > LARGEST:
        raise RunError(f"{path}: larger than {LARGEST // 1_000_000} MB, the largest batch file that is read")
    try:
        return parse_json(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise RunError(f"{path}: byte {error.start} is not UTF-8, which a batch file must be") from error
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path}: cannot be read as JSON ({one_line(str(error))})") from error
