"""Who may import what: pages and the command line never wait for torch, the core never knows of the browser."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HEAVY = {"torch", "transformers", "peft", "accelerate", "vllm"}
WITH_TORCH = (
    "core.engines", "core.train", "core.models.convert", "core.models.load", "core.models.pretrain",
    "core.exporters.files", "core.exporters.merged",
)  # fmt: skip
"""The only rooms where torch may be imported; their torch-free modules are not listed one by one."""


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted((ROOT / "core").rglob("*.py"))}
LIGHT = [
    name
    for name in MODULES
    if name != "core.__main__" and not any(name == room or name.startswith(room + ".") for room in WITH_TORCH)
]


def loaded_after(code: str) -> set[str]:
    """The top-level packages in sys.modules after running code in a fresh process."""
    code += "\nimport sys; print('\\n' + ' '.join({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return set(done.stdout.splitlines()[-1].split())


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """The modules that a file imports, and whether at its top level (not inside a function or for type checkers)."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    top = set(map(id, tree.body))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, id(node) in top) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, id(node) in top


def test_the_lists_are_not_empty() -> None:
    assert {"core.config", "core.runs.worker", "core.store.sql", "core.cli.look", "core.models.catalog"} <= set(LIGHT)
    assert "core.train.loop" not in LIGHT


def test_what_pages_and_commands_use_is_free_of_torch() -> None:
    loaded = loaded_after("import importlib\n" + "\n".join(f"importlib.import_module({name!r})" for name in LIGHT))
    assert "numpy" in loaded
    assert not loaded & (HEAVY | {"streamlit"})


def test_a_command_that_starts_at_once_loads_next_to_nothing(tmp_path: Path) -> None:
    loaded = loaded_after(f"from core.cli import main; assert main(['list', '--runs', {str(tmp_path)!r}]) == 0")
    assert not loaded & (HEAVY | {"numpy", "pandas", "pyarrow", "duckdb", "streamlit"})


def test_sql_loads_its_database_and_no_more(tmp_path: Path) -> None:
    loaded = loaded_after(
        f"from core.cli import main; assert main(['sql', 'SELECT 1', '--runs', {str(tmp_path)!r}]) == 0"
    )
    assert "duckdb" in loaded
    assert not loaded & (HEAVY | {"pandas", "streamlit"})


def test_a_waiting_worker_is_small() -> None:
    loaded = loaded_after("import core.runs.worker")
    assert not loaded & (HEAVY | {"numpy", "pandas", "pyarrow", "duckdb", "pydantic"})


@pytest.mark.parametrize("name", MODULES)
def test_core_knows_nothing_of_the_browser(name: str) -> None:
    assert not [module for module, _ in imports(MODULES[name]) if module.partition(".")[0] in ("streamlit", "app")]


def test_advantages_need_only_numpy() -> None:
    allowed = {"numpy", "core", "__future__", *sys.stdlib_module_names}
    for name, path in MODULES.items():
        if name.startswith("core.advantage"):
            for module, _ in imports(path):
                assert module.partition(".")[0] in allowed, (name, module)
                assert not module.startswith("core.") or module.startswith("core.advantage"), (name, module)


def test_the_project_names_no_model_code_it_would_run() -> None:
    for path in MODULES.values():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword) and node.arg == "trust_remote_code":
                assert isinstance(node.value, ast.Constant) and node.value.value is False, path
