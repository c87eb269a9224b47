"""Clocks that only uneven exchanges tie: the stated error has what such ends may differ by."""

from __future__ import annotations

import json

import numpy as np
import pytest
import retime
from retime.ingest.matching import uneven

MS = 1_000_000


def exchanges(shares, took_ms=30, n=8, ties=0):
    """Arrays of `n` all-to-alls of as many ranks as shares, and `ties` even reductions."""
    ranks = len(shares)
    instance = np.repeat(np.arange(n + ties), ranks)
    moved = np.tile(np.array(shares) * 1000, n + ties)
    moved[n * ranks :] = -1
    return (
        instance, np.tile(np.arange(ranks), n + ties), np.full(len(instance), took_ms * MS), moved,
        np.zeros(ranks, np.int64),
    )  # fmt: skip


def test_who_moves_a_third_may_end_two_thirds_of_the_time_earlier():
    # The reference has the most: 30 ms x (1 - 1/3), and itself nothing.
    assert uneven.doubt_ns(*exchanges([3, 1, 1, 1])) == pytest.approx([0, 20e6, 20e6, 20e6])


def test_who_moves_as_much_as_the_reference_ends_with_it():
    assert uneven.doubt_ns(*exchanges([1, 3, 1, 1])) == pytest.approx([0, 20e6, 0, 0])


def test_even_exchanges_and_as_many_other_collectives_leave_no_doubt():
    assert not uneven.doubt_ns(*exchanges([10, 9, 10, 8])).any()
    assert not uneven.doubt_ns(*exchanges([3, 1, 1, 1], ties=9)).any()
    assert not uneven.doubt_ns(*exchanges([-1, -1])).any()


def test_even_collectives_without_the_reference_say_nothing_of_it():
    """Ranks 1 and 2 reduce among themselves as often as they like."""
    instance, domain, took, moved, component = exchanges([3, 1, 1])
    more = np.repeat(np.arange(100, 150), 2)
    found = uneven.doubt_ns(
        np.append(instance, more), np.append(domain, np.tile([1, 2], 50)),
        np.append(took, np.full(100, MS)), np.append(moved, np.full(100, -1)), component,
    )  # fmt: skip
    assert found == pytest.approx([0, 20e6, 20e6])


def test_which_exchanges_are_uneven():
    instance, _, _, moved, _ = exchanges([3, 1, 1], n=1, ties=1)
    assert uneven.uneven(instance, moved).tolist() == [True] * 3 + [False] * 3
    instance, _, _, moved, _ = exchanges([10, 9, 8])
    assert not uneven.uneven(instance, moved).any()


@pytest.mark.parametrize("reductions", [4, 2, 0])
def test_other_collectives_tie_clocks_where_there_are_enough(tmp_path, reductions):
    """Rank 1, 7 ms ahead, ends each exchange 10 ms after rank 0, and each reduction with it."""
    for rank in (0, 1):
        rows = [
            {"table": "ranks", "rank": rank, "world_size": 2, "host": f"h{rank}", "local_rank": 0},
            {"table": "comms", "comm": "w", "name": "w", "ranks": [0, 1], "size": 2, "dim": "ep"},
        ]
        for k in range(8 + reductions):
            start = 100 * MS * k
            more = {"op": "all_reduce", "in_bytes": 1000, "out_bytes": 1000}
            took = 5 * MS
            if k < 8:
                more = {"op": "all_to_all", "in_bytes": 1000, "out_bytes": (1000, 3000)[rank]}
                took = (20, 30)[rank] * MS
            rows.append(
                {"table": "collectives", "comm": "w", "seq": k, "group_size": 2,
                 "start_ns": start + 7 * MS * rank, "end_ns": start + took + 7 * MS * rank, **more}
            )  # fmt: skip
        lines = "\n".join(json.dumps(row) for row in rows)
        (tmp_path / f"rank{rank}.jsonl").write_text(lines + "\n")
    wh = retime.open(tmp_path / "wh")
    wh.ingest([str(tmp_path / f"rank{rank}.jsonl") for rank in (0, 1)], job="j")
    [(offset_ns, error_ns)] = (
        wh.connect().sql("SELECT clock_offset_ns, clock_error_ns FROM ranks WHERE rank = 1")
    ).fetchall()
    off_ns = abs(offset_ns + 7 * MS)
    assert off_ns <= error_ns
    if reductions == 4:
        assert off_ns < 0.1 * MS
    elif reductions == 0:
        assert off_ns == pytest.approx(10 * MS, abs=MS)
    else:
        # Too few to leave the exchanges out; but short, so that they count for more.
        assert off_ns < 5 * MS
