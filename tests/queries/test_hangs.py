"""Who had entered and completed what, on hand-made dumps of a communicator of three or four."""

from __future__ import annotations

COMMS = [
    {"comm": "w", "name": "7", "description": "tp", "ranks": [0, 1, 2], "dim": "tp", "size": 3}
]


def entry(rank: int, seq: int | None, state="scheduled", **more) -> dict:
    row = {"comm": "w", "op": "all_reduce", "enqueued_ns": 100 * (seq or 1) + rank,
           "source": "flight-recorder"}  # fmt: skip
    return {"rank": rank, "seq": seq, "state": state, "event_id": rank * 1000 + (seq or 0), **row,
            **more}  # fmt: skip


def counts(
    rank: int, enqueued: int, completed: int, comm: str | None = "w", group: int = 4
) -> dict:
    return {"rank": rank, "comm": comm, "group_id": group, "last_enqueued": enqueued,
            "last_completed": completed, "source": "flight-recorder"}  # fmt: skip


def hangs(con) -> list[tuple]:
    return con.execute(
        "SELECT op, seq, completed, entered, missing, silent FROM hangs ORDER BY comm, seq"
    ).fetchall()


def test_a_member_that_is_behind_is_missing_from_what_the_others_are_in(open_job):
    con = open_job(
        comms=COMMS,
        collectives=[
            entry(0, 4, "completed"), entry(1, 4, "completed"), entry(2, 4, "completed"),
            entry(0, 5), entry(1, 5, "started"), entry(0, 6),
        ],
    )  # fmt: skip
    assert hangs(con) == [
        ("all_reduce", 5, [], [0, 1], [2], []),
        ("all_reduce", 6, [], [0], [1, 2], []),
    ]
    about = con.execute("SELECT group_name, dim, n_ranks, enqueued_ns FROM hangs WHERE seq = 5")
    assert about.fetchall() == [("tp", "tp", 3, 500)]


def test_a_member_that_left_nothing_is_silent_and_one_with_counts_alone_is_not(open_job):
    con = open_job(comms=COMMS, collectives=[entry(0, 5)], progress=[counts(2, 4, 4)])
    assert hangs(con) == [("all_reduce", 5, [], [0], [2], [1])]


def test_what_other_sources_saw_is_no_dump(open_job):
    # The Inspector writes what has completed; the profiler also what had not when its file ended.
    con = open_job(
        comms=COMMS,
        collectives=[
            entry(0, 5, source="kineto+flight-recorder"),
            entry(1, 4, "completed", source="inspector"),
            entry(2, 5, "completed", source="not-flight-recorder"), entry(2, 6, source="profiler"),
            entry(0, None, op="send", peer=1),
            entry(2, None, op="send", peer=0, source="profiler"),
        ],
    )  # fmt: skip
    assert hangs(con) == [("all_reduce", 5, [], [0], [], [1, 2])]
    pairs = con.execute("SELECT rank, peer, peer_entered FROM hanging_pairs")
    assert pairs.fetchall() == [(0, 1, None)]


def test_counts_tell_what_left_the_ring_or_was_left_out(open_job):
    con = open_job(
        comms=COMMS,
        collectives=[entry(0, 5), entry(2, 9)],
        progress=[counts(0, 9, 4), counts(1, 7, 5)],
    )
    # Rank 1 completed 5 and entered up to 7; of rank 2 nothing before 9 is under way.
    assert hangs(con) == [
        ("all_reduce", 5, [1, 2], [0], [], []),
        ("all_reduce", 9, [], [0, 2], [1], []),
    ]


def test_a_group_known_by_number_is_the_one_its_fellow_members_give_that_number(open_job):
    other = {**COMMS[0], "comm": "v", "ranks": [3, 4]}
    con = open_job(
        comms=[*COMMS, other],
        collectives=[entry(0, 5)],
        progress=[
            counts(0, 5, 4), counts(1, 5, 5, comm=None), counts(2, 4, 4, comm=None, group=3),
            counts(3, 9, 9, comm="v"),
        ],
    )  # fmt: skip
    # Number 4 is w for rank 0 and v for rank 3; rank 1 is a member of w only. Nobody names 3.
    assert hangs(con) == [("all_reduce", 5, [1], [0], [2], [])]
    # With a second group of that number that it is a member of, nothing is said of rank 1.
    con = open_job(
        comms=[*COMMS, {**other, "ranks": [1, 3]}],
        collectives=[entry(0, 5)],
        progress=[counts(0, 5, 4), counts(1, 5, 5, comm=None), counts(3, 9, 9, comm="v")],
    )
    assert hangs(con) == [("all_reduce", 5, [], [0], [1], [2])]


def test_counts_are_not_used_where_sends_share_them(open_job):
    send = entry(1, None, "completed", op="send", peer=0)
    con = open_job(comms=COMMS, collectives=[entry(0, 5), send], progress=[counts(1, 900, 900)])
    assert hangs(con) == [("all_reduce", 5, [], [0], [1], [2])]


def test_different_operations_under_one_number_are_all_named(open_job):
    con = open_job(comms=COMMS, collectives=[entry(0, 5), entry(1, 5, op="broadcast")])
    assert hangs(con) == [("all_reduce or broadcast", 5, [], [0, 1], [], [2])]


def test_what_all_have_completed_is_no_hang(open_job):
    con = open_job(comms=COMMS, collectives=[entry(r, 5, "completed") for r in range(3)])
    assert hangs(con) == []


def test_pairs_tell_whether_the_other_end_is_under_way(open_job):
    pair = {"op": "send", "seq": None}
    con = open_job(
        comms=COMMS,
        collectives=[
            entry(0, enqueued_ns=7, peer=1, **pair), entry(0, enqueued_ns=9, peer=1, **pair),
            entry(1, peer=0, **pair | {"op": "recv"}),
            entry(0, peer=2, **pair),
            entry(1, peer=2, **pair | {"op": "recv"}),
            entry(2, None, "completed", op="recv", peer=0),
            entry(2, 1, comm="other"),
            entry(0, peer=3, **pair),
            entry(3, peer=1, **pair),
            entry(0, peer=4, **pair),
        ],
    )  # fmt: skip
    rows = con.execute(
        "SELECT rank, op, peer, n, peer_entered FROM hanging_pairs WHERE rank = 0 ORDER BY peer"
    )
    assert rows.fetchall() == [
        (0, "send", 1, 2, True),
        (0, "send", 2, 1, False),  # nothing of rank 2 is under way on this communicator
        (0, "send", 3, 1, None),  # rank 3 is busy with another: it may have received it
        (0, "send", 4, 1, None),  # rank 4 left no dump
    ]
