"""Output of nccl-tests and rccl-tests (text, JSON, CSV) as measured cost curves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..errors import UnusableInput, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source

_PREFIX = rb"(?m)^(?: {0,8}\d{1,7}: ?|\[\d{1,6},\d{1,7}\]<\w{6}>: ?|[\w.-]{1,255}: )?"
_HEADING = re.compile(
    _PREFIX
    + rb"(?:# {1,20}size {1,20}count {1,20}type |# nThread \d{1,6} nGpus \d|"
    + rb"# nccl-tests version|# Collective test starting: \w|"
    + rb"### (?:ALGO|PROTO|GPUS|NRANKS|CHANNELS)=\w)"
)
_TYPES = (
    rb"u?int\d{1,2}|int|char|half|float|double|b?float\d{1,2}|fp8_e\dm\d|f8e\dm\d|float8_e\dm\d"
)
_ROW = re.compile(
    _PREFIX + rb" {0,14}\d{1,18} {1,20}\d{1,18} {1,20}(?:" + _TYPES + rb")(?: {1,20}[a-z]{2,10})?"
    rb"(?: {1,20}-?\d{1,6})?(?: {1,12}(?:[\d.]{1,12}|nan|N/A)){6,}"
)
_NCCL_JSON = re.compile(rb'\s{0,64}\{"version":\d{1,4},"start_time":"[^"]{0,40}","args":\[')
_RCCL_JSON = re.compile(rb'\s{0,64}(?:\[\s{0,64})?\{"(?:numCycle|name)":[^\n]{0,400}"inPlace":')
_RCCL_CSV = re.compile(rb"\s{0,64}(?:numcycle, ?)?collective, ?[^\n]{0,200}busbw", re.I)
_LOG_LINES = 8
"""With so many lines of a debug log it is one, with a table in it; its own parser reads both."""


def looks_like(head: bytes, name: str) -> bool:
    """Whether a file is what nccl-tests or rccl-tests print or write."""
    if _NCCL_JSON.match(head) or _RCCL_JSON.match(head) or _RCCL_CSV.match(head):
        return True
    if name.lower().endswith((".md", ".rst", ".py", ".sh", ".html")) or b"\0" in head[:4096]:
        return False
    if head.count(b" NCCL INFO ") >= _LOG_LINES:
        return False
    return bool(_HEADING.search(head) or _ROW.search(head))


def parse(
    source: Source, *, rank: int | None = None, threads: int = 1
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields batches of `cost_curves` and `problems`: a row for each half of a measured line.

    Sizes are the benchmark's own (the whole buffer), times integer ns. The debug log's lines in a
    text are passed over, but for the algorithm, protocol and channels that they give for a size.
    Raises UnusableInput where there is no measured row, UsageError where a `rank` is given.
    """
    if rank is not None:
        raise UsageError(f"{source.name}: a benchmark's table belongs to no rank; drop --rank")
    from ..collect import Collector

    collector = Collector(source)
    head = source.head(65536)
    if _NCCL_JSON.match(head) or _RCCL_JSON.match(head) or _RCCL_CSV.match(head):
        from . import nccl_tests_json as written

        if _NCCL_JSON.match(head):
            n = written.nccl_document(source, collector)
        elif _RCCL_JSON.match(head):
            n = written.rccl_lines(source, collector)
        else:
            n = written.rccl_csv(source, collector)
    else:
        n = _text(source, collector)
    if not n:
        raise UnusableInput("no measured row of nccl-tests or rccl-tests in it", path=source.name)
    yield from collector.rest()


def _text(source: Source, collector) -> int:
    from ..texts import lines
    from .nccl_tests_text import TableReader

    reader = TableReader(source.name)
    for offset, line, _ in lines(source, collector.odd, 1 << 20):
        if line:
            reader.feed(line[:8192].decode("utf-8", "replace"), offset)
    reader.rows(collector)
    return reader.rows_seen
