r"""The verifiers that need nothing but Python: the same text, the same number, the same letter of a choice."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from core.tasks.answers import LONGEST_READ, gold, last_said, marked
from core.tasks.base import Judgement, Prompt, Task

LETTERS = "ABCDE"


def judged(right: bool, answered: bool) -> Judgement:
    """Right or wrong, and the trait `answered`: whether there was something to compare at all."""
    return Judgement(float(right), {"answered": float(answered)})


@dataclass(frozen=True)
class OfTask:
    """The verifier that a task brings along."""

    task: Task

    def problem(self, answer: str) -> str:
        return ""

    def judge(self, prompt: Prompt, response: str) -> Judgement:
        verdict = self.task.verify(prompt, response)
        return Judgement(verdict.correctness, verdict.traits)


@dataclass(frozen=True)
class Exact:
    """The same text but for white space, a full stop or quotes around it, and for case where that is ignored."""

    read: str = "auto"
    ignore_case: bool = True

    def problem(self, answer: str) -> str:
        return "" if self.plain(gold(answer)) else "no answer"

    def judge(self, prompt: Prompt, response: str) -> Judgement:
        said = marked(response, self.read)
        if said is None and self.read == "auto":
            said = last_said(response)
        return judged(said is not None and self.plain(said) == self.plain(gold(prompt.answer)), bool(said))

    def plain(self, text: str) -> str:
        text = " ".join(text.split()).strip("\"'`*$“”‘’ ").rstrip(".").strip("\"'`*$“”‘’ ")
        return text.casefold() if self.ignore_case else text


_DIGITS = r"(?:[0-9]{1,3}(?:[, \u202f\u2009][0-9]{3})+(?![0-9])|[0-9]{1,30})"
_NUMBER = re.compile(
    rf"(?<![0-9A-Za-z_.])(?P<sign>[-−–+]?)(?:\\?[$€£¥][ ]?)?(?P<sign2>[-−]?)"
    rf"(?:(?:\\[dt]?frac\{{(?P<top>[0-9]{{1,15}})\}}\{{(?P<under>[0-9]{{1,15}})\}})"
    rf"|(?P<number>(?:{_DIGITS})(?:\.[0-9]{{1,30}})?|\.[0-9]{{1,30}})(?:[eE](?P<power>[-+]?[0-9]{{1,3}})(?![0-9]))?"
    rf"(?:[ ]?/[ ]?(?P<over>[0-9]{{1,15}})(?![0-9/]))?)"
)
"""A number as people and models write it: 1,234.5, −3, $7, 1e3, 3/4, \\frac{3}{4}; what follows it is its unit."""


def numbers_in(text: str) -> list[Fraction]:
    """Every number of a text, exactly, in order; units, currencies and thousands separators are passed over."""
    found = []
    for match in _NUMBER.finditer(text):
        if match["top"] is not None:
            top, under = int(match["top"]), int(match["under"])
            value = Fraction(top, under) if under else None
        else:
            value = Fraction(re.sub(r"[, \u202f\u2009]", "", match["number"]))
            if match["power"]:
                value *= Fraction(10) ** int(match["power"])
            if match["over"]:
                over = int(match["over"])
                value = value / over if over else None
        if value is not None:
            found.append(-value if {match["sign"], match["sign2"]} & {"-", "−", "–"} else value)
    return found


@dataclass(frozen=True)
class Numeric:
    """The same number within a tolerance: the one marked as the answer, else the last one. Units and percent signs are
    left out of it, not converted."""

    read: str = "auto"
    tolerance: float = 1e-6

    def problem(self, answer: str) -> str:
        text = gold(answer)[:LONGEST_READ]
        return "" if text.isdecimal() or numbers_in(text) else "the answer is no number"

    def judge(self, prompt: Prompt, response: str) -> Judgement:
        text = marked(response, self.read)
        if text is None and self.read == "auto":
            text = response
        said = numbers_in((text or "")[-LONGEST_READ:])
        wanted = numbers_in(gold(prompt.answer)[:LONGEST_READ])
        if not said or not wanted:
            return judged(False, bool(said))
        right = abs(said[-1] - wanted[-1]) <= Fraction(self.tolerance) * max(1, abs(wanted[-1]))
        return judged(right, True)


_ALONE = re.compile(r"[\s*_(\[{\"'`$]*(?:\\text\{)?([A-Ea-e])[\s*_)\]}\"'`$.:,]*\Z")
_FIRST = re.compile(r"[\s*_(\[{\"'`$]*(?:\\text\{)?([A-E])(?:[)\].:}*]|\s*[-–:.)]\s)")
_FORMS = (
    re.compile(r"\b(?:answer|option|choice)(?:\s+is|\s+would\s+be|\s*[:=])?[\s:*_(\[\"'`]*([A-E])(?![A-Za-z'’])", re.I),
    re.compile(r"\(([A-E])\)"),
    re.compile(r"\*\*\(?([A-E])\)?[.:)]?\*\*"),
)


def letter_of(text: str) -> str | None:
    """The letter of a text that is nothing but an answer: `B`, `(B)`, `B.`, `B) because it is red`."""
    found = _ALONE.match(text[:200]) or _FIRST.match(text)
    return found[1].upper() if found else None


@dataclass(frozen=True)
class Choice:
    """The same letter, A to E. A response gives it in a box or tag, or as `answer is B`, `(B)`, `**B**`, or `B.` at the
    start or end; the last of the first form that there is counts. `A dog` is no choice."""

    read: str = "auto"

    def problem(self, answer: str) -> str:
        return "" if letter_of(gold(answer)) else f"the answer is no letter {LETTERS[0]} to {LETTERS[-1]}"

    def judge(self, prompt: Prompt, response: str) -> Judgement:
        said = self.said(response)
        return judged(said is not None and said == letter_of(gold(prompt.answer)), said is not None)

    def said(self, response: str) -> str | None:
        """The letter that the response chooses."""
        text = marked(response, self.read)
        if text is not None:
            return letter_of(text)
        if self.read == "boxed":
            return None
        text = response[-LONGEST_READ:]
        for form in _FORMS[:1]:
            if found := [match for match in form.findall(text) if match.isupper()]:
                return found[-1]
        lines = [line for line in text.splitlines() if line.strip()]
        for line in (lines[-1:], lines[:1]):
            if line and (alone := _ALONE.match(line[0])):
                return alone[1].upper()
        for form in _FORMS[1:]:
            if found := form.findall(text):
                return found[-1]
        started = next((match for line in (*lines[-1:], *lines[:1]) if (match := _FIRST.match(line))), None)
        return started[1] if started else None
