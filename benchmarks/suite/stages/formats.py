"""Ingest of other formats: routing logs by the token, Inspector records, NCCL's log, Nsight."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.suite.case import LIMIT, OURS, OUT, PEER, Bound, Case, Ratio, Way, stage, way
from benchmarks.suite.inputs import Inputs

ONE = "retime, warm, 1 core"
TOKENS_PER_S, TEXT_MB_PER_S = 5e6, 150
ROUTING = ("routing csv", "routing jsonl", "routing parquet", "megatron-router", "vllm-eplb")
"""Forms of `benchmarks.tables_made`."""
LOG = "meg_gpt2_perf_n16-1999618.out"
EXPORT = "mfu_2gpu_before.sqlite"
"""Of a folder of real traces: what is repeated to a size."""


def _warm(path: Path, small: Path, amount: float | None = None) -> Way:
    return Way(ONE, OURS, way("ingest.ours", path, small, OUT, 1), 1, "inside_s", amount)


@stage("ingest")
def routing(inputs: Inputs) -> Iterator[Case]:
    """The experts of each token, in the forms that routers write."""
    tokens = 20_000 if inputs.tiny else 500_000 if inputs.quick else 4_000_000
    for form in ROUTING[:1] if inputs.tiny else ROUTING:
        if not inputs.wants(name := f"ingest, {form}"):
            continue
        path, small = inputs.routing(form, tokens), inputs.routing(form, 4096)
        read = "reading the file"
        ways = [_warm(path, small),
                Way(read, LIMIT, way("limits.files.read", path), 1, "inside_s")]  # fmt: skip
        if form == "routing csv":
            ways.append(Way("plain DuckDB", PEER, way("ingest.routing_duckdb", path, OUT), 1,
                            "inside_s"))  # fmt: skip
        yield Case(
            name, "ingest", tokens, "tokens", tuple(ways),
            tuple(Ratio(ONE, w.name) for w in ways[1:]),
            (Bound(ONE, "rate", TOKENS_PER_S, "5 million tokens a second"),),
        )  # fmt: skip


@stage("ingest")
def inspector(inputs: Inputs) -> Iterator[Case]:
    """NCCL Inspector's records of a made-up rank, as it writes them: JSON lines."""
    steps = 4 if inputs.tiny else 32 if inputs.quick else 512
    if inputs.wants(name := "ingest, Inspector records"):
        yield _text(name, inputs.inspector(steps), inputs.inspector(2))


@stage("ingest")
def debug_log(inputs: Inputs) -> Iterator[Case]:
    """A real job's output with NCCL's log in it, again and again."""
    found = _real(inputs, LOG)
    if found is not None and inputs.wants("ingest, NCCL debug log"):
        copies = 2 if inputs.tiny else 10 if inputs.quick else 100
        yield _text("ingest, NCCL debug log", inputs.repeated(found, copies), found)


def _text(name: str, path: Path, small: Path) -> Case:
    n = path.stat().st_size / 1e6
    read = "reading the file"
    return Case(
        name, "ingest", n, "MB",
        (_warm(path, small), Way(read, LIMIT, way("limits.files.read", path), 1, "inside_s")),
        (Ratio(ONE, read),),
        (Bound(ONE, "rate", TEXT_MB_PER_S, "150 MB/s a core"),),
    )  # fmt: skip


@stage("ingest")
def nsight(inputs: Inputs) -> Iterator[Case]:
    """A real export of Nsight Systems whose run lasts longer."""
    found = _real(inputs, EXPORT)
    if found is None or not inputs.wants("ingest, Nsight export"):
        return
    path = inputs.nsys(found, 2 if inputs.tiny else 20 if inputs.quick else 100)
    copied = "its tables copied by sqlite3 into DuckDB"
    yield Case(
        "ingest, Nsight export", "ingest", path.stat().st_size / 1e6, "MB",
        (_warm(path, found),
         Way(copied, LIMIT, way("limits.files.sqlite_copy", path), 1, "inside_s")),
        (Ratio(ONE, copied, 1 / 3, "a third of the speed of copying its tables"),),
    )  # fmt: skip


def _real(inputs: Inputs, name: str) -> Path | None:
    """A file of the folder of real traces, by its name."""
    if inputs.traces is None:
        return None
    return next(iter(sorted(inputs.traces.rglob(name))), None)
