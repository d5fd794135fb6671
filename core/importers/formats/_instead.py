"""What there is where no rollouts of a known format are, so that whoever named it sees why."""

from __future__ import annotations

from pathlib import Path

from core.importers.formats._look import ENDINGS, look
from core.quoted import quoted

BEGINNINGS = {
    b"": "is empty",
    b"PAR1": "is a Parquet file that cannot be read: it is cut off, damaged or encrypted",
    b"PARE": "is an encrypted Parquet file",
    b"PK\x03\x04": "is a zip archive: unpack it first",
    b"\x28\xb5\x2f\xfd": "is packed with zstd: unpack it first",
    b"\xfd7zX": "is packed with xz: unpack it first",
    b"BZh": "is packed with bzip2: unpack it first",
    b"\x1f\x8b": "is a gzip file without JSON objects in it, or a damaged one",
}
"""What a file is whose first bytes are these."""
OTHER = "is neither lines of JSON objects nor Parquet"


def instead(path: Path) -> str:
    """What a file or folder has instead, as the end of a sentence. Names are foreign, and quoted."""
    glances = look(path)
    if not glances:
        return f"no file in it ends in {', '.join(ENDINGS)}"
    seen = next((seen for seen in glances if seen.kind != "unknown"), glances[0])
    name = "it" if seen.path == path else quoted([seen.path.relative_to(path).as_posix()])
    if seen.kind == "parquet":
        return f"{name} has the columns {quoted(seen.columns)}"
    if seen.kind == "json":
        return f"{name} begins with an object of {quoted(seen.rows[0])}"
    return f"{name} {_kind(seen.path)}"


def _kind(path: Path) -> str:
    try:
        with path.open("rb") as file:
            head = file.read(4)
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    fitting = (words for start, words in BEGINNINGS.items() if head == start or (start and head.startswith(start)))
    return next(fitting, OTHER)
