"""Clocks of a rank's sources: which can be compared, and what is left out where they cannot."""

import importlib.util
import json
import random
from pathlib import Path

import pyarrow as pa
import pytest
from retime.ingest import joining, matching, transfers
from retime.ingest.matching import hosts
from retime.ingest.run import ingest
from retime.ingest.warehouse import Warehouse

spec = importlib.util.spec_from_file_location("joined", Path(__file__).with_name("joined.py"))
see = importlib.util.module_from_spec(spec)
spec.loader.exec_module(see)
BOOT_NS = 5_000 * see.S
"""Time since the host started, when the epoch's is EPOCH_NS."""


def booted(ops, source="rocprof", **more):
    """Kernels timed since the host started."""
    rows = []
    for row in see.kineto(ops, **({"comm": None} | more)):
        rows.append(row | {"source": source, "clock": "boot"})
        for name in ("start_ns", "end_ns"):
            rows[-1][name] += BOOT_NS - see.EPOCH_NS
    return rows


def join(*views, clock="host"):
    rows = [r for v in views for r in v]
    return joining.join(
        see.table("collectives", rows), see.ranks(0, clock=clock), see.table("comms", [])
    )


def domains(*rows):
    table = see.table("ranks", [{"rank": i, "host": h, "clock": c} for i, (h, c) in
                                enumerate(rows)])  # fmt: skip
    return hosts.clock_domains(table).tolist()


# --- the clocks of ranks -------------------------------------------------------------------------


def test_each_clock_of_a_host_is_one():
    assert domains(("h", "host"), ("h", None), ("h", "boot"), ("h", "boot"), ("g", "boot")) == [
        0, 0, 1, 1, 2,
    ]  # fmt: skip
    assert domains(("h", "process"), ("h", "process"), ("h", "recorded"), ("h", "host")) == [
        0, 1, 2, 2,
    ]  # fmt: skip
    assert domains((None, "boot"), (None, "boot"), (None, "host")) == [0, 1, 2]


@pytest.mark.parametrize(("second", "word"), [("host", "one-host"), ("boot", "unaligned")])
def test_ranks_of_one_host_on_two_clocks_are_not_on_one(second, word):
    ops = [see.operations(rank=r) for r in (0, 1)]
    rows = see.kineto(ops[0]) + (booted(ops[1]) if second == "boot" else see.kineto(ops[1]))
    ranks = see.table("ranks", [
        {"rank": 0, "host": "h", "clock": "host", "start_ns": see.EPOCH_NS},
        {"rank": 1, "host": "h", "clock": second, "start_ns": BOOT_NS},
    ])  # fmt: skip
    joined = joining.join(see.table("collectives", rows), ranks, see.table("comms", []))
    out = matching.resolve(joined.collectives, joined.ranks, joined.comms, see.table("steps", []))
    assert out.clocks == word


# --- the clocks of rows --------------------------------------------------------------------------


def test_times_since_the_host_started_are_its_ranks_own():
    ops = see.operations(steps=2)
    rows = booted(ops)
    out = join(rows, see.inspector(ops), clock="boot")
    kept = [r for r in out.collectives.to_pylist() if r["source"].startswith("rocprof")]
    assert [(r["start_ns"], r["clock"]) for r in kept] == [(r["start_ns"], "boot") for r in rows]
    assert not [p for p in out.problems if p.code == "clock_unknown"]


def test_durations_join_sources_on_two_clocks_and_then_shift_one():
    """A verbose Inspector says when its callbacks ran, by the epoch; the rank has another clock.

    Between the two clocks lie decades: their moments count as a constant apart, not as one.
    """
    ops = see.operations(steps=8)
    told = see.inspector(ops)
    for t, row in zip(ops, told, strict=True):
        row |= {"start_ns": t.start, "end_ns": t.end + 3_000, "clock": "host", "timing": "host"}
        row["enqueued_ns"] = t.queued
    views = booted(ops[12:36], comm=see.PG), told
    out = join(*views, clock="boot")
    rows = out.collectives.to_pylist()
    assert {r["source"] for r in rows} == {"rocprof+inspector", "inspector"}
    shift = out.shifts[(0, "inspector")]
    assert (shift.word, shift.spread_ns) == ("host", 0)
    assert abs(shift.offset_ns - (BOOT_NS - see.EPOCH_NS)) <= 3_000
    assert {r["clock"] for r in rows} == {"boot"}
    first = min(rows, key=lambda r: r["start_ns"])
    assert first["source"] == "inspector"
    assert first["start_ns"] == ops[0].start + shift.offset_ns
    assert first["enqueued_ns"] == ops[0].queued + shift.offset_ns


