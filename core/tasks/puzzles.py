"""The verifiers of puzzles: who is a knight, and an expression that reaches a number. A response is never evaluated."""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

from core.tasks.answers import LONGEST_READ, marked
from core.tasks.base import Judgement, Prompt
from core.tasks.verifiers import judged

_IS = re.compile(r"\b([A-Z][a-z]{1,20}) is an? ([a-z]{2,20})\b")
_SUM = re.compile(r"[-+*/()0-9 ]*[0-9)]")
LONGEST_SUM = 200
"""Characters of an expression."""


@dataclass(frozen=True)
class KnightsKnaves:
    """Right if the last thing said of everybody is the solution. Trait: the share of `people_right`."""

    def problem(self, answer: str) -> str:
        return "" if _IS.search(answer) else "the answer names nobody"

    def judge(self, prompt: Prompt, response: str) -> Judgement:
        text = marked(response, "auto")
        said = dict(_IS.findall(text if text is not None else response[-LONGEST_READ:]))
        wanted = dict(_IS.findall(prompt.answer))
        right = sum(said.get(name) == role for name, role in wanted.items())
        traits = {"answered": float(wanted.keys() <= said.keys()), "people_right": right / max(1, len(wanted))}
        return Judgement(float(bool(wanted) and right == len(wanted)), traits)


@dataclass(frozen=True)
class Countdown:
    """Right if the expression uses each number of the solution once, and no other, and comes to the same. It is looked
    for in a box or answer tag, else in the last line that has one. Trait `numbers_right`: the right numbers were used.
    """

    def problem(self, answer: str) -> str:
        return "" if value_of(answer.partition("=")[0]) else "the answer is no expression"

    def judge(self, prompt: Prompt, response: str) -> Judgement:
        wanted = value_of(prompt.answer.partition("=")[0])
        said = value_of(self._expression(response))
        if said is None or wanted is None:
            return Judgement(0.0, {"answered": 0.0, "numbers_right": 0.0})
        same = said[1] == wanted[1]
        one = judged(same and said[0] == wanted[0], True)
        return Judgement(one.correctness, {**one.traits, "numbers_right": float(same)})

    def _expression(self, response: str) -> str:
        text = marked(response, "auto")
        lines = [text] if text is not None else response[-LONGEST_READ:].splitlines()[::-1]
        for line in lines:
            line = line.partition("=")[0].replace("×", "*").replace("÷", "/").replace("−", "-").replace(r"\times", "*")
            found = [piece.strip() for piece in _SUM.findall(line) if any(sign in piece for sign in "+-*/")]
            if found:
                return max(found, key=len)
        return ""


def value_of(text: str) -> tuple[Fraction, Counter[int]] | None:
    """(what a sum of whole numbers with + - * / and brackets comes to, the numbers in it); None if it is none."""
    if len(text) > LONGEST_SUM:
        return None
    numbers: Counter[int] = Counter()

    def value(node: ast.AST) -> Fraction:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            numbers[node.value] += 1
            return Fraction(node.value)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -value(node.operand)
        if isinstance(node, ast.BinOp):
            left, right = value(node.left), value(node.right)
            match node.op:
                case ast.Add():
                    return left + right
                case ast.Sub():
                    return left - right
                case ast.Mult():
                    return left * right
                case ast.Div():
                    return left / right
        raise ValueError("no sum of whole numbers")

    try:
        return value(ast.parse(text.strip(), mode="eval").body), numbers
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None
