"""EPLB's weight matrix [layers, logical experts], with the placement computed from it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source

MAPS = ("phy2log", "log2phy", "logcnt", "physical_to_logical_map", "logical_to_physical_map",
        "logical_count", "expert_count")  # fmt: skip
SIZES = ("num_replicas", "num_groups", "num_nodes", "num_gpus")
_KEY = re.compile(rb'"(?:' + "|".join((*MAPS, *SIZES)).encode() + rb')"\s*:')
_MATRIX = re.compile(rb'"(?:weight|phy2log|log2phy)"\s*:\s*\[')
_FILE = re.compile(r"eplb[^/\\!]*\.(?:npy|csv|json)(?:\.gz)?$", re.I)
_ROW = re.compile(rb"[\d.eE+-]{1,30}(?:[,;\t] ?[\d.eE+-]{1,30}){1,20000}\r?\n")


def looks_like(head: bytes, name: str) -> bool:
    """Whether it holds a weight matrix beside EPLB's own names, or is a matrix named after EPLB."""
    start = head.lstrip()[:2]
    if head[:4] == b"PK\x03\x04":
        from .arrays import named

        found = named(head, ("weight", *MAPS))
        return bool(found & {"phy2log", "log2phy"}) or ("weight" in found and len(found) > 1)
    if start[:1] == b"{":
        return _KEY.search(head) is not None and _MATRIX.search(head) is not None
    if _FILE.search(name) is None:
        return False
    return head[:6] == b"\x93NUMPY" or start == b"[[" or _ROW.match(head) is not None


def parse(
    source: Source, *, rank: int | None = None, threads: int = 1
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields `routing`: the load of each logical expert, and where its replicas are.

    `tokens` is the load (null in rows that only place a replica), `rank` null, `layer` the row of
    the matrix. Raises UnusableInput where there is neither matrix nor map.
    """
    from .eplb_rows import rows_of

    yield from rows_of(source)
