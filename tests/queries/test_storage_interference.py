"""Stalls for data and collectives beside storage traffic, worked out by hand."""

from __future__ import annotations

COLUMNS = (
    "step, storage_bytes, storage_ns, collectives_beside, collectives_slowed, slowdown, source"
)


def steps(n, ranks=(0, 1)):
    return [
        {"rank": r, "step": s, "start_ns": s * 1000, "end_ns": s * 1000 + 1000}
        for s in range(n)
        for r in ranks
    ]


def pair(part, step, number, start, end):
    """One all-reduce of two ranks that start together."""
    return [
        part(r, start, end, step=step, collective_id=number, in_bytes=64, out_bytes=64,
             group_size=2, clock="host")
        for r in (0, 1)
    ]  # fmt: skip


def storage(start, end, n_bytes=100, **more):
    return {
        "host": "h", "rank": 0, "start_ns": start, "end_ns": end, "bytes": n_bytes,
        "traffic_class": "storage", "measured": True, "source": "nsys",
    } | more  # fmt: skip


def test_a_collective_beside_storage_against_its_like_without(open_job, one_host, part):
    # Alone 100, 100, 110 and 90 in steps 0 to 3 (median 100); beside storage 250 in step 4.
    rows = [
        r
        for s, dur in enumerate((100, 100, 110, 90, 250))
        for r in pair(part, s, s, s * 1000 + 10, s * 1000 + 10 + dur)
    ]
    moving = [storage(4000, 4200), storage(4100, 4300, 50)]
    con = open_job(collectives=rows, ranks=one_host(0, 1), steps=steps(5), transfers=moving)
    got = con.sql(f"SELECT {COLUMNS} FROM storage_interference ORDER BY step").fetchall()
    assert got[:4] == [(s, 0, 0, 0, None, None, None) for s in range(4)]
    assert got[4] == (4, 150, 300, 1, 1, 2.5, "measured")


def test_less_than_half_beside_storage_is_neither(open_job, one_host, part):
    rows = [r for s in range(4) for r in pair(part, s, s, s * 1000, s * 1000 + 100)]
    con = open_job(collectives=rows, ranks=one_host(0, 1), steps=steps(4),
                   transfers=[storage(3060, 3200)])  # fmt: skip
    got = con.sql("SELECT sum(collectives_beside) FROM storage_interference").fetchall()
    assert got == [(0,)]


def test_too_few_of_its_like_compare_nothing(open_job, one_host, part):
    rows = [r for s in range(3) for r in pair(part, s, s, s * 1000, s * 1000 + 100)]
    con = open_job(collectives=rows, ranks=one_host(0, 1), steps=steps(3),
                   transfers=[storage(2000, 2200)])  # fmt: skip
    got = con.sql(f"SELECT {COLUMNS} FROM storage_interference WHERE step = 2").fetchall()
    assert got == [(2, 100, 200, 1, None, None, "measured")]


def test_storage_of_another_host_is_beside_nothing(open_job, one_host, part):
    rows = [r for s in range(4) for r in pair(part, s, s, s * 1000, s * 1000 + 100)]
    con = open_job(collectives=rows, ranks=one_host(0, 1), steps=steps(4),
                   transfers=[storage(3000, 3200, host="elsewhere", rank=None)])  # fmt: skip
    got = con.sql("SELECT max(collectives_beside) FROM storage_interference").fetchall()
    assert got == [(0,)]


def test_stalls_of_the_loader_with_their_tail(open_job, one_host, event):
    # Rank 0: its kernel is launched at 80, after the loader held the thread from 10 to 80.
    events = [
        event(0, 1, "kernel", 0, 10, correlation=1, device=0),
        event(0, 2, "runtime", 0, 1, correlation=1, thread="t"),
        event(0, 3, "annotation", 10, 80, thread="t",
              name="enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"),
        event(0, 4, "runtime", 80, 81, correlation=2, thread="t"),
        event(0, 5, "kernel", 90, 1000, correlation=2, device=0),
        event(1, 6, "kernel", 0, 1000, device=0),
    ]  # fmt: skip
    con = open_job(events=events, ranks=one_host(0, 1), steps=steps(1))
    got = con.sql("SELECT stall_ns, stall_max_ns, stalled_ranks, stall_max_over_mean, "
                  "storage_bytes, source FROM storage_interference").fetchall()  # fmt: skip
    assert got == [(80, 80, 1, 2.0, None, None)]


def test_no_steps_no_rows(open_job):
    assert open_job().sql("FROM storage_interference").fetchall() == []
