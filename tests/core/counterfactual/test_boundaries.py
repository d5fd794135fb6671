"""What-if questions on a batch need numpy and the rules; the store only where a run is asked."""

import subprocess
import sys

SCRIPT = """
import sys
before = set(sys.modules)
import core.counterfactual
new = {name.partition(".")[0] for name in set(sys.modules) - before}
rooms = ("core.advantage", "core.counterfactual")
own = {name for name in sys.modules if name.startswith("core.") and not name.startswith(rooms)}
print(sorted(new - set(sys.stdlib_module_names) - {"core", "numpy"}), sorted(own))
"""


def test_only_numpy_and_the_rules_are_imported():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] []"
