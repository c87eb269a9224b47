"""Why a rank is late: jobs made by hand, one for each cause, and ranks that hold nobody up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from retime.queries import loader

from .conftest import write

COLUMNS = (
    "cause, kernel, cause_ns, own_ns, median_ns, late_ns, host_op, comm, peer, measured_on, "
    "stretches"
)
THREAD = "main"


@pytest.fixture
def job(open_job, one_host, event, part):
    """`job(*rows of rank 2, others=rows of ranks 0 and 1)`: who is late, by rank.

    All ranks leave collective 1 of comm w at 100. Ranks 0 and 1 come to collective 2 at 200 after
    a kernel of 100 ns, rank 2 at 300: it is 100 behind the median, and 25 of that are a cause.
    """

    def make(*late: dict, others=None, ranks=(0, 1, 2), parts=(), ready=None, **tables: Any):
        usual = {0: 200, 1: 200, 2: 300} | (ready or {})
        rows = [part(r, 90, 100) for r in ranks]
        rows += [part(r, usual[r], 310, collective_id=2) for r in ranks]
        events = list(late)
        for r in ranks:
            if r != 2:
                events += (others or kernels)(r)
        steps = [
            {"rank": r, "step": 0, "start_ns": 0, "end_ns": 400, "host_start_ns": 0} for r in ranks
        ]
        con = open_job(
            ranks=one_host(*ranks), steps=steps, events=events, collectives=[*rows, *parts],
            **tables,
        )  # fmt: skip
        loader.materialise(con, "stragglers")  # computed once: most tests ask it several times
        return con

    def kernels(rank: int) -> list[dict]:
        return work(event, rank, "k", 100, 200)

    return make


def work(event, rank: int, name: str, start: int, end: int, launch: int | None = 50, **more: Any):
    """A kernel and, unless `launch` is None, the call that launched it."""
    id = rank * 10_000 + start
    rows = [event(rank, id, "kernel", start, end, name=name, stream=7, correlation=id, **more)]
    if launch is not None:
        rows.append(
            event(rank, id + 5000, "runtime", launch, launch + 5, name="cudaLaunchKernel",
                  thread=THREAD, correlation=id)
        )  # fmt: skip
    return rows


def mark(event, kind: str, name: str, start: int, end: int, rank: int = 2):
    """What the host of a rank is in."""
    return event(rank, rank * 10_000 + 9000 + start, kind, start, end, name=name, thread=THREAD)


def causes(con, columns: str = COLUMNS) -> dict[int, tuple]:
    """The rows of the ranks that hold others up."""
    rows = con.execute(
        f"SELECT rank, {columns} FROM stragglers WHERE cause IS NOT NULL ORDER BY rank"
    ).fetchall()
    return {row[0]: row[1:] for row in rows}


def said(con) -> str:
    """The words about the one rank that holds others up."""
    (words,) = causes(con, "detail").values()
    return words[0]


def test_the_same_kernel_takes_longer(job, event):
    con = job(*work(event, 2, "k", 100, 300))
    assert causes(con) == {
        2: ("slower_kernels", "k", 100, 200, 100, 100, None, None, None, "stretches", 1)
    }
    assert said(con) == (
        "computes 200 ns a step before the collectives that it is last in where the median rank "
        "computes 100 ns, most of all in k (200 ns against 100 ns)"
    )


def test_the_kernel_that_exceeds_most_is_named(job, event):
    con = job(*work(event, 2, "a", 100, 150), *work(event, 2, "k", 150, 300))
    # a exceeds 0 by 50, k 100 by 50: of two that tie the first by name
    assert causes(con, "cause, kernel, kernel_excess_ns") == {2: ("more_work", "a", 50)}
    con = job(*work(event, 2, "a", 100, 140), *work(event, 2, "k", 140, 300))
    assert causes(con, "cause, kernel, kernel_excess_ns") == {2: ("slower_kernels", "k", 60)}


def test_twice_the_launches_are_more_work(job, event):
    con = job(*work(event, 2, "k", 100, 200), *work(event, 2, "k", 200, 300))
    assert causes(con, "cause, kernel, cause_ns") == {2: ("more_work", "k", 100)}
    assert said(con).endswith("in k (200 ns against 100 ns, launched 2 times against 1)")


def test_a_larger_launch_is_more_work_and_a_slower_one_is_not(job, event):
    def usual(rank):
        return work(event, rank, "k", 100, 200, grid_blocks=4)

    con = job(*work(event, 2, "k", 100, 300, grid_blocks=8), others=usual)
    assert causes(con, "cause, kernel") == {2: ("more_work", "k")}
    assert said(con).endswith("(200 ns against 100 ns, in more thread blocks)")
    con = job(*work(event, 2, "k", 100, 300, grid_blocks=4), others=usual)
    assert causes(con, "cause, kernel") == {2: ("slower_kernels", "k")}


def test_another_kernel_for_the_same_work_is_a_slower_one(job, event):
    con = job(*work(event, 2, "j", 100, 300))
    assert causes(con, "cause, kernel, kernel_excess_ns") == {2: ("slower_kernels", "j", 200)}


def test_launches_come_late_and_the_host_was_elsewhere(job, event):
    con = job(
        *work(event, 2, "k", 200, 300, launch=195),
        mark(event, "annotation", "train", 0, 400),
        mark(event, "host_op", "aten::slow", 100, 190),
    )
    assert causes(con) == {
        2: ("late_launches", None, 100, 100, 0, 100, "aten::slow", None, None, "stretches", 1)
    }
    assert said(con) == (
        "has 100 ns of launch-bound idle a step before the collectives that it is last in, the "
        "median rank 0 ns; in its longest gaps its host is in aten::slow for 90 ns of 95 ns"
    )


@pytest.mark.parametrize(
    ("kind", "name", "cause"),
    [
        ("annotation", "enumerate(DataLoader)#_Single.__next__", "data_loading"),
        ("annotation", "dataloader", "data_loading"),
        ("annotation", "batch-generator", "data_loading"),
        ("python", "torch/utils/data/dataloader.py(720): __next__", "data_loading"),
        ("python", "Python GC", "garbage_collection"),
        ("python", "<built-in function collect>", "garbage_collection"),
        ("host_op", "gc", "garbage_collection"),
        ("annotation", "manual gc", "garbage_collection"),
        ("annotation", "gcn layer", "late_launches"),
        ("host_op", "aten::gcd", "late_launches"),
        ("runtime", "cudaDeviceSynchronize", "waiting_for_host"),
        ("runtime", "cudaMalloc", "late_launches"),
    ],
)  # fmt: skip
def test_what_the_host_did_instead_of_launching(job, event, kind, name, cause):
    con = job(*work(event, 2, "k", 200, 300, launch=195), mark(event, kind, name, 100, 195))
    # Loading and blocking calls make all of a gap theirs, a collection what it covers.
    ns = 95 if cause == "garbage_collection" else 100
    assert causes(con, "cause, cause_ns, host_op") == {2: (cause, ns, name)}


def test_a_collection_while_the_gpu_is_busy_delays_nobody(job, event):
    con = job(*work(event, 2, "k", 100, 300), mark(event, "python", "Python GC", 110, 290))
    assert causes(con, "cause") == {2: ("slower_kernels",)}


def test_held_back_by_a_stream(job, event):
    con = job(*work(event, 2, "k", 200, 300, launch=50))
    assert causes(con, "cause, cause_ns") == {2: ("waiting_for_stream", 100)}


def test_copies(job, event):
    con = job(event(2, 1, "memcpy", 100, 200), *work(event, 2, "k", 200, 300))
    assert causes(con, "cause, cause_ns, own_ns, median_ns") == {2: ("memcpy", 100, 100, 0)}


def pairs(part, *times: tuple[int, int, int], **more: Any):
    """Participations in the pair's collective: ranks 0 and 1 are comm t0, 2 and 3 comm t1."""
    return [
        part(r, s, e, comm=f"t{r // 2}", collective_id=10 + r // 2, **more) for r, s, e in times
    ]


TENSOR = [{"comm": "t0", "dim": "tp", "size": 2}, {"comm": "t1", "dim": "tp", "size": 2}]


def test_it_waited_in_an_earlier_collective_for_another(job, event, part):
    # rank 3 keeps rank 2 waiting from 100 to 190, and comes to collective 2 before it
    con = job(
        *work(event, 2, "k", 200, 300),
        ranks=(0, 1, 2, 3),
        ready={3: 250},
        others=lambda r: work(event, r, "k", 110, 200) if r < 2 else work(event, 3, "k", 200, 250),
        parts=pairs(part, (0, 100, 110), (1, 100, 110), (2, 100, 200), (3, 190, 200)),
        comms=TENSOR,
    )
    assert causes(con)[2] == (
        "earlier_collective", None, 90, 90, 0, 100, None, "t1", 3, "stretches", 1
    )  # fmt: skip
    assert causes(con, "detail")[2][0].endswith(
        "the median rank 0 ns: longest on t1, where rank 3 is last"
    )
    # and why rank 3 was late there nothing says: its GPU had nothing to do
    assert causes(con, "cause, late_on, cause_ns")[3] == ("unknown", "t1", 90)


@pytest.mark.parametrize(
    ("bytes", "cause", "words"),
    [
        (64, "slow_link", "transfers on t1 take longer than on its peers"),
        # twice the size is no slower link
        (128, "earlier_collective", "longest on t1"),
    ],
)
def test_its_earlier_transfers_take_longer(job, event, part, bytes, cause, words):
    def sized(rank):
        return {"in_bytes": 64 if rank < 2 else bytes, "out_bytes": 64 if rank < 2 else bytes}

    con = job(
        *work(event, 2, "k", 200, 300),
        ranks=(0, 1, 2, 3),
        ready={3: 250},
        others=lambda r: work(event, r, "k", 110, 200) if r < 2 else work(event, 3, "k", 200, 250),
        parts=[
            row | sized(row["rank"])
            for row in pairs(part, (0, 100, 110), (1, 100, 110), (2, 100, 200), (3, 100, 200))
        ],
        comms=TENSOR,
    )
    assert causes(con, "cause, cause_ns, own_ns, comm") == {2: (cause, 90, 100, "t1")}
    assert said(con).endswith(f"the median rank 10 ns: {words}")


def test_it_left_the_collective_before_late(open_job, one_host, event, part):
    steps = [{"rank": r, "step": 0, "start_ns": 0, "end_ns": 400} for r in range(3)]
    ends = (100, 100, 190)
    con = open_job(
        ranks=one_host(0, 1, 2),
        steps=steps,
        events=[e for r in range(3) for e in work(event, r, "k", ends[r], ends[r] + 100)],
        collectives=[
            *(part(r, 90, ends[r]) for r in range(3)),
            *(part(r, ends[r] + 100, 310, collective_id=2) for r in range(3)),
        ],
    )
    assert causes(con, "cause, cause_ns, own_ns, median_ns, comm") == {
        2: ("earlier_collective", 90, 90, 0, "w")
    }


def test_its_first_step_began_late(open_job, one_host, event, part):
    begun = (0, 0, 90)
    con = open_job(
        ranks=one_host(0, 1, 2),
        steps=[
            {"rank": r, "step": 0, "start_ns": begun[r], "end_ns": 400, "host_start_ns": begun[r]}
            for r in range(3)
        ],
        events=[e for r in range(3) for e in work(event, r, "k", begun[r], begun[r] + 100, 0)],
        collectives=[part(r, begun[r] + 100, 210) for r in range(3)],
    )
    assert causes(con, "cause, cause_ns") == {2: ("unknown", 90)}
    assert said(con) == "began its first step 90 ns behind the median rank"


def test_data_that_the_first_step_waits_for(open_job, one_host, event, part):
    # the step's first kernel comes late: what its host did from the start of its step counts
    first = (10, 10, 110)
    con = open_job(
        ranks=one_host(0, 1, 2),
        steps=[
            {"rank": r, "step": 0, "start_ns": first[r], "end_ns": 400, "host_start_ns": 0}
            for r in range(3)
        ],
        events=[
            *(e for r in range(3) for e in work(event, r, "k", first[r], first[r] + 100, 5)),
            mark(event, "annotation", "dataloader", 0, 105),
        ],
        collectives=[part(r, first[r] + 100, 220) for r in range(3)],
    )
    assert causes(con, "cause, own_ns, median_ns, host_op") == {
        2: ("data_loading", 105, 0, "dataloader")
    }


def test_idle_without_a_trace_of_why(job, event):
    con = job(*work(event, 2, "k", 200, 300, launch=None))
    assert causes(con, "cause, cause_ns") == {2: ("unknown", 100)}
    assert "idle time that nothing in the trace explains" in said(con)


def test_nothing_reaches_a_quarter_of_the_lateness(job, event):
    # of 100 ns: compute 20, copies 23, launch-bound 20, a stream 20, idle without a launch 17
    con = job(
        *work(event, 2, "k", 100, 217),
        event(2, 1, "memcpy", 217, 240),
        *work(event, 2, "a", 260, 261, launch=250),
        *work(event, 2, "b", 281, 282),
        *work(event, 2, "c", 299, 300, launch=None),
    )
    assert causes(con, "cause, kernel, cause_ns, late_ns") == {2: ("unknown", None, 23, 100)}
    assert said(con) == "does nothing in that time that explains its lateness"


def test_ranks_that_hold_nobody_up_have_no_cause(job, event):
    con = job(*work(event, 2, "k", 100, 300))
    rows = con.execute(
        "SELECT rank, times_last, wait_caused_ns, cause, detail FROM stragglers "
        "WHERE rank < 2 ORDER BY rank"
    ).fetchall()
    # both left collective 1 together: the lowest of three is called last, and costs nothing
    assert rows == [(0, 1, 0, None, None), (1, 0, 0, None, None)]


def test_a_hundredth_of_its_steps_is_where_holding_up_begins(open_job, one_host, event, part):
    def at(caused: int):
        # rank 1 comes so much later to the second collective of a step of 1000
        return open_job(
            ranks=one_host(0, 1),
            steps=[{"rank": r, "step": 0, "start_ns": 0, "end_ns": 1000} for r in (0, 1)],
            events=[
                *work(event, 0, "k", 100, 200), *work(event, 1, "k", 100, 200 + caused),
            ],
            collectives=[
                part(0, 90, 100), part(1, 90, 100),
                part(0, 200, 300, collective_id=2), part(1, 200 + caused, 300, collective_id=2),
            ],
        )  # fmt: skip

    assert causes(at(9), "cause") == {}
    assert causes(at(10), "cause") == {1: ("slower_kernels",)}


def test_last_by_less_than_the_clock_error_is_nobodys_fault(open_job, event, part):
    def with_error(ns: int):
        ranks = [
            {"rank": r, "host": f"h{r}", "start_ns": 0, "end_ns": 1000, "clock_offset_ns": 0,
             "clock_error_ns": ns}
            for r in (0, 1)
        ]  # fmt: skip
        return open_job(
            ranks=ranks,
            steps=[{"rank": r, "step": 0, "start_ns": 0, "end_ns": 400} for r in (0, 1)],
            events=[*work(event, 0, "k", 100, 200), *work(event, 1, "k", 100, 300)],
            collectives=[
                part(0, 90, 100), part(1, 90, 100),
                part(0, 200, 310, collective_id=2), part(1, 300, 310, collective_id=2),
            ],
        )  # fmt: skip

    assert causes(with_error(99), "cause") == {1: ("slower_kernels",)}
    assert causes(with_error(100), "cause") == {}


def test_a_collective_that_a_rank_came_to_from_another_is_not_compared(job, event, part):
    # rank 1 alone has one more collective of comm w in between: its stretch is another
    con = job(*work(event, 2, "k", 100, 300), parts=[part(1, 120, 130, collective_id=9)])
    assert causes(con, "cause, cause_ns, stretches") == {2: ("unknown", None, None)}
    assert said(con) == "cannot be compared with the others before those collectives"


def pipeline(event, part):
    return {
        "events": [*work(event, 0, "f", 0, 100), *work(event, 1, "f", 0, 190)],
        "collectives": [
            part(0, 100, 200, op="send", peer=1, comm="p"),
            part(1, 190, 200, op="recv", peer=0, comm="p"),
        ],
    }


def test_at_sends_and_receives_whole_steps_are_compared(open_job, one_host, event, part):
    con = open_job(
        ranks=one_host(0, 1),
        steps=[{"rank": r, "step": 0, "start_ns": 0, "end_ns": 200} for r in (0, 1)],
        **pipeline(event, part),
    )
    assert causes(con) == {
        1: ("slower_kernels", "f", 90, 190, 100, None, None, None, None, "steps", 1)
    }
    assert said(con) == (
        "computes 190 ns a step where the median rank computes 100 ns, most of all in f "
        "(190 ns against 100 ns)"
    )


def test_without_steps_the_whole_trace_is_one(open_job, one_host, event, part):
    con = open_job(ranks=one_host(0, 1), **pipeline(event, part))
    assert causes(con, "cause, cause_ns, measured_on") == {1: ("slower_kernels", 90, "steps")}
    assert said(con).startswith("computes 190 ns a trace where")


def test_a_rank_without_a_gpu(open_job, one_host, event, part):
    def on_host(*late: dict):
        return open_job(
            ranks=one_host(0, 1),
            steps=[{"rank": r, "step": 0, "start_ns": 0, "end_ns": 400} for r in (0, 1)],
            events=[event(0, 1, "host_op", 100, 200, name="aten::mm", thread=THREAD), *late],
            collectives=[
                part(0, 90, 100), part(1, 90, 100),
                part(0, 200, 310, collective_id=2), part(1, 300, 310, collective_id=2),
            ],
        )  # fmt: skip

    mm = event(1, 2, "host_op", 100, 300, name="aten::mm", thread=THREAD)
    assert causes(on_host(mm), "cause, kernel, cause_ns") == {
        1: ("slower_kernels", "aten::mm", 100)
    }
    # what the loader computes is loading
    loading = mark(event, "annotation", "enumerate(DataLoader)#x", 100, 200, rank=1)
    stack = event(1, 3, "host_op", 150, 190, name="aten::stack", thread=THREAD)
    mm = event(1, 2, "host_op", 200, 300, name="aten::mm", thread=THREAD)
    con = on_host(loading, stack, mm)
    assert causes(con, "cause, kernel, cause_ns") == {1: ("data_loading", None, 100)}
    # asleep, and nothing says so
    assert causes(on_host(mm), "cause, cause_ns") == {1: ("unknown", 100)}


@pytest.mark.parametrize("late", [0, 1, 2])
def test_the_cause_goes_with_the_rank(open_job, one_host, event, part, late):
    until = {r: 300 if r == late else 200 for r in range(3)}
    con = open_job(
        ranks=one_host(0, 1, 2),
        steps=[{"rank": r, "step": 0, "start_ns": 0, "end_ns": 400} for r in range(3)],
        events=[e for r in range(3) for e in work(event, r, "k", 100, until[r])],
        collectives=[
            *(part(r, 90, 100) for r in range(3)),
            *(part(r, until[r], 310, collective_id=2) for r in range(3)),
        ],
    )
    assert causes(con, "cause, cause_ns") == {late: ("slower_kernels", 100)}


def test_times_are_a_step_of_several(open_job, one_host, event, part):
    # the same step three times over, rank 1 late in two of them: 200 ns of excess over three steps
    rows: dict[str, list] = {"steps": [], "events": [], "collectives": []}
    for step in range(3):
        t = 400 * step
        slow = 100 if step < 2 else 0
        for r in (0, 1):
            more = slow * r
            rows["steps"].append({"rank": r, "step": step, "start_ns": t, "end_ns": t + 400})
            rows["events"] += work(event, r, "k", t + 100, t + 200 + more, launch=t)
            rows["collectives"] += [
                part(r, t + 90, t + 100, collective_id=10 * step, step=step),
                part(r, t + 200 + more, t + 310, collective_id=10 * step + 1, step=step),
            ]
    con = open_job(ranks=one_host(0, 1), **rows)
    assert causes(con, "cause, cause_ns, own_ns, median_ns, late_ns, stretches") == {
        1: ("slower_kernels", 67, 133, 67, 67, 2)
    }


def test_jobs_are_kept_apart(tmp_path: Path, one_host, event, part):
    def tables(until: int):
        return {
            "ranks": one_host(0, 1),
            "steps": [{"rank": r, "step": 0, "start_ns": 0, "end_ns": 400} for r in (0, 1)],
            "events": [*work(event, 0, "k", 100, 200), *work(event, 1, "k", 100, until)],
            "collectives": [
                part(0, 90, 100), part(1, 90, 100),
                part(0, 200, 310, collective_id=2), part(1, until, 310, collective_id=2),
            ],
        }  # fmt: skip

    files = {j: write(tmp_path / j, tables(u)) for j, u in (("a", 300), ("b", 260), ("c", 200))}
    con = loader.connect(files, threads=1)
    assert con.execute(
        "SELECT job, rank, cause, cause_ns FROM stragglers WHERE cause IS NOT NULL ORDER BY job"
    ).fetchall() == [("a", 1, "slower_kernels", 100), ("b", 1, "slower_kernels", 60)]


def test_empty_and_untimed_jobs(open_job, one_host, part):
    assert causes(open_job(), "cause") == {}
    alone = open_job(ranks=one_host(0), collectives=[part(0, 0, 10)])
    assert alone.execute("SELECT * FROM stragglers").fetchall() == []
    untimed = open_job(ranks=one_host(0, 1), collectives=[part(0, None, None), part(1, None, None)])
    assert untimed.execute("SELECT * FROM stragglers").fetchall() == []


def test_the_score_is_that_of_the_replay(open_job, one_host, event, part):
    con = open_job(
        ranks=one_host(0, 1), **pipeline(event, part),
        replay_scores=[{"rank": 1, "score_ns": 80, "low_ns": 70, "high_ns": 90}],
    )  # fmt: skip
    rows = con.execute(
        "SELECT rank, score_ns, score_low_ns, score_high_ns FROM stragglers ORDER BY 1"
    )
    assert rows.fetchall() == [(0, None, None, None), (1, 80, 70, 90)]


def test_a_clock_may_begin_after_the_job(open_job, one_host, event, part):
    """A session's clock has moments before its zero: the same job, all of it 5 s earlier."""
    early = -5_000_000_000
    moments = ("start_ns", "end_ns", "host_start_ns")

    def moved(rows: list[dict]) -> list[dict]:
        return [{k: v + early if k in moments else v for k, v in r.items()} for r in rows]

    rows = [part(r, 90, 100) for r in (0, 1, 2)]
    rows += [part(r, 300 if r == 2 else 200, 310, collective_id=2) for r in (0, 1, 2)]
    events = [e for r in (0, 1) for e in work(event, r, "k", 100, 200)]
    events += work(event, 2, "k", 100, 300)
    # Far from all that is compared.
    events += work(event, 1, "before", -90_000_000, -80_000_000, launch=None)
    steps = [
        {"rank": r, "step": 0, "start_ns": 0, "end_ns": 400, "host_start_ns": 0} for r in (0, 1, 2)
    ]
    con = open_job(
        ranks=one_host(0, 1, 2), steps=moved(steps), events=moved(events),
        collectives=moved(rows),
    )  # fmt: skip
    assert causes(con, "cause, kernel, cause_ns, late_ns") == {2: ("slower_kernels", "k", 100, 100)}
