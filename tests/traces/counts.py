"""Counts of real files taken without retime: a few lines of json, sqlite3, zipfile or re each."""

from __future__ import annotations

import gzip
import json
import tarfile
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple


class Count(NamedTuple):
    """A number counted on the source, and the query on the warehouse that must give it."""

    what: str
    n: int
    sql: str


NOT_TRACES = {
    "README.md": "the collection's own text",
    "FILES.tsv": "the collection's own list",
    "licences/*": "a licence",
    "*/fault_injection.log": "what was injected, in one sentence",
    "*/reference_outputs/*": "another tool's answer",
    "straggler/*/m[sw]-*.json": "the study's published answers",
    "straggler/*/result-*.json": "the study's published answers",
    "straggler/*/meta-*.yaml": "read with the trace of the same name",
}
"""Files beside the traces that are none, and what they are."""

_COUNTERS: list[tuple[str, Callable[[Path], Iterator[Count]]]] = []


def counter(*patterns: str):
    """Registers an independent count for the files of some patterns (relative paths)."""

    def register(count):
        _COUNTERS.extend((p, count) for p in patterns)
        return count

    return register


def counts_of(path: Path, relative: str) -> list[Count]:
    """The independent counts of a file; [] where none is registered."""
    for pattern, count in _COUNTERS:
        if fnmatch(relative, pattern):
            return list(count(path))
    return []


def not_a_trace(relative: str) -> str | None:
    """What a file is that is no trace; None for traces."""
    return next((w for p, w in NOT_TRACES.items() if fnmatch(relative, p)), None)


def plain(path: Path) -> bytes:
    """A file's bytes, decompressed."""
    data = path.read_bytes()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def members(path: Path) -> Iterator[tuple[str, bytes]]:
    """Files of a tar, decompressed."""
    with tarfile.open(path) as tar:
        for info in tar:
            if info.isreg() and not Path(info.name).name.startswith("."):
                data = tar.extractfile(info).read()  # type: ignore[union-attr]
                yield info.name, gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def _kineto(traces: list[dict]) -> Iterator[Count]:
    events = [e for t in traces for e in (t["traceEvents"] if isinstance(t, dict) else t)]
    timed = [e for e in events if e.get("ph") in ("X", "i") and "ts" in e]
    yield Count("X and i events", len(timed), "SELECT count(*) FROM events")
    kernels = [e for e in timed if str(e.get("cat", "")).lower() == "kernel"]
    yield Count("kernels", len(kernels), "SELECT count(*) FROM events WHERE kind = 'kernel'")
    nccl = [e for e in kernels if str(e["name"]).startswith("nccl")]
    if nccl:
        yield Count(
            "kernels named nccl…",
            len(nccl),
            "SELECT count(*) FROM collectives JOIN events USING (job, rank, event_id) "
            "WHERE kind = 'kernel' AND starts_with(name, 'nccl')",
        )


@counter("kineto/param/dlrm_kineto.tar.gz")
def kineto_tar(path: Path) -> Iterator[Count]:
    traces = [json.loads(data) for _, data in members(path)]
    yield Count("files in it", len(traces), "SELECT count(*) FROM ranks")
    yield from _kineto(traces)


@counter(
    "kineto/modded-nanogpt/*",
    "kineto/HolisticTraceAnalysis/*_trace.json.gz",
    "kineto/HolisticTraceAnalysis/*trace.json.gz",
    "kineto/HolisticTraceAnalysis/*_kineto.json.gz",
    "kineto/HolisticTraceAnalysis/*/distributed_info_not_found.json.gz",
    "kineto/HolisticTraceAnalysis/*/nccl_data.json.gz",
    "kineto/HolisticTraceAnalysis/*/rank_not_found.json.gz",
    "kineto/HolisticTraceAnalysis/*/inference_rank_1.json.gz",
    "kineto/HolisticTraceAnalysis/*/sampled_rank-*.json.gz",
    "kineto/HolisticTraceAnalysis/*/triton_example.json.gz",
    "kineto/TraceLens/*",
    "kineto/kineto/*",
    "straggler/*/*timeline-*.json.gz",
)
def kineto(path: Path) -> Iterator[Count]:
    yield from _kineto([json.loads(plain(path))])


@counter("straggler/*/trace-*.parquet")
def recorded(path: Path) -> Iterator[Count]:
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    yield Count("rows", table.num_rows, "SELECT count(*) FROM events")
    names = table["optype"].to_pylist()
    words = ("gather", "scatter", "all-reduce", "send", "recv", "clip")
    communication = sum(any(w in n for w in words) for n in names)
    yield Count("communication", communication, "SELECT count(*) FROM collectives")
