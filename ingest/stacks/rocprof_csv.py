"""rocprofv3 CSV files of one process, read together."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .. import texts
from ..kineto.rawbatch import NULL
from .rocprof import csv_kind
from .rocprof_rows import Records, rank_of
from .timeline import whole_number

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source

_APIS = {"hip_api_trace": "runtime", "rccl_api_trace": "runtime", "marker_api_trace": "annotation"}
_READ = ("agent_info", *_APIS, "kernel_trace", "memory_copy_trace")
"""In this order: what is looked up comes first."""

_FULL_EVERY = 16384
_MOST_LINE_BYTES = 1 << 20

Row = dict[str, str]


def tables_of_csv(source: Source, rank: int | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The tables of a bundle of CSV files; see `rocprof.parse`. Raises as that does."""
    odd: list[tuple[tuple, dict]] = []
    found = rank_of(source, None, rank, lambda *a, **k: odd.append((a, k)))
    records = Records(source, found)
    for args, more in odd:
        records.c.odd(*args, **more)
    devices, of_rank, n = _Devices(), {}, 0
    by_kind = {csv_kind(m.name): m for m in source.members}
    for kind in _READ:
        member = by_kind.pop(kind, None)
        if member is None:
            continue
        for row in _rows(member, records):
            if kind == "agent_info":
                devices.add(row)
                continue
            _row(kind, row, records, devices, of_rank)
            n += 1
            if n % _FULL_EVERY == 0:
                yield from records.full()
    for kind in by_kind:
        records.c.odd("not_stored", f"no table has room for {kind}.csv and the like", "info")
    device = records.time.main_device
    of_rank |= {"host_source": "unknown", "device": device, **devices.of_rank(device)}
    yield from records.rest(None, **of_rank)


class _Devices:
    """Agents of the host, from `agent_info`: which of them are GPUs."""

    def __init__(self) -> None:
        self._gpus: list[Row] = []
        self._places: dict[str, int] = {}

    def add(self, row: Row) -> None:
        """Takes in a row of `agent_info`."""
        if row.get("agent_type") == "GPU" and len(self._gpus) < 65536:
            self._gpus.append(row)
            for key in ("node_id", "logical_node_id"):
                self._places.setdefault(row.get(key, ""), len(self._gpus) - 1)

    def index(self, agent: str) -> int:
        """The index of a GPU (`Agent 7`, `GPU 3` or a number); NULL for another agent."""
        number = re.fullmatch(r"(?:(Agent|GPU|CPU)[ _])?(\d{1,9})", agent.strip(), re.I)
        if number is None or (number[1] or "").upper() == "CPU":
            return NULL
        if (number[1] or "").upper() == "GPU" or not self._gpus:
            return int(number[2])
        return self._places.get(number[2], NULL)

    def of_rank(self, device: int | None) -> dict[str, object]:
        """Columns of `ranks`."""
        if device is None or not 0 <= device < len(self._gpus):
            return {"n_devices": len(self._gpus) or None}
        mine = self._gpus[device]
        cus = whole_number(mine.get("cu_count"))
        return {
            "n_devices": len(self._gpus),
            "device_name": mine.get("product_name") or mine.get("name") or None,
            "n_sms": None if cus == NULL else cus,
        }


def _rows(member: Source, records: Records) -> Iterator[Row]:
    """Rows by the names of their columns in lower case (their case differs between releases)."""
    header: list[str] | None = None
    for offset, line, whole in texts.lines(member, records.c.odd, _MOST_LINE_BYTES):
        text = line.decode("utf-8", "replace").lstrip("\ufeff")
        if not text.strip():
            continue
        try:
            cells = next(csv.reader([text], strict=True))
        except (csv.Error, StopIteration):
            cells = []
        if header is None:
            header = [h.strip().lower() for h in cells]
        elif len(cells) != len(header):
            what = "a line with another number of columns than its header; left out"
            records.c.odd("bad_line" if whole else "truncated", what, "lost", offset=offset)
        else:
            yield dict(zip(header, cells, strict=True))


def _row(
    kind: str, row: Row, records: Records, devices: _Devices, of_rank: dict[str, object]
) -> None:
    def number(column: str) -> int:
        return whole_number(row.get(column))

    start, end = number("start_timestamp"), number("end_timestamp")
    correlation, stream = number("correlation_id"), number("stream_id")
    if kind == "kernel_trace":
        grid, group = (
            tuple(number(f"{size}_size_{k}") for k in "xyz") for size in ("grid", "workgroup")
        )
        records.kernel(
            row.get("kernel_name") or "kernel", start, end, correlation=correlation,
            thread=number("thread_id"), device=devices.index(row.get("agent_id", "")),
            stream=number("queue_id") if stream == NULL else stream,
            grid=grid, group=group,  # type: ignore[arg-type]
        )  # fmt: skip
    elif kind == "memory_copy_trace":
        to = devices.index(row.get("destination_agent_id", ""))
        by = devices.index(row.get("source_agent_id", ""))
        records.copy(
            row.get("direction") or "", start, end, correlation=correlation, stream=stream,
            device=to if to != NULL else by, n_bytes=NULL,
        )  # fmt: skip
        records.c.odd("copies_without_sizes", "the CSV form has no sizes of copies: bytes are "
                      "null (--output-format json has them)", "info")  # fmt: skip
    else:
        pid = number("process_id")
        if pid != NULL:
            of_rank.setdefault("pid", pid)
        records.host(
            _APIS[kind], row.get("function") or kind, start, end,
            thread=number("thread_id"), correlation=correlation,
        )  # fmt: skip
