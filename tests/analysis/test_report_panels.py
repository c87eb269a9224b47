"""Panels of the page: frames worked out by hand, and what a reader is told of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from retime.analysis import fix_first
from retime.analysis.report import (
    bandwidth,
    breakdown,
    experts,
    headline,
    heat,
    matrix,
    rails,
    stragglers,
    stretches,
    timeline,
)
from retime.analysis.whatif import candidates

FACTS = {"participations": 0, "ranks_seen": 2, "steps": 4, "hosts": 2, "all_wait_ns": 1000}


def runs(*rows: tuple[int, int, int, int]) -> pl.DataFrame:
    return pl.DataFrame(
        rows,
        schema={"rank": pl.Int32, "start_ns": pl.Int64, "end_ns": pl.Int64, "class": pl.Int8},
        orient="row",
    )


def test_stretches_of_a_step_are_those_of_its_breakdown(
    small_job: duckdb.DuckDBPyConnection,
) -> None:
    found = stretches.stretches(small_job, [5])[5]
    assert found.rows() == [
        (0, 0, 400, 1),
        (0, 400, 700, 3),
        (0, 700, 900, 4),
        (0, 900, 950, 6),
        (0, 950, 1000, 0),
        (1, 0, 700, 1),
        (1, 700, 800, 4),
        (1, 800, 900, 2),
        (1, 900, 950, 6),
        (1, 950, 1000, 0),
    ]


def test_short_stretches_become_one_of_the_class_that_takes_most() -> None:
    # 4 + 3 + 2 of class 1, 3, 1 in a row: class 1 has 6 of 9, and 3 ns are drawn as another.
    rows = runs((0, 0, 100, 2), (0, 100, 104, 1), (0, 104, 107, 3), (0, 107, 109, 1),
                (0, 109, 200, 0), (1, 0, 5, 3))  # fmt: skip
    fewer, lost = stretches.coalesced(rows, 10)
    assert fewer.rows() == [(0, 0, 100, 2), (0, 100, 109, 1), (0, 109, 200, 0), (1, 0, 5, 3)]
    assert lost == 3


def test_nothing_is_merged_that_fits() -> None:
    rows = runs((0, 0, 1, 1), (0, 1, 2, 0), (0, 2, 1000, 1))
    assert stretches.fitted(rows, 1000, 3)[1:] == (0, 0)
    fewer, lost, width = stretches.fitted(rows, 1000, 2)
    assert fewer.rows() == [(0, 0, 1000, 1)]
    assert (lost, width) == (1, 2)


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 6)), min_size=1, max_size=60),
    st.integers(1, 50),
)
def test_merging_keeps_all_of_the_time(pieces: list[tuple[int, int]], width: int) -> None:
    rows, at = [], 0
    for dur, kind in pieces:
        rows.append((0, at, at + dur, kind))
        at += dur
    merged = stretches.merged(runs(*rows))
    fewer, lost = stretches.coalesced(merged, width)
    assert fewer.height <= merged.height
    assert fewer["start_ns"].to_list() == [0, *fewer["end_ns"].to_list()[:-1]]
    assert fewer["end_ns"][-1] == at

    def of_class(frame: pl.DataFrame, kind: int) -> int:
        mine = frame.filter(pl.col("class") == kind)
        return int((mine["end_ns"] - mine["start_ns"]).sum())

    moved = sum(abs(of_class(fewer, k) - of_class(merged, k)) for k in range(7))
    assert moved <= 2 * lost
    assert lost <= at


def by_step(*rows: tuple[int, int, float, int]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=["step", "ranks", "mean_ns", "busy_ns"], orient="row")


def test_steps_to_show_are_named_and_idle_or_partial_ones_are_not_among_them() -> None:
    steps = by_step((1, 8, 50.0, 9), (2, 8, 10.0, 9), (3, 8, 30.0, 9), (4, 8, 20.0, 0),
                    (5, 2, 99.0, 9))  # fmt: skip
    assert stretches.chosen(steps) == [(3, "median, last"), (1, "slowest, first"), (2, "fastest")]
    assert stretches.chosen(steps.head(0)) == [(None, "the whole trace")]


def test_odd_steps_are_named() -> None:
    steps = by_step(*((s, 8, 100.0 + s % 3, 9) for s in range(9)), (9, 8, 180.0, 9))
    assert headline.step_words(steps) == (
        "The median step takes 101 ns, the slowest (step 9) 180 ns. Step 9 is far above the others."
    )
    assert headline.step_words(by_step((1, 8, 100.0, 9), (2, 8, 100.5, 9))) == ""


def parts(*rows: tuple[int, str, int, int | None]) -> pl.DataFrame:
    frame = pl.DataFrame(
        rows,
        schema={
            "rank": pl.Int32, "collective": pl.String, "start_ns": pl.Int64, "wait_ns": pl.Int64
        },
        orient="row",
    )  # fmt: skip
    return frame.with_columns(pl.lit("all_reduce").alias("label"))


def test_a_wait_that_is_not_known_is_neither_zero_nor_absent() -> None:
    rows = parts((0, "a", 1, 30), (1, "a", 2, 0), (0, "b", 5, None))
    found = heat.table(rows, [0, 1, 2])
    assert found["rows"] == {0: [30, matrix.UNKNOWN], 1: [0, None], 2: [None, None]}
    assert (found["grouped"], found["count"], found["unit_ns"]) == (False, [1, 1], 1)


def test_many_collectives_share_a_column_by_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heat, "MOST_COLUMNS", 1)
    found = heat.table(parts((0, "a", 1, 8000), (0, "b", 5, 4000), (1, "b", 5, 0)), [0, 1])
    assert (found["grouped"], found["count"], found["unit_ns"]) == (True, [2], 3)
    assert found["rows"] == {0: [4000], 1: [0]}


FIT = {"messages": 2.0, "volume": 1.0, "factor": 1.0, "alpha_ns": 500.0, "alpha_error_ns": 30.0,
       "bandwidth_bytes_per_s": 10_000_000_000, "bandwidth_error_bytes_per_s": 1_000_000_000,
       "min_bytes": 10_000, "max_bytes": 1_000_000}  # fmt: skip


def test_the_fitted_line_is_hockneys_and_its_band_two_errors() -> None:
    # 2 x 500 ns + 10 000 B / 10 B/ns = 2000 ns; errors 60 ns and a tenth of 1000 ns.
    time, error = bandwidth.took_ns(FIT, 10_000)
    assert time == 2000
    assert error == pytest.approx((60**2 + 100**2) ** 0.5)
    line = bandwidth.curve(FIT)
    assert line[0][:2] == [10_000, 5.0]
    assert line[0][2] == pytest.approx(10_000 / (2000 + 2 * error), rel=1e-3)
    assert line[0][3] == pytest.approx(10_000 / (2000 - 2 * error), rel=1e-3)
    assert line[-1][:2] == [1_000_000, pytest.approx(1e6 / 101_000, rel=1e-3)]


def test_the_matrix_of_a_step_has_a_row_a_rank(small_job: duckdb.DuckDBPyConnection) -> None:
    found = bandwidth.gather(small_job)
    # 2048 B in 200 ns of transfer is 10.24 GB/s; of 2 ranks' all-reduce bus bandwidth is the same.
    assert found["points"].select("bytes", "n", "gbps").rows() == [(2048, 1, 10.24)]
    (facet,) = bandwidth.facets(found)
    assert facet["title"] == "all_reduce · dp · 2 ranks"
    assert facet["points"] == [[0, 2048, 10.24, 10.24, 10.24, 1]]
    assert facet["said"] == "No line: fewer than 3 sizes."


def whatif(*rows: tuple[str, int, int, int]) -> dict[str, Any]:
    return {
        "measured_ns": 1000,
        "fidelity_pct": 0.1,
        "steps": [1, 2, 3],
        "rows": [
            {"policy": p, "words": p, "error": None, "step_ns": s, "low_ns": low, "high_ns": high,
             "gain_pct": 100 * (1 - s / 1000)}
            for p, s, low, high in rows
        ],
    }  # fmt: skip


ROOM = {
    "scope": "step",
    "classes": [
        {"class": "compute", "mean_ns": 700.0, "share": 0.7},
        {"class": "exposed_transfer", "mean_ns": 200.0, "share": 0.2},
        {"class": "exposed_memcpy", "mean_ns": 5.0, "share": 0.005},
    ],
}


def test_one_rank_leads_where_it_is_most_of_the_gain() -> None:
    both = (("align-arrivals", 700, 650, 750), ("align-arrivals:ranks=3", 740, 700, 800))
    found = fix_first.candidates(whatif(*both), ROOM)
    assert [c["gain_ns"] for c in found] == [300, 260, 200]
    head, gain = fix_first.sentence(found, whatif(*both))
    assert head == "Get rank 3 to its collectives in time"
    assert gain == "Re-timed, the step would take 260 ns (200 to 300) less (26.0 %)."
    weaker = (both[0], ("align-arrivals:ranks=3", 900, 880, 920))
    head, _ = fix_first.sentence(fix_first.candidates(whatif(*weaker), ROOM), whatif(*weaker))
    assert head == "Get all ranks to their collectives at the same time"


def test_a_gain_within_its_interval_is_no_fix() -> None:
    doubtful = whatif(("align-arrivals", 950, 850, 1010))
    found = fix_first.candidates(doubtful, ROOM)
    assert fix_first.first(found) is None
    head, said = fix_first.sentence(found, doubtful)
    assert head == "Nothing re-timed gains beyond its interval"
    assert said == (
        "The most room is in moving bytes under compute, or faster: 200 ns of the mean step, "
        "without the wait that it causes on other ranks. How much a fix gains is not known."
    )
    assert fix_first.sentence([], whatif(), "trace") == (
        "Nothing could be re-timed",
        "No class that a fix is known for takes 1 % of the trace.",
    )


def test_fewer_ranks_lead_where_they_are_most_of_the_gain() -> None:
    tried = whatif(
        ("align-arrivals", 700, 690, 710),
        ("align-arrivals:ranks=1", 900, 880, 920),
        ("align-arrivals:ranks=0+1+2", 750, 740, 760),
    )
    head, _ = fix_first.sentence(fix_first.candidates(tried, ROOM), tried)
    assert head == "Get ranks 0, 1 and 2 to their collectives in time"


STUDY = {"measured_ns": 1000.0, "replayed_ns": 950.0, "ideal_ns": 750.0, "slowest_ranks": [7]}
PAIRED = {"scope": "step", "classes": [], "paired_wait_share": 0.8, "ranks_seen": 8}


def test_a_pipeline_is_told_its_stage_or_rank_and_no_more_than_the_ideal_gains() -> None:
    def of(m_s: float | None, m_w: float | None) -> tuple[list[int], tuple[str, str]]:
        study = {**STUDY, "m_s": m_s, "m_w": m_w}
        tried = whatif(("align-arrivals:to=ideal", 840, 830, 850))
        found = fix_first.candidates(tried, PAIRED, study)
        return [c["gain_ns"] for c in found], fix_first.sentence(found, tried)

    # The excess is 200 ns; all operations at their ideal gain 160 ns, re-timed.
    assert of(1.2, 0.5) == (
        [160, 100],
        (
            "Get the last pipeline stage to its ideal",
            "By the straggler study, the step would take 160 ns less (16.0 %), as much as with "
            "every operation at its ideal (re-timed).",
        ),
    )
    assert of(None, 0.5)[1] == (
        "Get rank 7 to its ideal",
        "By the straggler study, the step would take 100 ns less (10.0 %).",
    )
    assert of(0.05, 0.09)[0] == []
    assert of(0.05, 0.09)[1][0] == "No stage and no rank stands out"


def test_nobody_is_aligned_where_the_schedule_makes_them_wait() -> None:
    facts = {**PAIRED, "waited_for": {"rank": 3}, "culprit": {"rank": 7}, "framework": "kineto"}
    assert candidates(facts, set(), [1, 2]) == [
        ("align-arrivals:to=ideal", "every operation takes its ideal time")
    ]
    alone = {**facts, "paired_wait_share": 0.1}
    assert candidates(alone, set(), [2, 1]) == [
        ("align-arrivals", "nobody arrives late"),
        ("align-arrivals:ranks=7", "rank 7 is not late"),
        ("align-arrivals:ranks=1+2", "ranks 1 and 2 together are not late"),
        ("align-arrivals:to=ideal", "every operation takes its ideal time"),
    ]


def test_no_rank_is_tried_for_where_its_recording_began() -> None:
    facts = {"waited_for": {"rank": 3}, "culprit": None, "framework": "kineto", "ranks_seen": 8}
    together = ("align-arrivals:ranks=1+2", "ranks 1 and 2 together are not late")
    apart = {**facts, "start_spread_ns": 51, "step_ns": 1000}
    assert together not in candidates(apart, set(), [1, 2])
    assert together in candidates({**apart, "start_spread_ns": 50}, set(), [1, 2])
    assert together in candidates({**apart, "culprit": {"rank": 7}}, set(), [1, 2])


def test_a_benchmark_has_its_curve_and_its_line(
    open_rows: Callable[..., duckdb.DuckDBPyConnection], rows: dict[str, Any]
) -> None:
    # T = 1000 ns + S ns / 10 of 2 ranks' all-reduce, whose bus bandwidth is S / T.
    curve = [
        {"op": "all_reduce", "bytes": s, "n_ranks": 2, "n_hosts": 1,
         "dtype": "float32", "redop": "sum", "in_place": False, "time_ns": 1000 + s // 10,
         "tool": "nccl-tests"}
        for s in (10_000, 100_000, 1_000_000)
    ]  # fmt: skip
    found = bandwidth.gather(open_rows({**rows, "cost_curves": curve}))
    assert found["curves"].select("bytes", "gbps", "n").rows() == [
        (10_000, 5.0, 1), (100_000, pytest.approx(100 / 11), 1),
        (1_000_000, pytest.approx(1000 / 101), 1),
    ]  # fmt: skip
    panel = bandwidth.render({**found, "points": found["points"].head(0)})
    (facet,) = panel.data["facets"]
    assert facet["title"] == "benchmark · all_reduce · 2 ranks · float32 · out of place"
    assert facet["points"][0] == [-1, 10_000, 5.0, 5.0, 5.0, 1]
    assert facet["lines"][0]["at"][0][:2] == [10_000, 5.0]
    assert "The fits of benchmarks" in panel.html
    assert "is no work of this job" in panel.html
    assert len(bandwidth.render(found).data["facets"]) == 2


LATE = pl.DataFrame(
    {
        "rank": [3, 0],
        "host": ["a", "b"],
        "collectives": [10, 10],
        "times_last": [9, 1],
        "wait_caused_ns": [800, 0],
        "score_ns": [120, None],
        "score_low_ns": [100, None],
        "score_high_ns": [140, None],
        "cause": ["slower_kernels", None],
        "kernel": ["gemm<1>", None],
        "detail": ["computes 9 ms a step where the median rank computes 7 ms", None],
        "slope_ns_per_step": [None, 5.0],
    }
)


def test_a_late_rank_has_its_cause_and_what_it_costs() -> None:
    text = stragglers.render(LATE, FACTS).html
    assert '<tr data-rank="3">' in text
    for said in ("9 of 10", "800 ns", "80.0 %", "120 ns (100 to 140)", "slower kernels",
                 "computes 9 ms a step", "later each step by", "5 ns"):  # fmt: skip
        assert said in text, said
    assert "not known" in stragglers.render(LATE.head(0), FACTS).html


RAILS = {
    "load": pl.DataFrame(
        {
            "step": [1, 1, 2, 2, None],
            "window_by": ["step"] * 4 + ["outside steps"],
            "window_start_ns": [0, 0, 10, 10, 20],
            "host": ["a", "b", "a", "b", "a"],
            "rank": [0, 1, 0, 1, 0],
            "rail": [0] * 5,
            "nic": ["n0", "n1", "n0", "n1", "n0"],
            "source": ["measured"] * 5,
            "unit": ["bytes"] * 5,
            "amount": [4096, 1024, 0, 2048, 1 << 20],
            "busy_ns": [1, 1, 1, 1, 1],
        }
    ),
    "imbalance": pl.DataFrame(
        {
            "step": [1], "window_by": ["step"], "window_start_ns": [0], "source": ["measured"],
            "unit": ["bytes"], "n_rails": [2], "idle_rails": [0], "bytes": [5120],
            "max_over_mean": [1.6], "cv": [0.6], "jain": [0.735], "busy_max_over_mean": [1.0],
            "busiest_host": ["a"], "busiest_rail": [0],
        }
    ),
    "left_out": pl.DataFrame({"operations": [3], "op": ["all_to_all"], "reason": ["no sizes"]}),
}  # fmt: skip


def test_rails_are_drawn_by_step_and_say_how_they_are_known() -> None:
    panel = rails.render(RAILS)
    assert panel.data["columns"] == ["step 1", "step 2"]
    assert panel.data["unit"] == 2  # the largest is at most 4095
    assert panel.data["cells"] == [[2048, 0], [512, 1024]]
    assert [(r["group"], r["rank"]) for r in panel.data["rows"]] == [("a", 0), ("b", 1)]
    for said in ("Measured: counters of NICs", "Not drawn: 1 MiB outside steps.",
                 "3 operations (all_to_all) not in it: no sizes.", "rail 0 of a"):  # fmt: skip
        assert said in panel.html, said
    empty = rails.render({k: v.head(0) for k, v in RAILS.items()})
    assert empty.data is None
    assert "NCCL_PROFILER_PLUGIN" in empty.html


EXPERTS = {
    "load": pl.DataFrame(
        {
            "source": ["x"] * 3, "id_space": ["logical"] * 3, "block": [None] * 3,
            "layer": [0, 0, 1], "expert": [0, 2, 2], "tokens": [10, 30, 40],
        },
        schema_overrides={"block": pl.String},
    ),
    "by_rank": pl.DataFrame(
        {
            "source": ["x", "x"], "id_space": ["logical"] * 2, "rank": [0, 1],
            "placement": ["recorded"] * 2, "tokens": [10, 70],
        }
    ),
    "imbalance": pl.DataFrame(
        {
            "source": ["x"], "id_space": ["logical"], "block": [None], "layer": [0],
            "windows": [1], "tokens": [40], "n_experts": [3], "by_expert": [2.25],
            "by_expert_worst": [2.25], "by_rank": [1.5], "by_rank_worst": [1.5],
            "busiest_expert": [2],
        },
        schema_overrides={"block": pl.String},
    ),
    "regression": pl.DataFrame(
        {
            "source": ["x"], "block": [None], "layer": [0], "regressor": ["by_rank"],
            "r2": [0.875], "slope": [0.5], "slope_error": [0.1], "n": [9],
            "rail_source": ["measured"],
        },
        schema_overrides={"block": pl.String},
    ),
}  # fmt: skip


def test_experts_by_layer_and_rank() -> None:
    panel = experts.render(EXPERTS)
    assert panel.data["columns"] == ["0", "2"]
    assert panel.data["cells"] == [[10, 30], [None, 40]]
    for said in ("Told by x; experts are logical.", '<tr data-rank="1">', "2.25", "0.875"):
        assert said in panel.html, said
    assert "docs/routing.md" in experts.render({k: v.head(0) for k, v in EXPERTS.items()}).html


def test_every_panel_without_data_says_why_and_how_to_get_it() -> None:
    none = pl.DataFrame()
    for text in (
        timeline.render({}, FACTS).html,
        breakdown.render(none, {**FACTS, "scope": "step"}).html,
        heat.render({}, none, FACTS).html,
        bandwidth.render({"points": none, "fits": none, "members": none}).html,
    ):
        assert 'class="note absent"' in text
        assert "torch.profiler" in text
        assert "data-chart" not in text
