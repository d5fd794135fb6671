"""`python -m core …`: the browser's twin. `python -m core --help` lists the commands."""

import sys

from core.cli import main

sys.exit(main())
