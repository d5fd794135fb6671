"""The command line as tests run it: what it prints, and its one sentence where it refuses."""

from __future__ import annotations

import pytest

from core.cli import main


class Shell:
    """Runs commands in this process; `out` and `err` are what the last one printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.out = self.err = ""

    def __call__(self, *words: object) -> int:
        code = main([str(word) for word in words])
        self.out, self.err = self._capsys.readouterr()
        return code

    def refuses(self, *words: object) -> str:
        """The one sentence on stderr of a command that must fail with bad input."""
        assert self(*words) == 2
        lines = self.err.strip().splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("error: ")
        assert "Traceback" not in self.err
        return lines[0].removeprefix("error: ")
