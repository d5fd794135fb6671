r"""Step-by-step sums: the task of the embedded model.

A prompt is a chain of 2 to 4 additions and subtractions, `7+8-3+6=?`, whose running total stays within 0 to 19. A
response rewrites the rest of the chain one operation at a time and boxes the result:

    15-3+6 so 12+6 then 18 then \boxed{18}

It may repair its last step (`wait 12+6`), or start over once it is done (`check 15-3+6 ...`). The reward is 1 for the
right number in a `\boxed{...}` that ends the response (white space may follow, nothing else), and 0 otherwise.

One prompt in five is held out: a hash of its text decides, so the training pool and the pre-training corpus never
hold a prompt of the held-out ones.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate, islice

from core.tasks.base import Prompt, Verdict

OPERATIONS = (2, 3, 4)
LARGEST_TOTAL = 19
LARGEST_OPERAND = 9
LONGEST_OWN = 32  # characters of a prompt of its own; there are fewer
LONGEST_READ = 4096  # characters of a response that are read for its steps

Chain = tuple[int, tuple[tuple[str, int], ...]]
"""A chain: its first number, then (operator, operand) pairs; `15-3+6` is (15, (("-", 3), ("+", 6)))."""

_BOX_AT_END = re.compile(r"\\boxed\{([0-9]{1,9})\}[ \t\r\n]*\Z")
_PIECE = re.compile(r"\\boxed\{[^{}]*\}?|[0-9+\-]+|[a-z]+")
_CHAIN = re.compile(r"([0-9]{1,9})((?:[+-][0-9]{1,9})*)\Z")
_TERM = re.compile(r"([+-])([0-9]{1,9})")


class EmbeddedTask:
    """Pool and held-out prompts are the same on every machine: seeded streams, told apart by a hash."""

    name = "embedded"

    def train_pool(self, size: int, seed: int) -> list[Prompt]:
        """`size` distinct prompts, none of them held out; a larger pool of the same seed begins with a smaller one."""
        return _distinct(size, f"pool {seed}", lambda text: not is_held_out(text))

    def held_out(self, count: int) -> list[Prompt]:
        return _distinct(count, "held out", is_held_out)

    def verify(self, prompt: Prompt, response: str) -> Verdict:
        """Reward 1 or 0; `traits` are those of `read_steps`."""
        box = _BOX_AT_END.search(response[-64:])
        right = box is not None and int(box[1]) == int(prompt.answer)
        reading = read_steps(prompt.text, response[:LONGEST_READ])
        traits = reading.traits()
        rests_on_truth = reading.sound and box is not None and reading.last_value == int(box[1])
        traits["answered"] = float(box is not None)
        traits["lucky"] = float(right and reading.steps > 0 and not rests_on_truth)
        reward = float(right)
        return Verdict(reward=reward, correctness=reward, parts={"correct": reward}, traits=traits)


@dataclass(frozen=True)
class Reading:
    """What a response did. A step is one rewriting; it is right if it follows from the one before it."""

    steps: int
    steps_right: int
    self_check: bool  # started over after `check`
    wait: bool  # replaced a step after `wait`
    sound: bool  # every step that its last chain rests on is right, replaced ones left out
    last_value: int | None  # the number that its last chain came to; None if it came to none

    def traits(self) -> dict[str, float]:
        return {
            "steps": float(self.steps),
            "steps_right": float(self.steps_right),
            "self_check": float(self.self_check),
            "wait": float(self.wait),
            "direct": float(self.steps == 0),
        }


def read_steps(question: str, response: str) -> Reading:
    """Follow a response from rewriting to rewriting, each judged by the one it continues.

    `wait` sets the last rewriting aside: the next one continues what that one continued. `check` goes back to the
    question.
    """
    start = parse_chain(question.partition("=")[0])
    chain: list[tuple[Chain | None, bool]] = []  # the rewritings in force, each with whether it is right
    steps = steps_right = 0
    check = wait = replacing = self_check = False
    for piece in _PIECE.findall(response):
        if piece == "check":
            check = True
        elif piece == "wait":
            replacing = bool(chain)
        elif piece[0] in "0123456789+-":
            if check:
                chain, self_check = [], True
            elif replacing:
                chain.pop()
                wait = True
            check = replacing = False
            before = chain[-1][0] if chain else start
            now = parse_chain(piece)
            right = before is not None and now is not None and now == reduce_once(before)
            chain.append((now, right))
            steps += 1
            steps_right += right
    last = chain[-1][0] if chain else None
    return Reading(
        steps=steps,
        steps_right=steps_right,
        self_check=self_check,
        wait=wait,
        sound=bool(chain) and all(right for _, right in chain),
        last_value=last[0] if last is not None and not last[1] else None,
    )


def parse_chain(text: str) -> Chain | None:
    """`15-3+6` as a Chain, or None if it is not one."""
    match = _CHAIN.match(text)
    if match is None:
        return None
    return int(match[1]), tuple((sign, int(number)) for sign, number in _TERM.findall(match[2]))


def is_own_wording(text: str) -> bool:
    """Whether a prompt is one of those that the embedded model was made for."""
    chain = parse_chain(text.removesuffix("=?")) if len(text) <= LONGEST_OWN else None
    if chain is None or len(chain[1]) not in OPERATIONS or prompt_of(chain).text != text:
        return False
    totals = list(accumulate(chain[1], lambda total, step: apply(total, *step), initial=chain[0]))
    return all(0 <= total <= LARGEST_TOTAL for total in totals) and all(n <= LARGEST_OPERAND for _, n in chain[1])


def apply(a: int, operator: str, b: int) -> int:
    return a + b if operator == "+" else a - b


def reduce_once(chain: Chain) -> Chain | None:
    """The chain with its first operation done, or None if none is left."""
    first, rest = chain
    return (apply(first, *rest[0]), rest[1:]) if rest else None


def write_chain(chain: Chain) -> str:
    first, rest = chain
    return f"{first}" + "".join(f"{operator}{number}" for operator, number in rest)


def random_chain(rng: random.Random, operations: int) -> Chain:
    """A chain whose running total stays within 0 to 19."""
    total = first = _below(rng, LARGEST_TOTAL) + 1
    rest = []
    for _ in range(operations):
        up, down = min(LARGEST_OPERAND, LARGEST_TOTAL - total), min(LARGEST_OPERAND, total)
        plus = up > 0 and (down == 0 or rng.random() < 0.5)
        operator, number = ("+", _below(rng, up) + 1) if plus else ("-", _below(rng, down) + 1)
        rest.append((operator, number))
        total = apply(total, operator, number)
    return first, tuple(rest)


def prompt_of(chain: Chain) -> Prompt:
    answer = chain[0]
    for operator, number in chain[1]:
        answer = apply(answer, operator, number)
    return Prompt(f"{write_chain(chain)}=?", str(answer))


def random_prompt(rng: random.Random) -> Prompt:
    return prompt_of(random_chain(rng, OPERATIONS[_below(rng, len(OPERATIONS))]))


def is_held_out(text: str) -> bool:
    return hashlib.sha256(f"held out {text}".encode("utf-8", "surrogatepass")).digest()[0] < 256 // 5


def _below(rng: random.Random, n: int) -> int:
    """0 to n - 1, through `random()` alone: the one method whose stream Python promises to keep."""
    return int(rng.random() * n)


def _distinct(count: int, stream: str, wanted: Callable[[str], bool]) -> list[Prompt]:
    return list(islice(_stream(stream, wanted), count))


def _stream(name: str, wanted: Callable[[str], bool]) -> Iterator[Prompt]:
    rng = random.Random(name)
    seen: set[str] = set()
    while True:
        prompt = random_prompt(rng)
        if prompt.text not in seen and wanted(prompt.text):
            seen.add(prompt.text)
            yield prompt
