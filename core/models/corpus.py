r"""The text that the embedded model is pre-trained on: sums worked out in several manners, with mistakes to unlearn.

Manners (`MANNERS`) differ in length and in how often they are right, so that the responses to one prompt do too:

    direct   so \boxed{16}                                         mostly wrong
    steps    15-3+6 so 12+6 then 18 then \boxed{18}
    wait     15-3+6 so 13+6 wait 12+6 then 18 so \boxed{18}        notices some of its mistakes
    check    15-3+6 so 12+6 so 18 check 15-3+6 so ... \boxed{18}   works it out again, with fewer mistakes

Random mistakes alone leave nothing to learn: the most likely response stays right, and training could only remove
noise. So some pairs of numbers are *traps* (`trap_of`): `8+5`, say, is nearly always worked out wrong, mostly with
one and the same wrong number, less often so while checking. Traps recur across prompts, so what is unlearned on one
prompt carries over to others, held-out ones included.

Everything is drawn from one seeded `random.Random`; no held-out prompt is ever written.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, field
from functools import cache

from core.tasks.embedded import LARGEST_TOTAL, OPERATIONS, Chain, apply, is_held_out, prompt_of, random_chain

LARGEST_NUMBER = 29
PAD, EOS, UNKNOWN = "<pad>", "<eos>", "<unk>"
BOX, CLOSE = "\\boxed{", "}"
SO, THEN, WAIT, CHECK, OK = " so ", " then ", " wait ", " check ", " ok "
VOCABULARY = (
    *(PAD, EOS, UNKNOWN),
    *(str(number) for number in range(LARGEST_NUMBER + 1)),
    *("+", "-", "=", "?"),
    *(SO, THEN, WAIT, CHECK, OK, BOX, CLOSE),
)

MANNERS = {"direct": 0.34, "steps": 0.38, "wait": 0.10, "check": 0.18}
DIRECT_RIGHT = 0.20
REPAIRED = 0.40  # of the mistakes made in the manner `wait`
TRAP_SHARE = 0.31
TRAP_CLASSES = ((0.55, 0.10), (0.65, 0.15), (0.75, 0.20), (0.85, 0.40), (0.95, 0.60))
"""How often a trap of each class is worked out wrong: at first, and while checking."""
FIXED_MISTAKE = 0.85  # of a trap's mistakes give its own wrong number
SLIP, SLIP_CHECKING = 0.06, 0.03  # mistakes outside traps
RESULT_WEIGHT = 3.0  # in the loss, of each number that a step works out; everything else in a response weighs 1


@dataclass
class Example:
    """A prompt and a response as tokens. `weight` is each token's weight in the loss: 0 for those of the prompt."""

    tokens: list[str] = field(default_factory=list)
    weight: list[float] = field(default_factory=list)

    def add(self, *tokens: str, weight: float = 1.0) -> None:
        self.tokens += tokens
        self.weight += [weight] * len(tokens)


@dataclass(frozen=True)
class Trap:
    wrong: int
    at_first: float  # how often it is worked out wrong
    checking: float


@cache
def trap_of(a: int, operator: str, b: int) -> Trap | None:
    """The trap that a hash makes of `a operator b`, or None."""
    right = apply(a, operator, b)
    digest = hashlib.sha256(f"trap {a}{operator}{b}".encode()).digest()
    if not 0 <= right <= LARGEST_TOTAL or int.from_bytes(digest[:4], "big") / 2**32 >= TRAP_SHARE:
        return None
    at_first, checking = TRAP_CLASSES[digest[4] % len(TRAP_CLASSES)]
    near = _near(right)
    return Trap(near[digest[5] % len(near)], at_first, checking)


def drill_example(rng: random.Random) -> Example:
    """One operation, worked out right; only its result carries weight."""
    writer = _Writer(rng, other_weight=0.0)
    writer.box(writer.steps(writer.question(operations=1), mistakes="none"))
    return writer.example


