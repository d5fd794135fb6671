"""The advantage package stands alone: numpy and the standard library, nothing of the lab but itself."""

import subprocess
import sys

import pytest

from core.advantage.words import listed, nearest, num

SCRIPT = """
import sys
before = set(sys.modules)
import core.advantage
new = {name.partition(".")[0] for name in set(sys.modules) - before}
own = {name for name in sys.modules if name.startswith("core.") and not name.startswith("core.advantage")}
print(sorted(new - set(sys.stdlib_module_names) - {"core", "numpy"}), sorted(own))
"""


def test_only_numpy_is_imported():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] []"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.93541, "0.935"), (-1.0604, "−1.06"), (12, "12"), (-0.0, "0"), (3e-5, "3e−5"), (1e-6, "1e−6"),
     (1234.5, "1.23e3"), (float("inf"), "inf"), (32768, "32768")],
)  # fmt: skip
def test_numbers_have_three_digits(value, text):
    assert num(value) == text


def test_lists_and_near_names():
    assert [listed(list("abc")[:n]) for n in range(4)] == ["none", "a", "a and b", "a, b and c"]
    assert nearest("gpro", ["grpo", "dapo"]) == "; did you mean grpo?"
    assert nearest("q", ["grpo", "dapo"]) == "; choose from grpo, dapo"
