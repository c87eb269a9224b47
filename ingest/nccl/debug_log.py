"""NCCL's (and RCCL's) debug text logs, `NCCL_DEBUG=INFO`: detection and parser.

The log may be a job's whole output: other lines are passed over, launchers' prefixes, lines that
ran together and processes that interleave are taken apart. It gives ranks, communicators,
rings, trees and links, which channel uses which NIC, the algorithms chosen, and, where the
subsystem COLL was asked for, every collective without times. A table of nccl-tests in the same
file becomes `cost_curves`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..errors import UnusableInput
from .debug_log_lines import messages

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source

_NOT_LOGS = (
    ".md", ".rst", ".py", ".pyi", ".ipynb", ".html", ".htm", ".c", ".cc", ".cpp", ".cu", ".h",
    ".hpp", ".rs", ".go", ".sh", ".sbatch", ".yaml", ".yml", ".toml", ".json", ".xml", ".csv",
    ".tsv", ".js", ".ts", ".patch", ".diff",
)  # fmt: skip
"""Endings of documents and programs, which may quote a log."""
_SEARCH_BYTES = 256 << 20
_BLOCK = 1 << 20


HASHES_ALONE = True
"""With one thread `parse` hashes what compiled code reads; of what is read line by line the hash
comes after it."""


def looks_like(head: bytes, name: str) -> bool:
    """Whether a text holds a message of NCCL's debug log; documents that quote one do not count."""
    if b" NCCL " not in head or b"\0" in head[:4096] or head[:1] in (b"{", b"<"):
        return False
    if name.lower().removesuffix(".gz").endswith(_NOT_LOGS):
        return False
    return _has_message(head)


def looks_like_further(source: Source) -> bool:
    """Whether a text whose head says nothing has such messages further on.

    A job's output begins with whatever its scripts print. The first 256 MiB are searched.
    """
    head = source.head(4096)
    if b"\0" in head or head[:1] in (b"{", b"<") or not _is_text(head):
        return False
    if source.name.lower().removesuffix(".gz").endswith(_NOT_LOGS):
        return False
    seen, last = 0, b""
    try:
        with source.open() as f:
            while seen < _SEARCH_BYTES and (block := f.read(_BLOCK)):
                seen += len(block)
                if b" NCCL " in block and _has_message(last + block):
                    return True
                last = block[-1024:]
    except OSError:
        return False  # the caller says of such a file what it is
    return False


def _is_text(head: bytes) -> bool:
    strange = sum(1 for c in head if c < 32 and c not in b"\t\n\r\x1b\x08\x07\x0c")
    return strange * 100 <= len(head)


def _has_message(data: bytes) -> bool:
    at = data.find(b" NCCL ")
    for _ in range(1000):
        if at < 0:
            return False
        low = max(data.rfind(b"\n", 0, at) + 1, at - 600)
        if messages(data[low : at + 64]):
            return True
        at = data.find(b" NCCL ", at + 1)
    return False


def prepare(n_bytes: int) -> None:
    """Told how many (decompressed) bytes this process is about to parse, in all files together."""
    from . import compiled_code
    from .debug_log_scan_code import CODE

    compiled_code.prepare(n_bytes, CODE)


def parse(
    source: Source, *, rank: int | None = None, threads: int = 1
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields (table name, batch) of one log, which may hold any number of processes.

    `rank` is the global rank of a log of one process. A process that nobody says a rank of has
    its rank in its largest communicator. Two passes: who is who, then the rows. Raises
    UnusableInput where no message of NCCL is in it, UsageError where `rank` is given for a log
    of several processes.
    """
    from .debug_log_rows import tables_of

    found = False
    for item in tables_of(source, rank, threads):
        found = True
        yield item
    if not found:
        raise UnusableInput("no message of NCCL's debug log is in it", path=source.name)