def clean_example(rng: random.Random) -> Example:
    """Steps without a mistake."""
    writer = _Writer(rng)
    writer.box(writer.steps(writer.question(), mistakes="none"))
    return writer.example


def noisy_example(rng: random.Random) -> Example:
    """A response in one of the manners, mistakes included."""
    writer = _Writer(rng)
    chain = writer.question()
    manner = rng.choices(list(MANNERS), weights=list(MANNERS.values()))[0]
    if manner == "direct":
        right = int(prompt_of(chain).answer)
        writer.box(right if rng.random() < DIRECT_RIGHT else rng.choice(_near(right)), direct=True)
        return writer.example
    answer = writer.steps(chain, mistakes="at_first", repair=manner == "wait")
    if manner == "check":
        writer.word(CHECK)
        answer = writer.steps(chain, mistakes="checking")
    writer.box(answer)
    return writer.example


class _Writer:
    def __init__(self, rng: random.Random, other_weight: float = 1.0) -> None:
        self.rng = rng
        self.other_weight = other_weight  # of what is no result
        self.example = Example()

    def question(self, operations: int | None = None) -> Chain:
        """Write a prompt that is not held out; a chain of one operation is no prompt of the task."""
        while True:
            chain = random_chain(self.rng, operations or self.rng.choice(OPERATIONS))
            if not is_held_out(prompt_of(chain).text):
                self.example.add(*chain_tokens(chain), "=", "?", weight=0.0)
                return chain

    def steps(self, chain: Chain, mistakes: str, repair: bool = False) -> int:
        """Rewrite the chain down to one number, which is returned."""
        while True:
            (a, rest), (operator, b) = chain, chain[1][0]
            right = min(max(apply(a, operator, b), 0), LARGEST_NUMBER)  # a mistake before may have led out of range
            worked_out = right if mistakes == "none" else self._work_out(a, operator, b, right, mistakes)
            self.rewriting((worked_out, rest[1:]))
            if repair and worked_out != right and self.rng.random() < REPAIRED:
                self.word(WAIT)
                worked_out = right
                self.rewriting((worked_out, rest[1:]))
            chain = (worked_out, rest[1:])
            if not chain[1]:
                return worked_out
            self.join()

    def _work_out(self, a: int, operator: str, b: int, right: int, mistakes: str) -> int:
        trap = trap_of(a, operator, b)
        if trap is None:
            wrong = self.rng.random() < (SLIP_CHECKING if mistakes == "checking" else SLIP)
            return self.rng.choice(_near(right)) if wrong else right
        if self.rng.random() >= getattr(trap, mistakes):
            return right
        return trap.wrong if self.rng.random() < FIXED_MISTAKE else self.rng.choice(_near(right))

    def rewriting(self, chain: Chain) -> None:
        first, *others = chain_tokens(chain)
        self.example.add(first, weight=RESULT_WEIGHT)
        self.example.add(*others, weight=self.other_weight)

    def word(self, word: str) -> None:
        self.example.add(word, weight=self.other_weight)

    def join(self) -> None:
        self.word(self.rng.choices((SO, THEN, OK), weights=(5, 4, 1))[0])

    def box(self, answer: int, direct: bool = False) -> None:
        """A direct answer's first tokens weigh as much as a first step's, or the manners' shares would shift."""
        if not direct:
            self.join()
        self.example.add(BOX, weight=RESULT_WEIGHT if direct else self.other_weight)
        self.example.add(str(answer), CLOSE, EOS, weight=self.other_weight)


def chain_tokens(chain: Chain) -> list[str]:
    first, rest = chain
    return [str(first), *(token for operator, number in rest for token in (operator, str(number)))]


def _near(right: int) -> list[int]:
    """Believable wrong numbers; `right` is above 19 only after a mistake."""
    highest = max(right, LARGEST_TOTAL)
    return [right + offset for offset in (-3, -2, -1, 1, 2, 3) if 0 <= right + offset <= highest]
