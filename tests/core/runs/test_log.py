"""The end of a log, whatever was written to it."""

from __future__ import annotations

from pathlib import Path

from core.runs.log import last_words, log_tail, plain


def test_plain_text_has_nothing_that_acts() -> None:
    hostile = "\x1b[2J\x1b]0;title\x07a\x00b\u202ec\u200bd\ud800e\u2028f\tg\x9b31mh\r\n"
    assert plain(hostile) == "abcdef\tg31mh\n"


def test_ordinary_text_stays() -> None:
    assert plain("Zürich → 東京 <b>&amp;</b> 🎉") == "Zürich → 東京 <b>&amp;</b> 🎉"


def test_the_tail_keeps_what_a_progress_bar_last_said(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_bytes(b"one\n10%\r20%\r30%\ntwo\r\n")
    assert log_tail(log) == "one\n30%\ntwo"


def test_only_the_end_of_a_long_log_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_bytes(b"x" * 200_000 + b"\n" + b"\n".join(b"line %d" % i for i in range(1000)))
    assert log_tail(log, lines=2) == "line 998\nline 999"
    assert len(log_tail(log, lines=10**6)) <= 65_536


def test_last_words_of_a_traceback_are_its_message(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text("step 1\nTraceback (most recent call last):\n  File \"a.py\", line 1\nKeyError: 'x'\n    \n\n")
    assert last_words(log) == "KeyError: 'x'"


def test_last_words_are_short(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text("y" * 5000)
    assert last_words(log) == "y" * 299 + "…"


def test_no_log_no_words(tmp_path: Path) -> None:
    assert (last_words(tmp_path / "log.txt"), log_tail(tmp_path / "log.txt")) == ("", "")
    (tmp_path / "log.txt").write_text("\n \n")
    assert last_words(tmp_path / "log.txt") == ""
