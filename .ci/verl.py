"""Make .venv-verl: verl beside the packages of the environment whose Python runs this, which stays as it is.

verl asks for other versions than the lab does, and its wheel brings a package named `tests`. So it goes into an
environment of its own, which borrows torch and the rest through a .pth file instead of installing them twice.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import venv
from importlib.metadata import distributions
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACE = ROOT / ".venv-verl"
REQUIREMENTS = ROOT / "tests" / "verl" / "requirements.txt"


def installed() -> set[tuple[str, str]]:
    """Name and version of every package in this environment."""
    return {(each.name, each.version) for each in distributions()}


def main() -> None:
    before = installed()
    venv.create(PLACE, clear=True, with_pip=False)
    python = PLACE / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps"]
    done = subprocess.run([*pip, "-r", str(REQUIREMENTS)], check=False)
    if done.returncode:
        sys.exit(done.returncode)
    asked = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site = Path(subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip())
    shutil.rmtree(site / "tests", ignore_errors=True)  # verl's own, which would stand in front of the project's
    borrowed = dict.fromkeys((sysconfig.get_path("purelib"), sysconfig.get_path("platlib")))
    (site / "borrowed.pth").write_text("\n".join(borrowed) + "\n", encoding="utf-8")
    if installed() != before:
        sys.exit("installing verl changed the environment that it only borrows from")


if __name__ == "__main__":
    main()
