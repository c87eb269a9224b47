"""Nsight Systems reports, exported: detection and parser.

A report is one SQLite file, a folder of one Parquet or Arrow file a table (`--type parquetdir`,
`arrowdir`), or JSON lines (`--type jsonlines`). All hold the same tables and give the same rows.
Which tables and columns exist depends on what was traced and on the version: what is there is
read. One report may hold several processes, that is several ranks, of several hosts.

Times become Unix time by the session start, unless the export added it already
(`--ts-normalize`). An annotation whose name counts iterations makes a step.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ..errors import UnusableInput

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source

SQLITE = b"SQLite format 3\0"
_FIRST_PAGE_KIND = 100
_INTERIOR = b"\x05"

_REPORT = re.compile(r"\.(nsys-rep|qdrep|qdstrm)$", re.I)
_TABLE_FILE = re.compile(
    r"(CUPTI_ACTIVITY_KIND_\w+|NVTX_(EVENTS|PAYLOAD_\w+)|TARGET_INFO_\w+|META_DATA_\w+|ENUM_\w+|"
    r"StringIds|ThreadNames|PROCESSES|ProcessStreams|ANALYSIS_\w+|DIAGNOSTIC_EVENT|"
    r"PROFILER_OVERHEAD|GPU_METRICS|GENERIC_EVENT\w*|NET_\w+|NIC_ID_MAP|MPI_\w+|UCX_\w+|"
    r"OSRT_\w+|CU(DA|DNN|BLAS)_\w+|SCHED_EVENTS|COMPOSITE_EVENTS|SAMPLING_CALLCHAINS|"
    r"NCCL_GPU_OPERATIONS\w*|NCCL_API|EXPORT_META_DATA)\.(parquet|arrows?|feather|ipc)"
)
_EXPORT_FOLDER = re.compile(r"(?:.*[/!])?[^/!]*_(?:pqt|arw)dir", re.S)
_ANY_TABLE_FILE = re.compile(r"\w{1,100}\.(parquet|arrows?|feather|ipc)")
_JSON_TABLE = re.compile(
    rb'^[ \t]*\{[^\n]{0,4000}?"table" {0,4}: {0,4}"'
    rb"(StringIds|CUPTI_ACTIVITY_|NVTX_|TARGET_INFO_|META_DATA_|"
    rb"ANALYSIS_|PROCESSES|ThreadNames|ProcessStreams|ENUM_|DIAGNOSTIC_EVENT|GPU_METRICS|NET_|NIC_|"
    rb"PROFILER_OVERHEAD|OSRT_|MPI_|SCHED_EVENTS|COMPOSITE_EVENTS)",
    re.M,
)
_OLD_JSON = re.compile(rb'^\s*\{"Type":\d+,"(CudaEvent|TraceProcessEvent|NvtxEvent)":\{')
_MARKS = (
    b"CUPTI_ACTIVITY_KIND_", b"NVTX_EVENTS", b"TARGET_INFO_SYSTEM_ENV", b"META_DATA_EXPORT",
    b"TARGET_INFO_SESSION_START_TIME", b"EXPORT_META_DATA", b"NCCL_GPU_OPERATIONS",
)  # fmt: skip


def looks_like(head: bytes, name: str) -> bool:
    """Whether a file is an export of a report, or a report that was not exported."""
    if head.startswith(SQLITE):
        if any(m in head for m in _MARKS):
            return True
        # Where the list of tables outgrew its first page it may be anywhere in a large file.
        outgrown = head[_FIRST_PAGE_KIND : _FIRST_PAGE_KIND + 1] == _INTERIOR
        return (
            outgrown
            and name.lower().endswith((".sqlite", ".sqlite.gz"))
            and (b"rocpd_" not in head)
        )
    if head[:1] == b"{":
        return bool(_JSON_TABLE.search(head) or _OLD_JSON.match(head))
    return _is_report(head, name)


def _is_report(head: bytes, name: str) -> bool:
    return bool(_REPORT.search(name)) and (b"\0" in head or not head[:64].isascii())


def spare(name: str, others: Iterable[str]) -> str | None:
    """The export that was read of a report that cannot be: it lies beside it, by the same name."""
    stem = _REPORT.sub("", name)
    if stem == name:
        return None
    return next((o for o in others if o.startswith((f"{stem}.", f"{stem}_"))), None)


def bundle_of(path: str) -> str | None:
    """The folder of a table's own file (`x_pqtdir/StringIds.parquet`); None for other files."""
    cut = max(path.rfind("/"), path.rfind("!"))
    if cut < 0:
        return None
    folder, file = path[:cut], path[cut + 1 :]
    # The exporter names its folders x_pqtdir and x_arwdir: all tables in one are the report's.
    if _TABLE_FILE.fullmatch(file) or (
        _EXPORT_FOLDER.fullmatch(folder) and _ANY_TABLE_FILE.fullmatch(file)
    ):
        return folder
    return None


def peek_rank(source: Source) -> int | None:
    """Not told without reading: a report may hold several ranks, whatever its name says."""
    return None


def parse(
    source: Source, *, rank: int | None = None, threads: int = 1
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields (table name, batch) of one report.

    `rank` is for a report with one process that does not say its own. Raises UnusableInput for a
    report that was not exported or holds nothing, RankUnknown where nothing tells the ranks, and
    UsageError where one rank is given for several processes.
    """
    if not source.members:
        head = source.head(65536)
        if not head.startswith(SQLITE):
            if _OLD_JSON.match(head):
                raise UnusableInput(
                    "the JSON of older versions of nsys export; export it anew: "
                    "nsys export --type sqlite --include-blobs=true REPORT.nsys-rep",
                    path=source.name,
                )
            if head[:1] != b"{":
                stem = _REPORT.sub("", source.name.replace("!", "/").rsplit("/", 1)[-1])
                raise UnusableInput(
                    "a report of Nsight Systems, which only its own tool can read; export it: "
                    f"nsys export --type sqlite --include-blobs=true "
                    f"-o {stem}.sqlite {stem}.nsys-rep",
                    path=source.name,
                )
    # Only now: every file of a folder is shown to this module, and pyarrow takes its time.
    from .convert import tables_of

    yield from tables_of(source, rank)
