"""A report to rows of the warehouse's tables, the same for every carrier."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from .. import memory
from ..collect import Collector
from ..errors import UnusableInput, line_of
from ..kineto.steps import HostSteps, host_steps, steps_batch
from . import diagnostics, metrics, nvtx, operations, stepnames
from .callranges import Calls
from .collectives import Writer
from .columns import GRAPH, KERNEL, MEMCPY, MEMSET, OVERHEAD, RUNTIME
from .comms import Comms
from .rank import Rank, calls_of
from .rows import Maker
from .tables import Report, open_report
from .times import Clock, clock_of
from .who import Job, Said, job_of

if TYPE_CHECKING:
    from ..sources import Source

Out = tuple[str, pa.RecordBatch]

GIVE_BACK_ROWS = 1_000_000
"""Of so many rows of events the memory that making them took is given back."""


def tables_of(source: Source, rank: int | None) -> Iterator[Out]:
    """Yields (table, batch) of a report. Raises UnusableInput, RankUnknown, UsageError."""
    c = Collector(source)
    try:
        with open_report(source, c.odd) as report:
            yield from _of_report(report, c, source.name, rank)
    except pa.ArrowException as e:
        # A column of texts that together are beyond what one array holds, say.
        told = f"tables that cannot be put together ({line_of(e)})"
        raise UnusableInput(told, path=source.name) from e


def _of_report(report: Report, c: Collector, name: str, asked: int | None) -> Iterator[Out]:
    clock = clock_of(report)
    found = nvtx.scan(report, clock)
    step_ranges, calls = found.steps, found.calls
    said = Said(nvtx.largest_places(calls), found.mpi_ranks, found.keys)
    job = job_of(report, name, asked, said)
    if not job.processes and not any(report.has(t) for t in metrics.TABLES):
        raise UnusableInput(
            "holds no work of any process: no kernel, copy, call or range; trace with "
            "--trace=cuda,nvtx",
            path=name,
        )
    rank_of = {p.key: p.rank for p in job.processes if p.rank is not None}
    launches = calls_of(report, clock, list(rank_of))
    ranks = {
        p.key: Rank(p, p.rank, _steps(step_ranges, p.key, c, p.rank), launches[p.key])
        for p in job.processes
        if p.rank is not None
    }
    maker = Maker(report, clock, ranks)
    if ranks:
        for table in (KERNEL, MEMCPY, MEMSET, GRAPH):
            yield from _as("events", maker.device(table))
        yield from _as("events", maker.synchronisation())
        for r in ranks.values():
            r.calls.close()  # nothing else is launched
        yield from _as("events", maker.host(RUNTIME, "runtime"))
        yield from _as("events", maker.host(OVERHEAD, "overhead"))
        yield from _as("events", maker.ranges())
    yield from _step_rows(ranks)
    yield from _collective_rows(report, c, job, clock, ranks, calls, maker, rank_of)
    yield from metrics.rows(report, clock, job)
    _rank_rows(c, job, clock, ranks, name)
    diagnostics.say(report, c, ranks, maker)
    yield from c.rest()


def _as(table: str, batches: Iterator[pa.RecordBatch]) -> Iterator[Out]:
    rows = 0
    for batch in batches:
        yield table, batch
        rows += batch.num_rows
        if rows >= GIVE_BACK_ROWS:
            memory.give_back()
            rows = 0
    memory.give_back()  # the next table needs it in another shape


def _steps(found: nvtx.StepRanges, key: int, c: Collector, rank: int) -> HostSteps:
    mine = found.of(key)
    rows, numbers = stepnames.choose(
        found.family[mine], found.thread[mine], found.number[mine], found.start[mine],
        found.end[mine],
    )  # fmt: skip
    steps, twice = host_steps(numbers, found.start[mine][rows], found.end[mine][rows])
    if twice:
        c.odd(
            "step_twice", "ranges with the number of an earlier step: the first of each is taken",
            rank=rank, count=twice,
        )  # fmt: skip
    return steps


def _step_rows(ranks: dict[int, Rank]) -> Iterator[Out]:
    for r in ranks.values():
        if not len(r.steps.number):
            continue
        begin, stop = r.windows()
        yield "steps", steps_batch(r.steps, begin, stop, r.rank)


def _collective_rows(
    report: Report, c: Collector, job: Job, clock: Clock, ranks: dict[int, Rank],
    calls: Calls, maker: Maker, rank_of: dict[int, int],
) -> Iterator[Out]:  # fmt: skip
    from_payload = any(p.by_payload for p in job.processes)
    comms = Comms(calls, rank_of, from_payload)
    if from_payload and comms.largest is not None:
        if job.world is None:
            job.world = comms.largest
        elif comms.largest < job.world:
            c.odd(
                "ranks_of_a_part",
                f"the largest communicator has {comms.largest} of the job's {job.world} ranks: "
                "ranks are places in it, not in the job",
            )
    writer = Writer(c, comms, job.world, clock.word)
    traced = operations.read(report, clock, ranks)
    for key, r in ranks.items():
        kernels = maker.comm_kernels.get(r.rank)
        told = traced.get(r.rank, [])
        if kernels is not None:
            loads, told = operations.dealt(told, kernels)
            yield from writer.kernels(r.rank, kernels, partial(calls.of, key), loads)
        if told:
            writer.operations(r.rank, r.steps, told)
        elif kernels is None and calls.any_of(key):
            yield from writer.host_only(r.rank, r.steps, calls.of(key))
        yield from c.full()
    comms.rows(c, writer.used)
    writer.trial_comm()


def _rank_rows(c: Collector, job: Job, clock: Clock, ranks: dict[int, Rank], name: str) -> None:
    for r in ranks.values():
        p = r.process
        seen = r.first_ns <= r.last_ns
        c.add(
            "ranks",
            rank=r.rank,
            host=p.host,
            host_source="recorded" if p.host else "unknown",
            local_rank=p.local_rank,
            device=p.device,
            device_name=p.gpu,
            n_sms=p.n_sms,
            world_size=job.world,
            start_ns=r.first_ns if seen else None,
            end_ns=r.last_ns if seen else None,
            clock=clock.word,
            pid=p.pid,
            source=name,
        )