def test_times_on_an_untied_clock_are_left_out():
    ops = see.operations(steps=3)
    told = [r | {"start_ns": t.start, "end_ns": t.end, "clock": "host", "timing": "host"}
            for r, t in zip(see.inspector(ops[:2]), ops, strict=False)]  # fmt: skip
    out = join(booted(ops), told, clock="boot")
    rest = [r for r in out.collectives.to_pylist() if r["source"] == "inspector"]
    assert [(r["start_ns"], r["clock"], r["timing"]) for r in rest] == [(None, None, None)] * 2
    assert all(r["exec_ns"] for r in rest)
    assert "clock_unknown" in {p.code for p in out.problems}


def test_two_processes_with_a_zero_each_have_two_clocks():
    """A report without its session's start counts from its own zero, as the profiler does."""
    ops = see.operations(steps=8)
    other = see.profiler(ops)
    report = [r | {"source": "nsys", "clock": "process"} for r in see.kineto(ops[6:42])]
    for row in report:
        for name in ("start_ns", "end_ns"):
            row[name] -= see.EPOCH_NS
    out = join(report, other, clock="process")
    rows = out.collectives.to_pylist()
    assert {r["source"] for r in rows} == {"nsys+profiler", "profiler"}
    shift = out.shifts[(0, "profiler")].offset_ns
    assert abs(shift - (see.ZERO_NS - see.EPOCH_NS)) < 5_000
    first = min(rows, key=lambda r: r["start_ns"])
    assert first["source"] == "profiler"
    assert abs(first["start_ns"] + see.EPOCH_NS - ops[0].start) < 300_000


def test_moments_of_enqueueing_on_another_clock_are_no_evidence_and_not_kept():
    """Numbers join the two; when each was enqueued, by the epoch, tells nothing here."""
    ops = see.operations()
    out = join(booted(ops, comm=see.PG, numbered=True), see.flight_recorder(ops), clock="boot")
    rows = out.collectives.to_pylist()
    assert {r["source"] for r in rows} == {"rocprof+flight-recorder"}
    assert {r["enqueued_ns"] for r in rows} == {None}
    assert [(p.code, p.count) for p in out.problems] == [("enqueued_clock_unknown", len(ops))]


def test_transfers_are_on_the_clock_of_their_rank_or_without_times():
    ops = see.operations(steps=2)
    out = join(booted(ops), clock="boot")
    rows = [
        {"rank": r, "start_ns": 5, "end_ns": 6, "clock": c, "source": "inspector"}
        for r, c in ((0, "boot"), (0, "host"), (0, "process"), (0, None), (7, "host"))
    ]
    table, problems = transfers.derived(see.table("transfers", rows), out, out.collectives)
    assert [(r["start_ns"], r["clock"]) for r in table.to_pylist()] == [
        (5, "boot"), (None, None), (None, None), (5, None), (5, "host"),
    ]  # fmt: skip
    assert [(p.code, p.count) for p in problems] == [("transfer_clock_unknown", 2)]


# --- end to end ----------------------------------------------------------------------------------


EPOCH_US, ZERO_US = 1_780_000_000_000_000, 5_000_000
"""The trace's base, and how long the process had run then."""


