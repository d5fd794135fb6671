"""What the browser's side may import, seen in a fresh process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "app").rglob("*.py")
    if path.name not in ("__init__.py", "main.py")
)
HEAVY = ("torch", "transformers", "peft", "accelerate", "vllm")


def test_no_page_imports_the_trainers_world():
    code = (
        "import importlib, sys\n"
        f"for name in {MODULES!r}: importlib.import_module(name)\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == "[]"


def test_drawing_every_page_imports_it_no_more_than_that(states):
    code = (
        "import sys\n"
        "from streamlit.testing.v1 import AppTest\n"
        "at = AppTest.from_file('app/main.py', default_timeout=60).run()\n"
        "for name in ('live', 'launch', 'imports', 'tokens', 'polarity', 'favorability', 'whatif', 'compare'):\n"
        "    at.switch_page(f'pages/{name}.py').run()\n"
        "    assert not at.exception, (name, at.exception)\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip().endswith("[]")


@pytest.mark.parametrize("folder", ["core"])
def test_core_never_imports_streamlit(folder):
    found = [
        str(path.relative_to(ROOT))
        for path in (ROOT / folder).rglob("*.py")
        if any(
            line.split()[:2] in (["import", "streamlit"], ["from", "streamlit"]) for line in path.open(encoding="utf-8")
        )
    ]
    assert found == []
