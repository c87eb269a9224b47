"""Policies of all-to-alls one after another: the second starts from what the first left."""

from __future__ import annotations

import numpy as np
import pytest
from retime.replay import run
from retime.replay.moe import rails
from retime.replay.policies import resolve

PORTS = "nic=50GB/s,nvlink=160GB/s,alpha=0"
WAVES = f"wave-schedule:{PORTS},native=all-at-once,gamma=0.5,free=1,alpha_w=0"


def applied(job, *specs):
    for spec in specs:
        policy, values = resolve(spec)
        job = policy.apply(job, **values)
    return job


def to_one():
    """200 MB from each GPU of a host to the first one of the other."""
    matrix = np.zeros((8, 8))
    matrix[:4, 4] = 200e6
    return matrix


def test_what_a_balance_took_from_a_port_waves_cannot_take_again(a2a_job, moved_ns):
    job = run.baseline(a2a_job([[to_one()]], took_us=20_000.0)).job
    # Four senders into one NIC: waves save its incast.
    assert moved_ns(applied(job, WAVES))[0] < moved_ns(job)[0]
    # Balanced, each NIC has one sender: no incast is left to save.
    balance = f"rail-balance:granularity=0,{PORTS}"
    balanced = applied(job, balance)
    both = applied(job, balance, WAVES)
    assert moved_ns(both) == moved_ns(balanced)
    assert any("what policies before this one made of them" in a for a in both.assumptions)


def test_the_matrix_that_a_balance_leaves():
    where = rails.layout(np.repeat([0, 1], 4), np.tile(np.arange(4), 2))
    matrix = to_one()
    matrix[4, 5] = 7.0
    even = rails.carried(matrix, where, 0.0)
    assert even is not None
    assert even.sum() == pytest.approx(matrix.sum())
    assert [even[k, 4 + k] for k in range(4)] == [200e6] * 4
    assert even[4, 5] == 7
    loads = rails.balanced(matrix, where, 0.0)
    same = rails.loads(even, where, "direct")
    assert np.array_equal(same.send, loads.send)
    assert np.array_equal(same.recv, loads.recv)
    # Nothing to balance over where a host lacks a GPU of a rail.
    assert (
        rails.carried(np.ones((3, 3)), rails.layout(np.array([0, 0, 1]), np.arange(3)), 0) is None
    )


def test_experts_are_placed_once(a2a_job, moved_ns):
    counts = np.tile([90, 10, 10, 10], (4, 1))
    rows = [
        {"step": s, "layer": 0, "rank": r, "expert": e, "tokens": int(n), "token_class": "real",
         "source": "t"}
        for s in range(3) for r, row in enumerate(counts) for e, n in enumerate(row)
    ]  # fmt: skip
    job = a2a_job([[counts * 1000.0]] * 3, took_us=1_000.0, hosts=1, places=4, routing=rows)
    job = run.baseline(job).job
    copies = "replicate-experts:when=runtime,budget=4,nvlink=100GB/s,alpha=0,hidden=1"
    once = applied(job, copies)
    twice = applied(once, copies)
    assert moved_ns(twice) == moved_ns(once)
    assert any("placed experts already" in w for w in twice.warnings)
    placed = applied(once, "place-experts")
    assert moved_ns(placed) == moved_ns(once)
    # What an exchange then is, is what its copies left: 67.5 into rank 0, 3 x 32.5 into others.
    (matrix,) = {m.tobytes(): m for m in once.facts["exchanged"].values()}.values()
    off = matrix - np.diag(np.diag(matrix))
    assert off.sum(axis=0) == pytest.approx([67.5e3, 97.5e3, 97.5e3, 97.5e3])
