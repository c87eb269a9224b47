"""Joining sources of a rank: jobs of known truth, seen by sources of each kind."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from retime.ingest import joining, transfers
from retime.ingest.joining import comms as joining_comms
from retime.ingest.joining import ranks as joining_ranks

spec = importlib.util.spec_from_file_location("joined", Path(__file__).with_name("joined.py"))
see = importlib.util.module_from_spec(spec)
spec.loader.exec_module(see)
US = see.US
VARIED = (1 << 20, 1 << 18, 3 << 20, 1 << 20, 5 << 16, 1 << 22)


def join(*views, ranks=(0,), clock="host", comms=()):
    """What `join` makes of the rows of these views."""
    rows = [r for v in views for r in v]
    return joining.join(
        see.table("collectives", rows), see.ranks(*ranks, clock=clock), see.table("comms", comms)
    )


def pairs(joined, *views):
    """(source, truth of the row that stays, truth of a row that went) of all that was joined."""
    truth = {r["event_id"]: (r["source"], r["truth"]) for v in views for r in v}
    source = {r["event_id"]: r["source"] for r in joined.collectives.to_pylist()}
    return {
        (source[s], truth[s][1], truth[g][1])
        for g, s in zip(joined.gone.tolist(), joined.stands.tolist(), strict=True)
    }


def codes(joined):
    return {p.code for p in joined.problems}


def right(found):
    """Whether rows were only joined to their own."""
    return all(kept == gone for _, kept, gone in found)


# --- by number -----------------------------------------------------------------------------------


def test_a_number_on_one_communicator_joins_kineto_and_flight_recorder():
    ops = see.operations()
    views = see.kineto(ops[12:24], numbered=True), see.flight_recorder(ops[5:30])
    out = join(*views)
    assert pairs(out, *views) == {("kineto+flight-recorder", n, n) for n in range(12, 24)}
    rows = out.collectives.to_pylist()
    assert len(rows) == 25
    first = next(r for r in rows if r["event_id"] == 1012)
    assert (first["start_ns"], first["state"]) == (ops[12].start, "completed")
    assert first["enqueued_ns"] == ops[12].queued
    assert (first["timing"], first["step"], first["seq"]) == (None, 2, 13)
    assert out.problems == []


def test_numbers_that_contradict_each_other_once_join_nothing_of_that_communicator():
    ops = see.operations()
    recorder = see.flight_recorder(ops)
    recorder[20]["in_bytes"] = recorder[20]["out_bytes"] = 12
    out = join(see.kineto(ops[12:24], numbered=True), recorder)
    assert not len(out.gone)
    (problem, left) = out.problems
    assert (problem.code, problem.count, left.code) == (
        "sources_contradict", 1, "sources_not_joined",
    )  # fmt: skip


def test_numbers_of_another_run_join_nothing():
    ops = see.operations()
    later = [t._replace(queued=t.queued + 86_400 * see.S) for t in ops]
    out = join(see.kineto(ops, numbered=True), see.flight_recorder(later))
    assert not len(out.gone)
    assert codes(out) == {"sources_contradict", "sources_not_joined"}


def test_numbers_of_each_function_join_profiler_and_inspector():
    ops = see.operations(ops=("all_reduce", "all_gather", "all_reduce"))
    views = see.profiler(ops), see.inspector(ops[::3], comm="nccl-a1b2c3d4e5f607*")
    out = join(*views, clock="process")
    found = pairs(out, *views)
    assert found == {("profiler+inspector", t.n, t.n) for t in ops[::3]}
    row = next(r for r in out.collectives.to_pylist() if r["source"] == "profiler+inspector")
    assert (row["clock"], row["comm"], row["algo"]) == ("process", see.NCCL, "ring")
    assert row["exec_ns"] == views[1][0]["exec_ns"]


# --- by record function --------------------------------------------------------------------------


def test_a_record_function_joins_an_execution_trace_and_its_splits_win():
    ops = see.operations(ops=("all_to_all",))
    kernels = see.kineto(ops[6:18], op="send_recv", dtype=None, comm=None, group_size=None)
    for t, row in zip(ops[6:18], kernels, strict=True):
        row |= {"record_function": t.n + 50, "in_bytes": None, "out_bytes": None}
    nodes = see.execution_trace(ops, in_splits=[1, 2, 3, 4], out_splits=[4, 3, 2, 1])
    out = join(kernels, nodes)
    assert pairs(out, kernels, nodes) == {("kineto+execution-trace", n, n) for n in range(6, 18)}
    row = out.collectives.to_pylist()[0]
    assert (row["op"], row["dtype"], row["in_splits"]) == ("all_to_all", "bfloat16", [1, 2, 3, 4])
    assert (row["in_bytes"], row["comm"], row["group_size"]) == (1 << 20, see.PG, 4)


def test_record_functions_of_another_run_join_nothing():
    ops = see.operations(sizes=VARIED)
    kernels = see.kineto(ops)
    for t, row in zip(ops, kernels, strict=True):
        row["record_function"] = t.n + 51
    out = join(kernels, see.execution_trace(ops))
    assert not len(out.gone)
    assert "sources_contradict" in codes(out)


# --- by order ------------------------------------------------------------------------------------


def test_durations_that_agree_one_by_one_join_inspector_to_a_window_of_kernels():
    ops = see.operations(steps=8)
    views = see.kineto(ops[12:36]), see.inspector(ops)
    out = join(*views)
    found = pairs(out, *views)
    assert right(found)
    assert {k for _, k, _ in found} >= set(range(14, 34))
    assert {s for s, *_ in found} == {"kineto+inspector"}
    row = next(r for r in out.collectives.to_pylist() if r["event_id"] == 1020)
    assert (row["comm"], row["seq"]) == (see.PG, None)
    assert row["exec_ns"] == views[1][20]["exec_ns"]


def test_sampled_durations_join_at_their_numbers():
    ops = see.operations(steps=20)
    views = see.kineto(ops[12:108]), see.inspector(ops[::4])
    found = pairs(join(*views), *views)
    assert right(found)
    assert len(found) >= 20


def test_moments_a_constant_apart_join_the_profiler_and_shift_what_is_left():
    ops = see.operations(steps=8, ops=("all_reduce", "all_gather"))
    views = see.kineto([t for t in ops[6:42] if t.n != 20]), see.profiler(ops)
    out = join(*views)
    assert pairs(out, *views) == {("kineto+profiler", n, n) for n in range(6, 42) if n != 20}
    shift = out.shifts[(0, "profiler")]
    assert abs(shift.offset_ns - see.ZERO_NS) < 5 * US
    rest = [r for r in out.collectives.to_pylist() if r["source"] == "profiler"]
    assert len(rest) == 13
    assert {r["clock"] for r in rest} == {"host"}
    starts = {r["event_id"]: r["start_ns"] for r in rest}
    assert abs(starts[views[1][0]["event_id"]] - ops[0].start) < 300 * US
    queued = {r["event_id"]: r["enqueued_ns"] for r in rest}
    assert queued[views[1][0]["event_id"]] == ops[0].queued - see.ZERO_NS + shift.offset_ns
    whole = {r["enqueued_ns"] for r in out.collectives.to_pylist() if "+" in r["source"]}
    assert whole == {
        t.queued - see.ZERO_NS + shift.offset_ns for t in ops[6:42] if t.n != 20
    }  # fmt: skip
    assert "clock_shifted" in codes(out)


def test_without_a_join_the_profilers_times_are_left_out_beside_a_timeline():
    a, b = see.operations(steps=3), see.operations(steps=3, seed=9)
    out = join(see.kineto(a), see.profiler(b))
    assert not len(out.gone)
    rest = [r for r in out.collectives.to_pylist() if r["source"] == "profiler"]
    assert {tuple(r[c] for c in ("start_ns", "enqueued_ns", "clock", "timing")) for r in rest} == {
        (None, None, None, None)
    }
    assert codes(out) == {"sources_not_joined", "clock_unknown"}


def test_moments_of_enqueueing_join_a_flight_recorder_to_kernels_without_numbers():
    ops = see.operations()
    kernels = see.kineto(ops[12:24])
    for t, row in zip(ops[12:24], kernels, strict=True):
        row["enqueued_ns"] = t.queued + 4 * US
    recorder = see.flight_recorder(ops)
    out = join(kernels, recorder)
    assert pairs(out, kernels, recorder) == {
        ("kineto+flight-recorder", n, n) for n in range(12, 24)
    }
    rows = out.collectives.to_pylist()
    assert {r["seq"] for r in rows if r["event_id"] == 1012} == {13}


def test_a_number_is_lent_only_where_every_rank_of_the_communicator_has_some():
    ops, other = see.operations(), see.operations(rank=1)
    kernels = see.kineto(ops)
    for t, row in zip(ops, kernels, strict=True):
        row["enqueued_ns"] = t.queued
    views = kernels, see.flight_recorder(ops), see.kineto(other)
    out = join(*views, ranks=(0, 1))
    assert len(out.gone) == len(ops)
    assert {r["seq"] for r in out.collectives.to_pylist()} == {None}


@pytest.mark.parametrize(
    "second",
    [
        pytest.param(lambda ops: see.inspector(ops, error=0), id="equal durations"),
        pytest.param(lambda ops: see.profiler(ops, jitter_ns=1), id="equal gaps"),
        pytest.param(
            lambda ops: [{**r, "exec_ns": None} for r in see.inspector(ops)], id="no durations"
        ),
    ],
)
def test_what_fits_at_several_places_alike_is_not_joined(second):
    ops = see.operations(steps=8, noise=0)
    out = join(see.kineto(ops[12:24]), second(ops))
    assert not len(out.gone)
    (problem,) = [p for p in out.problems if p.code == "sources_not_joined"]
    assert "equally well" in problem.message


def test_one_step_beside_another_of_the_same_program_is_not_joined():
    ops = see.operations(steps=8, sizes=tuple(range(1 << 16, (1 << 16) + 20)), noise=0.01)
    first, other = ops[20:40], ops[100:120]
    assert not len(join(see.kineto(first), see.inspector(other, error=0)).gone)
    assert not len(join(see.kineto(first), see.profiler(other)).gone)


def test_sizes_that_no_two_steps_share_tell_without_any_time():
    random_sizes = np.random.default_rng(3).integers(1, 1 << 16, 48) * 16
    ops = see.operations(steps=1, sizes=tuple(random_sizes.tolist()))
    ops = [t._replace(step=t.n // 8) for t in ops]
    log = [r | {"exec_ns": None, "source": "nccl-log", "seq": None, "comm": see.NCCL}
           for r in see.inspector(ops)]  # fmt: skip
    views = see.kineto(ops[8:48]), log
    found = pairs(join(*views), *views)
    assert found == {("kineto+nccl-log", n, n) for n in range(8, 48)}


def test_a_log_counts_each_operation_so_that_its_lines_are_places():
    """The numbers of an operation's lines have no gaps, whatever the others' lines are."""
    ops = see.operations(
        steps=8, ops=("all_reduce", "all_gather"),
        sizes=tuple(np.random.default_rng(3).integers(1, 1 << 16, 48).tolist()),
    )[:48]  # fmt: skip
    ops = [t._replace(step=t.n // 8, size=t.size * 16) for t in ops]
    views = see.kineto(ops[8:48]), see.nccl_log(ops)
    found = pairs(join(*views), *views)
    assert found == {("kineto+nccl-log", n, n) for n in range(8, 48)}


def test_ids_of_one_tool_are_not_numbers_of_another():
    ops = see.operations(ops=("all_reduce", "all_gather"))
    reports = [r | {"source": "nsys"} for r in see.kineto(ops, comm=see.NCCL, numbered=True)]
    views = reports, see.profiler(ops)
    found = pairs(join(*views), *views)
    assert found == {("nsys+profiler", n, n) for n in range(len(ops))}
    assert {r["seq"] for r in join(*views).collectives.to_pylist()} == {t.counted for t in ops}
    views = see.profiler(ops), see.nccl_log(ops)
    assert pairs(join(*views, clock="process"), *views) == set()


def test_a_communicator_that_fits_two_is_joined_to_neither():
    ops = see.operations(steps=8)
    twin = [r | {"comm": "1@ffff0000", "event_id": r["event_id"] + 10_000} for r in
            see.kineto(ops)]  # fmt: skip
    out = join(see.kineto(ops), twin, see.inspector(ops))
    assert not len(out.gone)


def test_three_sources_become_one_row():
    ops = see.operations()
    views = (
        see.kineto(ops, numbered=True), see.flight_recorder(ops), see.inspector(ops),
        see.profiler(ops),
    )  # fmt: skip
    out = join(*views)
    found = pairs(out, *views)
    assert right(found)
    full = [r for r in out.collectives.to_pylist() if r["source"].count("+") == 3]
    assert {r["source"] for r in full} == {"kineto+flight-recorder+inspector+profiler"}
    assert len(full) == len(ops)
    assert out.collectives.num_rows == len(ops)


# --- a window that two sources share --------------------------------------------------------------


def old_kernels(ops):
    """Kernels of an old PyTorch: no communicator, no id; the input's size alone."""
    rows = see.kineto(ops, comm=None, group_size=None)
    return [r | {"out_bytes": None, "seq": None} for r in rows]


