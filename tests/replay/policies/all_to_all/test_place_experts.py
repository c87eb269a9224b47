"""Experts moved to the hosts whose tokens choose them."""

from __future__ import annotations

import numpy as np
import pytest
from retime.replay.graph import Kind
from retime.replay.policies import place_experts
from retime.replay.policy import BadParam

PORTS = "nic=50GB/s,nvlink=400GB/s,alpha=0"

CROSSED = np.array([[1, 1, 8, 8], [1, 1, 8, 8], [8, 8, 1, 1], [8, 8, 1, 1]])
"""Two hosts of two ranks, an expert each: each host's tokens choose the other's experts."""


def rows(counts, steps):
    return [
        {"step": s, "layer": 0, "rank": r, "expert": e, "tokens": int(n), "token_class": "real",
         "source": "t"}
        for s in steps for r, row in enumerate(counts) for e, n in enumerate(row) if n
    ]  # fmt: skip


def job_of(a2a_job, counts=CROSSED, steps=4, routing=None, **more):
    routing = rows(counts, range(steps)) if routing is None else routing
    more = {"took_us": 1_000.0, "hosts": 2, "places": 2, **more}
    return a2a_job([[counts * 1e6]] * steps, routing=routing, **more)


def test_experts_go_home(a2a_job, under, moved_ns):
    # 16 MB a rank cross hosts, 2 MB after: an eighth, in the two steps that are held out. Moving
    # one expert a rank (88 MB at 50 GB/s, 1.76 ms) is spread over 1000 steps.
    job = job_of(a2a_job)
    after = under(job, f"place-experts:{PORTS}")
    took = moved_ns(after)
    assert took[:2] == [1_000_000] * 2
    assert took[2:] == [pytest.approx(125_000 + 1_762, abs=2)] * 2
    (said,) = [a for a in after.assumptions if "cross hosts" in a]
    assert "by 2 steps" in said
    assert "128 to 16, 4 experts moved" in said


def test_tokens_that_cross_hosts_are_counted_once_a_host(a2a_job, under):
    # 18 tokens of two choices on each host and step; weights 1, 1, b, b that give 2, 2, 16, 16 of
    # 36: b = 7 + sqrt(57). Both choices are at home in 1 of 1 + 4 b + b^2 draws, later in b^2.
    b = 7 + 57**0.5
    draws = 1 + 4 * b + b * b
    before, after = 72 * (1 - 1 / draws), 72 * (1 - b * b / draws)
    job = job_of(a2a_job)
    said = under(job, f"place-experts:top_k=2,{PORTS}").assumptions
    assert any(f"cross hosts {before:.0f} to {after:.0f}, 4 experts" in a for a in said)
    with pytest.raises(BadParam, match="at most 2"):
        under(job, f"place-experts:top_k=3,{PORTS}")


def test_experts_that_are_at_home_stay(a2a_job, under, unchanged):
    home = CROSSED[:, [2, 3, 0, 1]]
    job = job_of(a2a_job, home)
    after = under(job, f"place-experts:{PORTS}")
    assert unchanged(job, after)


def test_copies_never_grow_on_the_steps_held_out(a2a_job, under, unchanged):
    # What later steps want is the opposite of what the first ones did.
    home = CROSSED[:, [2, 3, 0, 1]]
    job = job_of(a2a_job, home, routing=rows(CROSSED, (0, 1)) + rows(home, (2, 3)))
    after = under(job, f"place-experts:{PORTS}")
    assert unchanged(job, after)
    (said,) = [a for a in after.assumptions if "cross hosts" in a]
    assert "16 to 16, 0 experts moved" in said


def test_expert_kernels_follow_their_tokens(a2a_job, under):
    uneven = CROSSED * np.array([4, 1, 1, 1])
    job = job_of(a2a_job, uneven)
    after = under(job, f"place-experts:{PORTS}")
    graph = after.graph
    task = (graph.kind == Kind.COMPUTE) & (graph.step == 3)
    took = {int(r): graph.dur_ns[task & (graph.rank == r)].tolist() for r in range(4)}
    # The fourfold expert takes the place of one of 18 choices on the other host.
    assert took[0] == [50_000 / 4]
    assert sorted((took[2], took[3])) == [[50_000], [200_000]]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"routing": []}, "no routing log"),
        ({"hosts": 1, "places": 4}, "experts of one host"),
        ({"named": False}, "hosts of ranks are not known"),
        ({"steps": 1}, "no step of the routing log is held out"),
    ],
)
def test_what_is_missing_is_said(a2a_job, under, unchanged, more, says):
    job = job_of(a2a_job, **more)
    after = under(job, "place-experts")
    assert unchanged(job, after)
    assert any(says in w for w in after.warnings)


def test_sums_over_ranks_cannot_tell(a2a_job, under, unchanged):
    job = job_of(a2a_job, routing=[r | {"rank": None} for r in rows(CROSSED, range(4))])
    after = under(job, "place-experts")
    assert unchanged(job, after)
    assert any("record the routing by source rank" in w for w in after.warnings)


def test_neutral_changes_nothing(a2a_job, under, unchanged):
    job = job_of(a2a_job)
    assert unchanged(job, under(job, ("place-experts", place_experts.NEUTRAL)))


@pytest.mark.parametrize("given", [{"train": 0.0}, {"train": 1.5}, {"amortise": 0}])
def test_what_is_out_of_range(a2a_job, under, given):
    with pytest.raises(BadParam):
        under(job_of(a2a_job), ("place-experts", given))
