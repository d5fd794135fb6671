"""Token texts that try to be more than text, and a run whose every token is one of them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.synthetic import make_run

HOSTILE = (
    "<img src=x onerror=\"document.title='pwned'\">", "<script>document.title='pwned'</script>", "\u202eevil",
    "\x00\x1b[31m", "$$x^2$$", "![x](http://127.0.0.1:9/x.png)",
)  # fmt: skip


def make_hostile_run(root: Path) -> Path:
    """The run `hostile` with two steps of such tokens."""
    path = make_run(root, "hostile", steps=2, prompts=2, group_size=4)
    for file in path.glob("steps/*/tokens.parquet"):
        table = pq.read_table(file)
        place = table.schema.get_field_index("token")
        evil = pa.array([HOSTILE[i % len(HOSTILE)] for i in range(len(table))])
        pq.write_table(table.set_column(place, table.schema.field(place), evil), file)
    return path
