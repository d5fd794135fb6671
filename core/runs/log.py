"""log.txt, for readers: its end, and the last words of a run that died. Everything in it is untrusted text."""

from __future__ import annotations

import os
import re
import unicodedata
from pathlib import Path

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_UNSEEN = frozenset(("Cc", "Cf", "Cs", "Co", "Zl", "Zp"))
_FRAME = re.compile(r'^\s+|^Traceback \(|^During handling of|^The above exception|^File "')


def plain(text: str) -> str:
    """Text without terminal codes, control and direction characters, lone surrogates; newlines and tabs stay."""
    return "".join(c for c in _ANSI.sub("", text) if c in "\n\t" or unicodedata.category(c) not in _UNSEEN)


def log_tail(path: Path, lines: int = 200, limit_bytes: int = 65_536) -> str:
    """The last lines of a log, plain; what a progress bar overwrote with carriage returns is left out."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - limit_bytes))
            raw = file.read(limit_bytes)
    except OSError:
        return ""
    text = raw.decode("utf-8", "replace")
    kept = [line.rstrip("\r").rpartition("\r")[2] for line in text.rstrip("\r\n").split("\n")]
    return "\n".join(plain(line) for line in kept[-lines:]).strip("\n")


def last_words(path: Path, limit: int = 300) -> str:
    """The last meaningful line of a log (of a traceback its last line, not its frames), cut to `limit` characters."""
    written = [line.rstrip() for line in log_tail(path, lines=80).split("\n") if line.strip()]
    meaningful = [line for line in written if not _FRAME.match(line)] or written
    words = meaningful[-1].strip() if meaningful else ""
    return words if len(words) <= limit else words[: limit - 1] + "…"
