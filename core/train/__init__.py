"""The training of a run. `core.train.loop.train` is the way in."""

import os

# Read when torch loads OpenMP. Threads that spin while they wait for the others make a step 10 times slower on cores
# that are shared, with a browser say; sleeping costs nothing on idle ones.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
