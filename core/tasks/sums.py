r"""One-line sums for a chat model: `Add these numbers: 8 + 13. Write the sum.`

Both numbers are 1 to 15. The reward is 1 if the last number of the response is the sum and 0 otherwise: what a response
ends on is its answer, so one that says the sum and then talks on about other numbers is wrong, as is one that was cut
off before it came to it.

One pair of numbers in five is held out, in either order: no held-out sum is trained on with its numbers swapped.
"""

from __future__ import annotations

import hashlib
import random
import re

from core.tasks.base import Prompt, Verdict

LARGEST = 15
LONGEST_READ = 4096  # characters at the end of a response that are read

_NUMBER = re.compile(r"(?:(?<![0-9])-)?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?(?![0-9])")
_QUESTION = re.compile(r"([0-9]+) \+ ([0-9]+)")


class SumsTask:
    """Pool and held-out prompts are all that there are, shuffled: a larger one begins with a smaller one."""

    name = "sums"

    def train_pool(self, size: int, seed: int) -> list[Prompt]:
        """At most `size` distinct prompts, none of them held out; there are fewer than two hundred."""
        return _shuffled(f"pool {seed}", held_out=False)[:size]

    def held_out(self, count: int) -> list[Prompt]:
        """At most `count`; there are fewer than forty."""
        return _shuffled("held out", held_out=True)[:count]

    def verify(self, prompt: Prompt, response: str) -> Verdict:
        """Reward 1 or 0. Traits: see `_traits`."""
        numbers = read_numbers(response[-LONGEST_READ:])
        right = bool(numbers) and numbers[-1] == float(prompt.answer)
        reward = float(right)
        return Verdict(reward, reward, {"correct": reward}, _traits(prompt, response[-LONGEST_READ:], numbers))


def read_numbers(text: str) -> list[float]:
    """Every number of the text in order; one that is much longer than any sum keeps its place as NaN."""
    found = (match.group() for match in _NUMBER.finditer(text))
    return [float(number.replace(",", "")) if len(number) <= 12 else float("nan") for number in found]


def _traits(prompt: Prompt, text: str, numbers: list[float]) -> dict[str, float]:
    """`answered`: there is a number. `direct`: there is nothing else. `equation`: the sum is written out. `said`: the
    right number stands somewhere. `ones_right`: the answer's last digit is right, whatever is before it."""
    answer = float(prompt.answer)
    asked = _QUESTION.search(prompt.text)
    return {
        "answered": float(bool(numbers)),
        "direct": float(len(numbers) == 1 and _NUMBER.sub("", text).strip(" .\n") == ""),
        "equation": float(asked is not None and f"{asked[1]} + {asked[2]} = " in text),
        "said": float(answer in numbers),
        "ones_right": float(bool(numbers) and numbers[-1] % 10 == answer % 10),
    }


def prompt_of(a: int, b: int) -> Prompt:
    return Prompt(f"Add these numbers: {a} + {b}. Write the sum.", str(a + b))


def is_held_out(a: int, b: int) -> bool:
    """The same for (a, b) and (b, a)."""
    digest = hashlib.sha256(f"held out sums {min(a, b)} {max(a, b)}".encode()).digest()
    return digest[0] < 256 // 5


def _shuffled(stream: str, held_out: bool) -> list[Prompt]:
    """All prompts on that side in the stream's order, drawn with `random()` alone, whose stream Python keeps."""
    pairs = [(a, b) for a in range(1, LARGEST + 1) for b in range(1, LARGEST + 1) if is_held_out(a, b) == held_out]
    rng = random.Random(f"sums {stream}")
    return [prompt_of(*pair) for _, pair in sorted((rng.random(), pair) for pair in pairs)]
