"""Loads of experts and of their ranks, worked out by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import retime


def routed(rank, expert, tokens, **more):
    row = {"step": 1, "layer": 0, "rank": rank, "expert": expert, "tokens": tokens, "source": "s"}
    return row | {"token_class": "real"} | more


def ep(*groups):
    return [
        {"comm": f"e{i}", "ranks": list(g), "size": len(g), "dim": "ep"}
        for i, g in enumerate(groups)
    ]


ROUTING = [routed(0, 0, 6), routed(0, 1, 2), routed(1, 0, 2), routed(1, 3, 2)]


def one(con, columns):
    (row,) = con.sql(f"SELECT {columns} FROM expert_imbalance").fetchall()
    return row


def test_load_of_each_expert_adds_up_over_ranks(open_job):
    con = open_job(routing=ROUTING)
    rows = con.sql("SELECT expert, tokens, share, source_ranks, expert_rank, placement "
                   "FROM expert_load ORDER BY expert").fetchall()  # fmt: skip
    assert rows == [
        (0, 8, 8 / 12, 2, None, None),
        (1, 2, 2 / 12, 1, None, None),
        (3, 2, 2 / 12, 1, None, None),
    ]


def test_idle_experts_count_in_the_mean(open_job):
    # Loads 8, 2, 0, 2: mean 3, variance (25 + 1 + 9 + 1) / 4 = 9.
    con = open_job(routing=ROUTING)
    found = one(con, "tokens, n_experts, experts_used, busiest_expert, max_over_mean_by_expert, "
                     "cv_by_expert, jain_by_expert, max_over_mean_by_rank, placement")  # fmt: skip
    assert found == (12, 4, 3, 0, 8 / 3, 1.0, 0.5, None, None)


def test_contiguous_places_of_one_expert_parallel_group(open_job):
    # Two ranks hold two experts each: 10 and 2 tokens, mean 6, variance 16.
    con = open_job(routing=ROUTING, comms=ep((4, 9)))
    found = one(con, "n_expert_ranks, busiest_rank, max_over_mean_by_rank, placement")
    assert found == (2, 4, 10 / 6, "contiguous")
    assert one(con, "cv_by_rank") == (pytest.approx(4 / 6),)
    assert one(con, "jain_by_rank") == (pytest.approx(144 / 208),)
    holders = con.sql("SELECT expert, expert_rank, expert_place FROM expert_load ORDER BY expert")
    assert holders.fetchall() == [(0, 4, 0), (1, 4, 0), (3, 9, 1)]


def test_tokens_go_to_the_group_of_the_rank_that_sends_them(open_job):
    # Group (0, 1) gets 10 and 2, group (2, 3) gets 0 and 4: four ranks, mean 4.
    con = open_job(routing=[*ROUTING, routed(2, 2, 4)], comms=ep((0, 1), (2, 3)))
    assert one(con, "n_expert_ranks, busiest_rank, max_over_mean_by_rank") == (4, 0, 10 / 4)


def test_sums_over_all_ranks_know_places_only(open_job):
    rows = [routed(None, 0, 8), routed(None, 3, 4)]
    con = open_job(routing=rows, comms=ep((0, 1), (2, 3)))
    found = one(con, "n_expert_ranks, busiest_rank, max_over_mean_by_rank, placement")
    assert found == (2, None, 8 / 6, "contiguous")
    assert con.sql("SELECT DISTINCT expert_rank FROM expert_load").fetchall() == [(None,)]


@pytest.mark.parametrize("groups", [((0, 1, 2),), ((0, 1), (2, 3, 4, 5))])
def test_no_placement_where_groups_do_not_divide_the_experts_or_differ(open_job, groups):
    con = open_job(routing=ROUTING, comms=ep(*groups))
    assert one(con, "max_over_mean_by_rank, n_expert_ranks, placement") == (None, None, None)


def test_a_recorded_holder_comes_before_a_derived_one(open_job):
    rows = [routed(0, 0, 6, expert_rank=1), routed(0, 1, 2, expert_rank=0)]
    con = open_job(routing=rows, comms=ep((0, 1)))
    found = one(con, "busiest_rank, max_over_mean_by_rank, placement, n_expert_ranks")
    assert found == (1, 6 / 4, "recorded", 2)


def test_an_idle_rank_counts_where_it_holds_experts_in_another_step(open_job):
    rows = [routed(0, 0, 6, expert_rank=0), routed(0, 1, 6, expert_rank=1, step=2)]
    con = open_job(routing=rows)
    found = con.sql("SELECT step, max_over_mean_by_rank FROM expert_imbalance ORDER BY step")
    assert found.fetchall() == [(1, 2.0), (2, 2.0)]


def test_padding_and_dropped_tokens_are_no_load(open_job):
    rows = [*ROUTING, routed(0, None, 5, token_class="padding"),
            routed(1, None, 3, token_class="dropped")]  # fmt: skip
    assert one(open_job(routing=rows), "tokens, dropped_tokens, padding_tokens") == (12, 3, 5)


def test_steps_without_a_number_and_several_sources_stay_apart(open_job):
    rows = [routed(None, 0, 4, step=None), routed(None, 0, 9, step=None, source="t")]
    con = open_job(routing=rows)
    found = con.sql("SELECT source, step, tokens FROM expert_imbalance ORDER BY source").fetchall()
    assert found == [("s", None, 4), ("t", None, 9)]


def test_nothing_is_divided_by_no_tokens(open_job):
    found = one(open_job(routing=[routed(0, 0, 0), routed(0, 1, 0)]),
                "tokens, busiest_expert, max_over_mean_by_expert, jain_by_expert")  # fmt: skip
    assert found == (0, None, None, None)


def test_without_routing_there_are_no_rows(open_job):
    con = open_job()
    for view in ("expert_load", "expert_imbalance", "expert_rail_regression"):
        assert con.sql(f"SELECT count(*) FROM {view}").fetchall() == [(0,)]


def rail(step, first, second):
    """Measured bytes of the two rails of a host in a step."""
    return [
        {"rank": r, "host": "h", "nic": f"n{r}", "rail": r, "bytes": n, "measured": True,
         "via": "NET/IB", "direction": "send", "traffic_class": "collective", "source": "profiler",
         "start_ns": step * 100 + 10, "end_ns": step * 100 + 20, "clock": "host"}
        for r, n in enumerate((first, second))
    ]  # fmt: skip


def test_regression_of_rails_on_experts(open_job, one_host):
    # Experts' max/mean 1, 1.5, 2, 1.5; rails' 1, 1.2, 1.4, 1.2: a line of slope 0.4.
    routing = [
        row
        for step, (a, b) in enumerate([(4, 4), (6, 2), (8, 0), (2, 6)])
        for row in (routed(0, 0, a, step=step), routed(0, 1, b, step=step))
    ]
    transfers = [*rail(0, 50, 50), *rail(1, 60, 40), *rail(2, 70, 30), *rail(3, 40, 60)]
    steps = [
        {"rank": r, "step": s, "start_ns": s * 100, "end_ns": s * 100 + 100}
        for s in range(4)
        for r in (0, 1)
    ]
    con = open_job(routing=routing, transfers=transfers, steps=steps, ranks=one_host(0, 1))
    (row,) = con.sql("SELECT layer, regressor, r2, slope, slope_error, n, rail_source, unit "
                     "FROM expert_rail_regression").fetchall()  # fmt: skip
    assert row[:2] == (0, "by_expert")
    assert row[2] == pytest.approx(1.0)
    assert row[3] == pytest.approx(0.4)
    assert row[4] == pytest.approx(0, abs=1e-7)
    assert row[5:] == (4, "measured", "bytes")


def test_no_regression_on_two_steps_or_on_what_does_not_vary(open_job, one_host):
    steps = [{"rank": 0, "step": s, "start_ns": s * 100, "end_ns": s * 100 + 100} for s in range(3)]
    even = [routed(0, e, 4, step=s) for s in range(3) for e in (0, 1)]
    transfers = [*rail(0, 50, 50), *rail(1, 60, 40), *rail(2, 70, 30)]
    con = open_job(routing=even, transfers=transfers, steps=steps, ranks=one_host(0, 1))
    got = con.sql("SELECT n, r2, slope FROM expert_rail_regression").fetchall()
    assert got == [(3, None, None)]


def test_shares_equal_those_that_esft_published(retime_traces: Path, tmp_path: Path):
    """`token_scores` of its summary, of which the routing of single tokens is the source."""
    folder = retime_traces / "moe" / "ESFT" / "translation"
    published = json.loads((folder / "summary.json").read_text())["token_scores"]
    wh = retime.open(tmp_path / "wh")
    wh.ingest([folder], job="esft")
    rows = wh.sql(
        "SELECT layer, expert, sum(tokens) / sum(sum(tokens)) OVER (PARTITION BY layer) AS share "
        "FROM expert_load GROUP BY layer, expert",
        "esft",
    )
    compared = 0
    for layer, expert, share in rows.iter_rows():
        compared += 1
        assert math.isclose(share, published[str(layer)][str(expert)], abs_tol=2e-3)
    assert compared == 3 * 64


def test_the_highest_expert_that_there_can_be_and_tokens_without_a_sum(open_job):
    top = 2**31 - 1
    con = open_job(routing=[routed(0, top, 2**63 - 1), routed(1, top, 1)])
    assert con.sql("SELECT expert, tokens FROM expert_load").fetchall() == [(top, None)]
    assert one(con, "tokens, n_experts") == (None, 2**31)