def test_a_profile_and_an_execution_trace_of_one_window_join_one_for_one():
    ops = see.operations(steps=1, sizes=(8, 16, 24, 8, 32, 16, 40))
    views = old_kernels(ops), see.execution_trace(ops, in_splits=[1, 2])
    out = join(*views)
    assert pairs(out, *views) == {("kineto+execution-trace", n, n) for n in range(7)}
    assert {tuple(r["in_splits"]) for r in out.collectives.to_pylist()} == {(1, 2)}


@pytest.mark.parametrize(
    "nodes",
    [
        pytest.param(lambda ops: ops[:-1], id="one is missing"),
        pytest.param(lambda ops: [ops[1], ops[0], *ops[2:]], id="another order"),
    ],
)
def test_windows_that_are_not_one_for_one_are_not_joined(nodes):
    ops = see.operations(steps=1, sizes=(8, 16, 24, 8, 32, 16, 40))
    others = [t._replace(n=k) for k, t in enumerate(nodes(ops))]
    out = join(old_kernels(ops), see.execution_trace(others))
    assert not len(out.gone)


def test_windows_of_like_operations_are_not_joined():
    ops = see.operations(steps=1, sizes=(8,) * 8)
    assert not len(join(old_kernels(ops), see.execution_trace(ops)).gone)


