"""Reading and writing runs needs neither torch nor streamlit, and pandas only where a data frame is asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[3]


def test_the_store_stays_light() -> None:
    code = (
        "import sys, pkgutil, importlib, core.store, core.store.queries as queries\n"
        "for module in pkgutil.iter_modules(core.store.__path__):\n"
        "    importlib.import_module('core.store.' + module.name)\n"
        "for module in pkgutil.iter_modules(queries.__path__):\n"
        "    importlib.import_module('core.store.queries.' + module.name)\n"
        "print(sorted({'torch', 'transformers', 'peft', 'streamlit', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
