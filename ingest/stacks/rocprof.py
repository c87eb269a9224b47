"""ROCm's rocprofv3, JSON and CSV output of one process: detection and parser.

Times are nanoseconds of the host's boot-time clock: the same for all processes of a host, with no
relation to the Unix epoch. `--output-format json` gives one file a process,
`--output-format csv` one file for each kind of record, which make one source together. The other
forms (rocpd, the default since ROCm 7, and Perfetto) are refused with the command that helps.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..errors import UnusableInput
from ..values import rank_in_name

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source

JSON_MARK = b'"rocprofiler-sdk-tool"'
_SQLITE = b"SQLite format 3\0"
_CSV = re.compile(
    r"(?P<stem>.*[/\\!])(?P<run>[^/\\!]*?)_?(?P<kind>kernel_trace|memory_copy_trace|rccl_api_trace"
    r"|hip_api_trace|marker_api_trace|hsa_api_trace|scratch_memory_trace|memory_allocation_trace"
    r"|counter_collection|agent_info|(?:kernel|memory_copy|rccl_api|hip_api|hsa_api|marker_api"
    r"|scratch_memory|memory_allocation|domain)_stats)\.csv(?:\.gz)?",
    re.I,
)

_USE = "run rocprofv3 with --output-format json (or csv)"


def looks_like(head: bytes, name: str) -> bool:
    """Whether a file is rocprofv3's JSON, or one of its other forms, which parsing refuses."""
    if head[:16] == _SQLITE:
        return b"rocpd_" in head
    if name.lower().endswith(".pftrace"):
        return head[:1] == b"\n"
    return head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{" and JSON_MARK in head[:4096]


def bundle_of(path: str) -> str | None:
    """`<folder>/<run>` for the CSV files of one process, which share the start of their name."""
    found = _CSV.fullmatch(path) or _CSV.fullmatch(f"./{path}")
    if found is None:
        return None
    return found["stem"] + (found["run"] or "rocprofv3")


def csv_kind(path: str) -> str | None:
    """`kernel_trace` and the like, from the name of a CSV file."""
    found = _CSV.fullmatch(path) or _CSV.fullmatch(f"./{path}")
    return found["kind"].lower() if found else None


def peek_rank(source: Source) -> int | None:
    """The rank in the file's or folder's name (`-d out/rank%rank%`), else None."""
    return rank_in_name(source.name)


def parse(
    source: Source, *, rank: int | None = None, threads: int = 1
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields (table name, batch): events, steps, collectives, one row of ranks, problems.

    A collective is a communication kernel; its op comes from the RCCL call that launched it, else
    from its name. Without kernels the RCCL calls themselves are the collectives, with the host's
    time. Raises UnusableInput where nothing is readable, RankUnknown where neither the recorded
    environment nor the name says a rank and none is given.
    """
    if source.members:
        from .rocprof_csv import tables_of_csv

        yield from tables_of_csv(source, rank)
        return
    head = source.head(16)
    if head == _SQLITE:
        raise UnusableInput(
            f"a rocpd database: {_USE}, or convert it with `rocpd convert -i FILE "
            "--output-format csv` and ingest that",
            path=source.name,
        )
    if source.name.lower().endswith(".pftrace"):
        raise UnusableInput(
            f"a Perfetto trace: {_USE}; PyTorch's profiler writes JSON", path=source.name
        )
    from .rocprof_json import tables_of_json

    yield from tables_of_json(source, rank)