# --- communicators -------------------------------------------------------------------------------


def test_a_cut_id_is_the_one_whole_id_that_begins_with_it():
    said = ["nccl-0a1b2c3d4e5f6071", "nccl-a1b2c3d4e5f607*", "nccl-00000000000000ff", "nccl-ff*",
            "nccl-1111111111111111", "nccl-11111111111111*", "nccl-1111111111111122"]  # fmt: skip
    assert joining_comms.whole_names(said, {}) == {
        "nccl-a1b2c3d4e5f607*": "nccl-0a1b2c3d4e5f6071",
        "nccl-ff*": "nccl-00000000000000ff",
    }
    sizes = {"nccl-11111111111111*": {4}, "nccl-1111111111111122": {8}}
    assert joining_comms.whole_names(said, sizes)["nccl-11111111111111*"] == said[4]


def places(comm, *members, size=3):
    return [{"comm": comm, "member": m, "member_place": p, "size": size} for p, m in members]


def assembled(*rows):
    table, problems = joining_comms.assembled(see.table("comms", [r for x in rows for r in x]))
    return {r["comm"]: r["ranks"] for r in table.to_pylist()}, [p.code for p in problems]


def test_members_are_known_where_each_says_its_place():
    ranks, problems = assembled(
        places("whole", (2, 9), (0, 4), (1, 1)), places("part", (0, 4), (2, 9))
    )
    assert ranks == {"whole": [4, 1, 9], "part": None}
    assert problems == []


