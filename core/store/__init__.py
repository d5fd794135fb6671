"""The store: steps written whole, runs read as one set of tables."""

from core.store.check import CheckReport, check
from core.store.errors import StoreError
from core.store.factors import write_schema
from core.store.open import Lab, StepLab, fingerprint, open_runs
from core.store.pack import pack
from core.store.record import SplitRecord, StepRecord
from core.store.replay import Replay, replay, stored_batch
from core.store.seal import seal, sweep
from core.store.writer import drop_steps_from, step_numbers, write_step

__all__ = [
    "CheckReport",
    "Lab",
    "Replay",
    "SplitRecord",
    "StepLab",
    "StepRecord",
    "StoreError",
    "check",
    "drop_steps_from",
    "fingerprint",
    "open_runs",
    "pack",
    "replay",
    "seal",
    "step_numbers",
    "stored_batch",
    "sweep",
    "write_schema",
    "write_step",
]
