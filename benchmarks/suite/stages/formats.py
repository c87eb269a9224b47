"""Ingest of other formats: routing logs by the token, Inspector records, NCCL's log, Nsight."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.suite.case import LIMIT, OURS, OUT, PEER, Bound, Case, Ratio, Way, stage, way
from benchmarks.suite.inputs import Inputs

ONE, TWO = "retime, warm, 1 core", "retime, warm, 2 cores"
TOKENS_PER_S, TEXT_MB_PER_S = 5e6, 150
ROUTING = ("routing csv", "routing jsonl", "routing parquet", "megatron-router", "vllm-eplb")
"""Forms of `benchmarks.tables_made`."""
ON_TWO = ROUTING[:3]
"""Those whose reader uses a second core."""
LOG = "meg_gpt2_perf_n16-1999618.out"
EXPORT = "mfu_2gpu_before.sqlite"
"""Of a folder of real traces: what is repeated to a size."""


MAX_BYTES = 500e6
QUARTERS = (16, 4, 1)
"""Growth: a sixteenth and a quarter of the largest input, ours alone, and all of it."""


def _warm(path: Path, small: Path, cores: int = 1) -> Way:
    name = ONE if cores == 1 else TWO
    return Way(name, OURS, way("ingest.ours", path, small, OUT, cores), cores, "inside_s")


def _grown(
    inputs: Inputs, name: str, most: int, size: Callable[[Path], float] | None,
    make: Callable[[int], Path], small: Callable[[], Path],
) -> Iterator[tuple[str, float, Path, Path, bool]]:  # fmt: skip
    """Name, size, input and a small input of each case of a format; the last is the whole one.

    `most` is the largest input's amount, of which `make` makes an input; `size` measures one in
    the unit, where that is not the amount itself.
    """
    for part in (1,) if inputs.tiny else QUARTERS:
        amount, whole = max(1, most // part), part == 1
        case = name if whole else f"{name}, a part in {part}, for growth"
        if inputs.wants(case):
            path = make(amount)
            yield case, size(path) if size else float(amount), path, small(), whole


def _megabytes(path: Path) -> float:
    return path.stat().st_size / 1e6


def _read(path: Path) -> Way:
    return Way("reading the file", LIMIT, way("limits.files.read", path), 1, "inside_s")


def _case(
    name: str, of: str, unit: str, n: float, ways: tuple[Way, ...], ratios: tuple[Ratio, ...],
    least: Bound | None,
) -> Case:  # fmt: skip
    bounds = (Bound(ONE, "peak_bytes", MAX_BYTES, "under 500 MB whatever the size"),)
    if least is not None:
        bounds = (least, *bounds)
    return Case(name, "ingest", n, unit, ways, ratios, bounds, growth=of, grows=(ONE,))


@stage("ingest")
def routing(inputs: Inputs) -> Iterator[Case]:
    """The experts of each token, in the forms that routers write."""
    most = 20_000 if inputs.tiny else 500_000 if inputs.quick else 4_000_000
    # So many that the compiled code is loaded for them, too.
    few = 4096 if inputs.tiny else 1 << 18
    for form in ROUTING[:1] if inputs.tiny else ROUTING:
        of = f"ingest, {form}"
        best = TWO if form in ON_TWO else ONE
        least = Bound(best, "rate", TOKENS_PER_S, "5 million tokens a second")
        make, small = partial(inputs.routing, form), partial(inputs.routing, form, few)
        for name, n, path, warm, whole in _grown(inputs, of, most, None, make, small):
            peers = [_read(path)] if whole else []
            if whole and form == "routing csv":
                peers.append(Way("plain DuckDB", PEER, way("ingest.routing_duckdb", path, OUT), 1,
                                 "inside_s"))  # fmt: skip
            ours = [_warm(path, warm), *([_warm(path, warm, 2)] if whole and best == TWO else [])]
            ratios = tuple(Ratio(w.name, other.name) for w in ours for other in peers)
            yield _case(name, of, "tokens", n, (*ours, *peers), ratios,
                        least if whole else None)  # fmt: skip


@stage("ingest")
def inspector(inputs: Inputs) -> Iterator[Case]:
    """NCCL Inspector's records of a made-up rank, as it writes them: JSON lines."""
    most = 4 if inputs.tiny else 32 if inputs.quick else 512
    yield from _text(inputs, "ingest, Inspector records", most, inputs.inspector,
                     partial(inputs.inspector, 2))  # fmt: skip
    if not inputs.quick:
        yield from _long(inputs, "ingest, Inspector records, four times as many", most, 4)


def _long(inputs: Inputs, name: str, steps: int, copies: int) -> Iterator[Case]:
    """A longer file of Inspector: of the shorter one what any ingest takes is a good part.

    The same steps again and again, as to make up so many takes hours; numbers come again with them.
    """
    if inputs.wants(name):
        path = inputs.repeated(inputs.inspector(steps), copies)
        least = Bound(ONE, "rate", TEXT_MB_PER_S, "150 MB/s a core")
        yield _case(name, "", "MB", _megabytes(path),
                    (_warm(path, inputs.inspector(2)), _read(path)),
                    (Ratio(ONE, "reading the file"),), least)  # fmt: skip


@stage("ingest")
def debug_log(inputs: Inputs) -> Iterator[Case]:
    """A real job's output with NCCL's log in it, again and again."""
    found = _real(inputs, LOG)
    if found is not None:
        most = 2 if inputs.tiny else 16 if inputs.quick else 112
        yield from _text(inputs, "ingest, NCCL debug log", most, partial(inputs.repeated, found),
                         lambda: found)  # fmt: skip


def _text(
    inputs: Inputs, of: str, most: int, make: Callable[[int], Path], small: Callable[[], Path]
) -> Iterator[Case]:
    least = Bound(ONE, "rate", TEXT_MB_PER_S, "150 MB/s a core")
    for name, n, path, warm, whole in _grown(inputs, of, most, _megabytes, make, small):
        read = (_read(path),) if whole else ()
        yield _case(name, of, "MB", n, (_warm(path, warm), *read),
                    tuple(Ratio(ONE, w.name) for w in read), least if whole else None)  # fmt: skip


@stage("ingest")
def nsight(inputs: Inputs) -> Iterator[Case]:
    """A real export of Nsight Systems whose run lasts longer."""
    found = _real(inputs, EXPORT)
    if found is None:
        return
    of, most = "ingest, Nsight export", 2 if inputs.tiny else 32 if inputs.quick else 128
    make = partial(inputs.nsys, found)
    copied = "its tables copied by sqlite3 into DuckDB"
    for name, n, path, warm, whole in _grown(inputs, of, most, _megabytes, make, lambda: found):
        limits = ()
        if whole:
            limits = (Way(copied, LIMIT, way("limits.files.sqlite_copy", path), 1, "inside_s"),)
        goal = "a third of the speed of copying its tables"
        yield _case(name, of, "MB", n, (_warm(path, warm), *limits),
                    tuple(Ratio(ONE, w.name, 1 / 3, goal) for w in limits), None)  # fmt: skip


def _real(inputs: Inputs, name: str) -> Path | None:
    """A file of the folder of real traces, by its name."""
    if inputs.traces is None:
        return None
    return next(iter(sorted(inputs.traces.rglob(name))), None)