def test_members_that_contradict_each_other_are_not_known():
    ranks, problems = assembled(
        places("two at a place", (0, 1), (0, 2), (1, 3), size=3),
        places("one at two", (0, 1), (1, 1), (2, 3)),
        places("sizes", (0, 1), (1, 2), size=2), places("sizes", (2, 3)),
        [{"comm": "stated", "ranks": [5, 6], "size": 2}], places("stated", (0, 6), (1, 5), size=2),
    )  # fmt: skip
    assert ranks["stated"] == [5, 6] or ranks["stated"] is None
    assert {ranks[c] for c in ("two at a place", "one at two", "sizes")} == {None}
    assert problems == ["comm_members_contradict"]


def test_rows_that_say_the_same_of_a_communicator_are_one():
    rows = [
        *places("whole", (0, 4), (1, 9), size=2),
        {"comm": "whole", "size": 2, "name": "dp"},
        {"comm": None, "size": 7},
        *places("part", (0, 4)),
        *places("part", (1, 9), (0, 4)),
    ]
    table, problems = joining_comms.assembled(see.table("comms", rows))
    assert problems == []
    assert [(r["comm"], r["name"], r["ranks"], r["size"]) for r in table.to_pylist()] == [
        ("whole", None, [4, 9], 2), ("whole", "dp", [4, 9], 2), (None, None, None, 7),
        ("part", None, None, 3),
    ]  # fmt: skip


