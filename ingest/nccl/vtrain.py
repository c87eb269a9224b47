"""Measured tables of vTrain, CSV: all-reduce times by size, iteration times by configuration."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..errors import UnusableInput, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from ..collect import Collector
    from ..sources import Source

_CURVE = ("size(b)", "count", "type", "time(ns)", "busbw(gb/s)")
_CONFIGURATION = {
    "# gpus": "n_gpus",
    "global batch": "global_batch",
    "micro batch": "micro_batch",
    "hidden size": "hidden",
    "attention heads": "heads",
    "# layers": "layers",
    "sequence length": "seq_len",
    "tensor parallelism": "tp",
    "data parallelism": "dp",
    "pipeline parallelism": "pp",
}
_TIME = "iteration time (ms)"
_NAMED = re.compile(r"(?:^|[/\\!])(AR|AG|RS)_GPU(\d{1,6})", re.I)
_OPS = {"AR": "all_reduce", "AG": "all_gather", "RS": "reduce_scatter"}


def _columns(line: bytes) -> list[str]:
    text = line[:4096].decode("utf-8-sig", "replace")
    return [c.strip().lower() for c in text.split(",")]


def looks_like(head: bytes, name: str) -> bool:
    """Whether a file's first line is the heading of one of the two tables."""
    return _known(_columns(head[:4096].split(b"\n", 1)[0]))


def _known(columns: list[str]) -> bool:
    if tuple(columns[:5]) == _CURVE:
        return True
    return _TIME in columns and len(_CONFIGURATION.keys() & set(columns)) >= 6


def parse(
    source: Source, *, rank: int | None = None, threads: int = 1
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields batches of `cost_curves` or of `configurations`, and of `problems`.

    A curve's first pair of time and bandwidth is out of place, its second in place, as in the
    nccl-tests tables it was made from. The operation and the ranks are in the file's name only
    (AR_GPU8); where they are not, the ratio of bus bandwidth to speed tells them. Raises
    UnusableInput where no row can be read, UsageError where a `rank` is given.
    """
    if rank is not None:
        raise UsageError(f"{source.name}: a table of measurements belongs to no rank; drop --rank")
    from ..collect import Collector
    from ..texts import lines

    collector = Collector(source)
    columns: list[str] = []
    n = 0
    for offset, line, _ in lines(source, collector.odd, 1 << 20):
        if not columns:
            columns = _columns(line)
            if not _known(columns):
                raise UnusableInput("its heading is none of vTrain's tables", path=source.name)
            continue
        cells = [c.strip() for c in line[:4096].decode("utf-8", "replace").split(",")]
        if cells == [""]:
            continue
        if len(cells) != len(columns):
            collector.odd(
                "not_a_row",
                f"a line of {len(cells)} fields where the heading has {len(columns)}; "
                "it is left out",
                "lost",
                offset=offset,
            )
            continue
        if _TIME in columns:
            _configuration(dict(zip(columns, cells, strict=True)), offset, collector)
        else:
            _points(columns, cells, source.name, offset, collector)
        n += 1
        if n % 4096 == 0:
            yield from collector.full()
    if not n:
        raise UnusableInput("a table of vTrain without a row", path=source.name)
    yield from collector.rest()


def _number(text: str, places: int) -> int | None:
    from ..values import scaled

    return scaled(text, places)


def _configuration(row: dict[str, str], offset: int, collector: Collector) -> None:
    values: dict[str, Any] = {
        ours: _number(row[theirs], 0) for theirs, ours in _CONFIGURATION.items() if theirs in row
    }
    step_ns = _number(row[_TIME], 6)
    if step_ns is None:
        collector.odd(
            "time_not_a_number", "an iteration time that is no number is null", offset=offset
        )
    degrees = [values.get(k) for k in ("n_gpus", "tp", "dp", "pp")]
    if all(isinstance(d, int) for d in degrees) and degrees[0] != _product(degrees[1:]):
        collector.odd(
            "degrees_do_not_multiply",
            "tensor, data and pipeline degrees do not multiply to the number of GPUs",
            offset=offset,
        )
    collector.add("configurations", step_ns=step_ns, source="vtrain", **values)


def _product(numbers: list[Any]) -> int:
    out = 1
    for n in numbers:
        out *= n
    return out


def _points(
    columns: list[str], cells: list[str], name: str, offset: int, collector: Collector
) -> None:
    from ..classify import dtype_of

    dtype = dtype_of(cells[2])
    size = _number(cells[0], 0)
    if size is None or size < 0:
        collector.odd("not_a_row", "a row without a size is left out", "lost", offset=offset)
        return
    times = [i for i, c in enumerate(columns) if c == "time(ns)"][:2]
    for i in times:
        time_ns = _number(cells[i], 0)
        after = columns[i + 1] if i + 1 < len(columns) else ""
        busbw = _number(cells[i + 1], 9) if after == "busbw(gb/s)" else None
        if time_ns is None or time_ns < 0:
            collector.odd("time_not_a_number", "a time that is no number is null", offset=offset)
            time_ns = None
        op, n_ranks = _said(name, size, time_ns, busbw, collector)
        collector.add(
            "cost_curves",
            op=op,
            bytes=size,
            n_ranks=n_ranks,
            dtype=dtype.name if dtype is not None else cells[2],
            in_place=i != times[0],
            time_ns=time_ns,
            busbw_bytes_per_s=busbw,
            tool="vtrain",
            run="0",
        )


def _said(
    name: str, size: int, time_ns: int | None, busbw: int | None, collector: Collector
) -> tuple[str, int | None]:
    """(op, ranks) from the file's name, else from busbw = size / time * 2 (n - 1) / n."""
    if m := _NAMED.search(name):
        return _OPS[m[1].upper()], int(m[2])
    factor = busbw * time_ns / (size * 1e9) if busbw and time_ns and size else 0.0
    if not 1.05 < factor < 1.995:
        collector.odd(
            "op_unknown",
            "neither the file's name (AR_GPU8) nor the bandwidths tell the operation and the ranks",
        )
        return "unknown", None
    collector.odd(
        "op_from_table",
        "the file's name does not tell the operation and the ranks; an all-reduce's ratio of bus "
        "bandwidth to speed does",
        "info",
    )
    return "all_reduce", round(2 / (2 - factor))
