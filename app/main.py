"""The lab's entry: `python -m streamlit run app/main.py [-- --runs DIR]` from the project's folder."""

from __future__ import annotations

import sys
from pathlib import Path

if (project := str(Path(__file__).resolve().parent.parent)) not in sys.path:
    sys.path.insert(0, project)  # so that it also starts from elsewhere

from app.navigation import show

show()