# --- ranks ---------------------------------------------------------------------------------------


def test_a_rank_has_one_row_with_what_all_sources_say_and_the_timelines_span():
    rows = [
        {"rank": 0, "source": "b.log", "host": "node7", "pid": 12, "clock": "none"},
        {"rank": 0, "source": "a.prof", "start_ns": 5, "end_ns": 9, "clock": "process"},
        {"rank": 0, "source": "c.json", "start_ns": 100, "end_ns": 900, "device": 3},
        {"rank": 1, "source": "d.fr", "start_ns": 7, "end_ns": 8, "clock": "host"},
    ]
    formats = ["nccl-log", "nccl-profiler", "kineto", "flight-recorder"]
    table, problems = joining_ranks.one_a_rank(see.table("ranks", rows), formats, {0})
    (first, second) = table.to_pylist()
    assert problems == []
    assert [first[c] for c in ("host", "pid", "device", "start_ns", "end_ns", "clock")] == [
        "node7", 12, 3, 100, 900, "host",
    ]  # fmt: skip
    assert first["source"] == "c.json; a.prof; b.log"
    assert (second["clock"], second["start_ns"]) == ("none", 7)


def test_sources_of_a_rank_that_contradict_each_other_are_told():
    rows = [
        {"rank": 4, "source": "a", "host": "n1.cluster", "pid": 1, "world_size": 8},
        {"rank": 4, "source": "b", "host": "N1", "pid": 2, "world_size": 8},
        {"rank": 5, "source": "c", "host": "n1", "world_size": 8},
        {"rank": 5, "source": "d", "host": "n2", "world_size": 16},
    ]
    _, problems = joining_ranks.one_a_rank(see.table("ranks", rows), ["nccl-log"] * 4, set())
    assert [(p.code, p.rank, p.message.split(" on its ")[1][:4]) for p in problems] == [
        ("rank_sources_differ", 5, "host"),
        ("rank_sources_differ", 4, "pid "),
        ("rank_sources_differ", 5, "worl"),
    ]


# --- transfers -----------------------------------------------------------------------------------