def test_transfers_in_pieces_with_texts_of_their_own_are_on_the_same_clocks():
    out = join(booted(see.operations(), clock="host"))
    rows = [
        {"rank": rank, "start_ns": n, "end_ns": n + 1, "clock": clock, "source": source}
        for n, (rank, clock, source) in enumerate(
            [(0, "boot", "rocprof"), (0, None, None), (1, "host", "inspector"),
             (0, "host", "nsys"), (0, "boot", "inspector"), (None, "gpu", "rocprof")]
        )
    ]  # fmt: skip
    whole = transfers.derived(see.table("transfers", rows), out, out.collectives)
    pieces = pa.concat_tables([see.table("transfers", [row]) for row in rows])
    found = transfers.derived(pieces, out, out.collectives)
    assert found[0].to_pylist() == whole[0].to_pylist()
    assert found[1] == whole[1]
    nowhere = transfers.derived(see.table("transfers", [{"rank": 0}]), out, out.collectives)
    assert nowhere[0]["clock"].to_pylist() == [None]


def profiled(folder, rank, *, starts, durations):
    """A Kineto trace of a rank and the profiler's file of it, of the same all-reduces."""

    def event(name, cat, ph, id, ts, args=""):
        more = f', "args": {args}' if args else ""
        return (
            f'{{"name": "{name}", "cat": "{cat}", "ph": "{ph}", "id": {id}, "pid": {100 + rank}, '
            f'"tid": 1, "ts": {ts:.6f}{more}}},\n'
        )

    group = {"Collective name": "allreduce", "dtype": "BFloat16", "In msg nelems": 4096,
             "Out msg nelems": 4096, "Group size": 2, "Process Group Name": "0",
             "Process Group Description": "default_pg",
             "Process Group Ranks": "[0, 1]"}  # fmt: skip
    events, text = [], "[\n"
    for k, (start, took) in enumerate(zip(starts, durations, strict=True)):
        device = {"device": rank, "stream": 27, "correlation": k + 1}
        events += [
            {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
             "pid": rank, "tid": 27, "ts": start, "dur": took, "args": device | group},
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 100 + rank,
             "tid": 100 + rank, "ts": start - 50, "dur": 5.0, "args": {"correlation": k + 1}},
        ]  # fmt: skip
        if k % 6 == 5:
            low = starts[k - 5] - 200
            events.append(
                {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{k // 6}",
                 "pid": 100 + rank, "tid": 100 + rank, "ts": low, "dur": start + took - low}
            )  # fmt: skip
        args = (
            f'{{"SeqNum": {k}, "CommHash": 673864846479792718, "Rank": {rank}, "Count": 4096, '
            '"Datatype": "ncclBfloat16", "Algorithm": "RING", "Protocol": "LL", "nChannels": 1}'
        )
        at = ZERO_US + start
        text += event("AllReduce", "COLL", "b", k, at - 60, args)
        text += event("KernelCh", "GPU", "b", 0, at + 2) + event("KernelCh", "GPU", "e", 0,
                                                                 at + took + 3)  # fmt: skip
        text += event("AllReduce", "COLL", "e", k, at + took + 9)
    trace = {
        "schemaVersion": 1, "host_name": "h0", "baseTimeNanoseconds": EPOCH_US * 1000,
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2},
        "traceEvents": events,
    }  # fmt: skip
    (folder / f"k{rank}.json").write_text(json.dumps(trace))
    (folder / f"prof-h0-{100 + rank}.txt").write_text(text + "{}]\n")


def test_the_profilers_files_join_the_traces_of_their_ranks(tmp_path, rows):
    """As the plugin writes them: moments of the host's and the kernel's in the process's time."""
    noise = random.Random(3)
    folder = tmp_path / "traces"
    folder.mkdir()
    for rank in (0, 1):
        starts, took, now = [], [], 1000.0
        for _ in range(60):
            now += noise.uniform(2000, 9000)
            starts.append(round(now, 3))
            took.append(round(noise.uniform(200, 900), 3))
        profiled(folder, rank, starts=starts, durations=took)
    warehouse = Warehouse(tmp_path / "w")
    ingest(warehouse, folder, job="j")
    found = rows(warehouse.snapshot("j"), "collectives")
    assert {r["source"] for r in found} == {"kineto+profiler"}
    assert len(found) == 120
    assert {r["algo"] for r in found} == {"ring"}
    late = {r["start_ns"] - r["enqueued_ns"] for r in found}
    assert min(late) > 0
    assert max(late) < 100_000
