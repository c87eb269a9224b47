"""JSON of NCCL's example profiler plugin, also as the releases wrote it that are no JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source

_CATEGORIES = (
    rb"GROUP|GROUP_API|COLL|COLL_API|P2P|P2P_API|KERNEL_LAUNCH|PROXY|NET|NET_IB|NET_SOCK|GPU|"
    rb"CE_COLL|CE_SYNC|CE_BATCH"
)
_FIRST = re.compile(
    rb'\s{0,64}\[\s{0,64}\{"name": ?"[^"\\]{1,64}", ?"cat": ?"(?:'
    + _CATEGORIES
    + rb')", ?"ph": ?"[be]", ?"id": ?\d'
)
_EMPTY = re.compile(rb"\s{0,8}\[\n\{\}\]\s{0,8}\Z")
_NAME = re.compile(r"_(\d{1,20})_(\d{1,7})\.json\Z")


def looks_like(head: bytes, name: str) -> bool:
    """Whether a file begins as the plugin's do: its categories, as asynchronous events."""
    return bool(_FIRST.match(head) or (_EMPTY.match(head) and _NAME.search(name)))


def bundle_of(path: str) -> str | None:
    """The folder of a file named `<dump>_<communicator's hash>_<rank>.json` (2.28 and later).

    Such a file holds one communicator of one process: who its ranks are, only the process's other
    files tell. A local file is looked into; a member of an archive is taken by its name, unless
    the number in it is rather a time.
    """
    m = _NAME.search(path)
    if m is None:
        return None
    folder = max(path.rfind("/"), path.rfind("!"))
    local = Path(path)
    try:
        if local.is_file():
            with local.open("rb") as f:
                return path[: max(folder, 0)] or "." if looks_like(f.read(4096), path) else None
    except (OSError, ValueError):
        return None
    number = m[1]
    if len(number) < 17 or (len(number) == 19 and "14" <= number[:2] <= "21"):
        return None
    return path[: max(folder, 0)] or "."


def parse(
    source: Source, *, rank: int | None = None, threads: int = 1
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields batches of a file, or of a folder's files (`source.members`).

    `collectives` with times on the process's steady clock (microseconds since the plugin's start,
    as integer ns), `transfers` of the proxy and of the network plugins, `comms` and `ranks`. The
    kernel's own clock gives the duration where the file has it. Raises UnusableInput where no
    event can be read.
    """
    from .profiler_files import tables_of

    yield from tables_of(source, rank)