def test_transfers_find_their_collective_through_what_it_was_joined_to():
    ops = see.operations(steps=4)
    views = see.kineto(ops), see.profiler(ops)
    out = join(*views)
    whole = out.collectives.to_pylist()
    for k, row in enumerate(whole):
        row["collective_id"] = 500 + k
    event = views[1][3]["event_id"]
    rows = [
        {"rank": 0, "event_id": event, "start_ns": 1000, "end_ns": 2000, "clock": "process",
         "source": "profiler", "bytes": 7},
        {"rank": 0, "event_id": 12345, "start_ns": 1, "end_ns": 2, "clock": "process",
         "source": "inspector"},
        {"rank": 0, "start_ns": 3, "end_ns": 4, "clock": "host", "source": "nsys"},
    ]  # fmt: skip
    table, problems = transfers.derived(
        see.table("transfers", rows), out, see.table("collectives", whole)
    )
    moved, lost, own = table.to_pylist()
    place = next(k for k, r in enumerate(whole) if r["event_id"] == 1003)
    shift = out.shifts[(0, "profiler")].offset_ns
    assert (moved["collective_id"], moved["start_ns"], moved["end_ns"], moved["clock"]) == (
        500 + place, 1000 + shift, 2000 + shift, "host",
    )  # fmt: skip
    assert [lost[c] for c in ("collective_id", "start_ns", "end_ns", "clock")] == [None] * 4
    assert (own["start_ns"], own["clock"]) == (3, "host")
    assert [(p.code, p.count) for p in problems] == [("transfer_clock_unknown", 1)]


def test_transfers_of_a_rank_on_its_processs_own_clock_keep_their_times():
    ops = see.operations(steps=2)
    out = join(see.profiler(ops), clock="process")
    rows = [{"rank": 0, "start_ns": 5, "end_ns": 6, "clock": "process", "source": "profiler"}]
    table, problems = transfers.derived(see.table("transfers", rows), out, out.collectives)
    assert (table.to_pylist()[0]["start_ns"], problems) == (5, [])


# --- properties ----------------------------------------------------------------------------------


@st.composite
def jobs(draw):
    """Views of one truth: windows, samples, losses, all of which may make it hopeless."""
    ops = see.operations(
        steps=draw(st.integers(1, 8)),
        sizes=tuple(draw(st.lists(st.sampled_from([1 << 16, 1 << 18, 1 << 20]), min_size=2,
                                  max_size=8))),
        ops=draw(st.sampled_from([("all_reduce",), ("all_reduce", "all_gather")])),
        noise=draw(st.sampled_from([0.0, 0.001, 0.02, 0.3])),
        seed=draw(st.integers(0, 99)),
    )  # fmt: skip

    def window():
        low = draw(st.integers(0, len(ops) - 1))
        some = ops[low : draw(st.integers(low + 1, len(ops)))]
        lost = draw(st.sets(st.integers(0, len(ops)), max_size=2))
        return [t for t in some if t.n not in lost] or some

    views = [see.kineto(window(), numbered=draw(st.booleans()))]
    if draw(st.booleans()):
        views.append(
            see.inspector(
                window()[:: draw(st.integers(1, 3))],
                error=draw(st.sampled_from([0.0, 0.003, 0.05])),
            )
        )
    if draw(st.booleans()):
        views.append(see.profiler(window()))
    if draw(st.booleans()):
        views.append(see.flight_recorder(window()))
    if draw(st.booleans()):
        log = [r | {"exec_ns": None, "source": "nccl-log", "seq": None} for r in
               see.inspector(window())]  # fmt: skip
        views.append([r | {"event_id": r["event_id"] ^ (3 << 34)} for r in log])
    return views


@given(jobs(), st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_never_joins_two_operations_and_does_not_depend_on_the_order_of_rows(views, shuffle):
    out = join(*views)
    found = pairs(out, *views)
    assert right(found)
    rows = [r for v in views for r in v]
    assert out.collectives.num_rows + len(out.gone) == len(rows)
    shuffle.shuffle(rows)
    again = join(rows)
    assert pairs(again, rows) == found
    key = lambda t: sorted(map(str, t.to_pylist()))  # noqa: E731
    assert key(again.collectives) == key(out.collectives)
