"""vLLM's expert load: `EPLB step` log lines, saved load arrays, and load histories in JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source

KEYS = ("expert_load_pass", "expert_load_window", "routed_experts")
_LINE = re.compile(rb"EPLB step: .{0,300}avg_tokens=[\d.]{1,30}, max_tokens=\d")
_LOG = re.compile(rb"^(?:\([^)\n]{1,80}\) )?INFO \d\d-\d\d \d\d:\d\d:\d\d \[", re.M)
_NOT_LOGS = (".md", ".rst", ".py", ".html", ".json", ".csv", ".ipynb", ".patch", ".diff")
"""Endings of documents and programs, which may quote a log."""
_NPY = re.compile(r"(?:^|[/\\!])(?:expert_load|routed_experts)[^/\\!]*\.npy$")


def looks_like(head: bytes, name: str) -> bool:
    """Whether it is a vLLM log with expert balancing on, or arrays under the names vLLM gives."""
    if head[:6] == b"\x93NUMPY":
        return _NPY.search(name) is not None
    if head[:4] == b"PK\x03\x04":
        from .arrays import named

        return bool(named(head, KEYS))
    if head.lstrip()[:1] == b"{":
        return b'"load_history"' in head[:4096] and b'_expert_load"' in head
    if name.endswith(_NOT_LOGS):
        return False
    if b"EPLB step:" in head and _LINE.search(head):
        return True
    return b"enable_eplb" in head and _LOG.search(head) is not None


def looks_like_further(source: Source) -> bool:
    """Whether a vLLM log comes to a line of expert load after its first 64 KiB."""
    if source.name.endswith(_NOT_LOGS) or _LOG.search(source.head(65536)) is None:
        return False
    last = b""
    with source.open() as f:
        while block := f.read(1 << 20):
            if b"EPLB step:" in last + block:
                return True
            last = block[-16:]
    return False


def parse(
    source: Source, *, rank: int | None = None, threads: int = 1
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields `counters` of the log's lines, or `routing` of the arrays, and `problems`.

    Raises UnusableInput where there is neither.
    """
    from .vllm_rows import array_rows, history_rows, log_rows

    head = source.head(16)
    if head[:6] == b"\x93NUMPY" or head[:4] == b"PK\x03\x04":
        yield from array_rows(source, rank)
    elif head.lstrip()[:1] == b"{":
        yield from history_rows(source, rank)
    else:
        yield from log_rows(source)
