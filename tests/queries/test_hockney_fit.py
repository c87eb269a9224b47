"""Hockney's line: exact on rows made from known alpha and bandwidth, and against numpy's."""

import math

import numpy as np
import polars as pl
import pytest
from retime import Warehouse
from retime.queries import loader
from retime.replay import models

ALPHA_NS, BYTES_PER_NS = 500, 8.0
"""8 GB/s."""


def ring_ns(n: int, size: int) -> int:
    """An all-reduce over a ring, by hand: 2(n-1) messages, 2(n-1)/n of the bytes."""
    took = 2 * (n - 1) * ALPHA_NS + 2 * (n - 1) / n * size / BYTES_PER_NS
    assert took == int(took)
    return int(took)


@pytest.fixture
def fit(open_job, one_host, part):
    """The only row of `hockney_fit` for all-reduces (size, transfer_ns, [late_ns a rank])."""

    def of(collectives, ranks=2, **more):
        rows, now = [], 0
        for i, (size, took, late) in enumerate(collectives):
            end = now + max(late) + took
            rows += [
                part(r, now + late[r], end, collective_id=i, in_bytes=size, out_bytes=size,
                     group_size=ranks, event_id=i * 100 + r, **more)
                for r in range(ranks)
            ]  # fmt: skip
            now = end + 1000
        con = open_job(ranks=one_host(*range(ranks)), collectives=rows)
        (row,) = con.sql("FROM hockney_fit").pl().to_dicts()
        return row

    return of


def test_alpha_and_bandwidth_are_found_again(fit):
    late = [[0, 0, 0, 40], [0, 0, 20, 100], [0, 10, 10, 60]]
    sizes = [64, 4096, 65536, 1 << 20]
    row = fit([(s, ring_ns(4, s), w) for s in sizes for w in late], ranks=4)
    assert row == {
        "job": "j", "comm": "w", "dim": None, "op": "all_reduce", "n_ranks": 4,
        "algorithm": "ring", "how": "assumed",
        "alpha_ns": pytest.approx(500, abs=0.01), "alpha_error_ns": pytest.approx(0, abs=0.01),
        "bandwidth_bytes_per_s": pytest.approx(8e9, rel=1e-6),
        "bandwidth_error_bytes_per_s": pytest.approx(0, abs=8e3),
        # The median rank waits 40, 90 and 50 ns.
        "tau_ns": 50, "tau_spread_ns": 50,
        "n": 12, "n_sizes": 4, "min_bytes": 64, "max_bytes": 1 << 20,
        "r2": pytest.approx(1), "fixed_ns": pytest.approx(3000, abs=0.1),
        "ns_per_byte": pytest.approx(1.5 / 8), "caveat": None,
    }  # fmt: skip


def test_one_slow_collective_of_a_size_does_not_count(fit):
    sizes = [64, 64, 64, 4096, 4096, 4096, 1 << 20, 1 << 20, 1 << 20]
    slow = [(s, ring_ns(2, s) * (100 if i % 3 == 1 else 1), [0, 0]) for i, s in enumerate(sizes)]
    row = fit(slow)
    assert row["alpha_ns"] == pytest.approx(500, abs=0.01)
    assert row["bandwidth_bytes_per_s"] == pytest.approx(8e9, rel=1e-6)
    assert (row["tau_ns"], row["tau_spread_ns"], row["n"]) == (0, 0, 9)


def test_a_recorded_algorithm_has_its_own_form(fit):
    # A tree of 4 ranks: 4 messages, twice the bytes. 2000 ns and a quarter of a ns a byte.
    row = fit([(s, 2000 + s // 4, [0] * 4) for s in (64, 512, 4096)], ranks=4, algo="Tree")
    assert (row["algorithm"], row["how"]) == ("tree", "recorded")
    assert row["alpha_ns"] == pytest.approx(500, abs=0.01)
    assert row["bandwidth_bytes_per_s"] == pytest.approx(8e9, rel=1e-6)


def test_a_deep_tree_costs_messages_and_no_bytes(fit):
    """20 us + 2 S / (100 GB/s) on 16 ranks: 2 * 4 messages of 2.5 us."""
    sizes = [10**6, 4 * 10**6, 16 * 10**6]
    row = fit([(s, 20_000 + 2 * s // 100, [0] * 16) for s in sizes], ranks=16, algo="tree")
    assert (row["algorithm"], row["how"], row["caveat"]) == ("tree", "recorded", None)
    assert row["alpha_ns"] == pytest.approx(2500, abs=0.01)
    assert row["bandwidth_bytes_per_s"] == pytest.approx(100e9, rel=1e-6)
    assert row["ns_per_byte"] == pytest.approx(0.02)


def test_a_small_negative_intercept_is_no_alpha(fit):
    row = fit([(1000, 900, [0, 0]), (2000, 2100, [0, 0]), (4000, 4000, [0, 0])])
    # Through the origin, errors by their share: sum(x/t) / sum((x/t)^2).
    shares = np.array([1000 / 900, 2000 / 2100, 1.0])
    assert row["fixed_ns"] < 0
    assert row["caveat"] is None
    assert row["alpha_ns"] == 0
    slope = shares.sum() / (shares**2).sum()
    assert row["bandwidth_bytes_per_s"] == pytest.approx(1e9 / slope, abs=1)


@pytest.mark.parametrize(
    ("collectives", "why"),
    [
        ([(64, 100, [0, 0]), (4096, 200, [0, 0])], "fewer than 3 sizes"),
        ([(s, 100 + s, [0, 0]) for s in (100, 200, 399)], "sizes span less than a factor of 4"),
        ([(s, 5000, [0, 0]) for s in (64, 512, 4096)],
         "larger messages took no longer: nothing tells what a byte costs"),
        ([(s, 5000 - s, [0, 0]) for s in (64, 512, 4096)],
         "larger messages took no longer: nothing tells what a byte costs"),
        ([(s, 10 * s - 800, [0, 0]) for s in (100, 200, 1000, 2000)],
         "time grows faster than size: no line through a cost of messages"),
        ([(0, 100, [0, 0])] * 3, "no size whose transfer is known"),
    ],
)  # fmt: skip
def test_no_fit_says_why(fit, collectives, why):
    row = fit([(s, t, [0, 7]) for s, t, _ in collectives])
    values = ("alpha_ns", "alpha_error_ns", "bandwidth_bytes_per_s", "bandwidth_error_bytes_per_s")
    assert [row[v] for v in values] == [None] * 4
    assert row["caveat"] == why
    # The median of two ranks that wait 7 and 0.
    assert row["tau_ns"] == 4


def test_what_is_not_known_is_not_fitted(fit, open_job, one_host, part):
    sizes = (64, 512, 4096)
    assert fit([(s, 100 + s, [0, 0]) for s in sizes], algo="nvls")["caveat"] == (
        "no closed form of this operation under this algorithm"
    )
    rows = fit([(s, 100 + s, [0, 0]) for s in sizes], coalesced=3)
    assert (rows["n"], rows["caveat"]) == (0, "no size whose transfer is known")
    # Two of four ranks left a trace: how long they waited for the others nobody knows.
    missing = [
        part(r, 0, 100 + s, collective_id=s, in_bytes=s, out_bytes=s, group_size=4, event_id=r)
        for s in sizes for r in (0, 1)
    ]  # fmt: skip
    con = open_job(ranks=one_host(0, 1), collectives=missing)
    assert con.sql("SELECT n, caveat FROM hockney_fit").fetchall() == [
        (0, "no size whose transfer is known")
    ]


def test_empty():
    con = loader.connect({})
    assert con.sql("FROM hockney_fit").fetchall() == []
    assert con.sql("FROM cost_curve_fit").fetchall() == []


def test_the_table_of_forms_is_that_of_the_models():
    """But for the bytes of a tree: the model's sends the whole vector a level, NCCL's chunks of it
    at all levels at once."""
    con = loader.connect({})
    held = 0
    for form in models.FORMS:
        for n in (2, 3, 4, 6, 7, 8, 16, 17, 64, 100, 1024, 16384):
            p, q = con.execute(
                "SELECT _hockney_messages($op, $algo, $n), _hockney_volume($op, $algo, $n)",
                {"op": form.op, "algo": form.algo, "n": n},
            ).fetchall()[0]
            if p is not None:
                volume = 2 if form.algo == "tree" else form.volume(n)
                assert (p, q) == pytest.approx((form.messages(n), volume)), (form, n)
                held += 1
    assert held >= 4 * 12


def test_forms_beyond_the_models():
    con = loader.connect({})
    said = con.sql("""
        SELECT _hockney_messages(op, algo, 8), _hockney_volume(op, algo, 8) FROM (VALUES
            ('all_to_all', 'pairwise'), ('broadcast', 'ring'), ('send_recv', 'direct'),
            ('all_reduce', 'nvls'), ('barrier', 'ring')) AS t(op, algo)
    """).fetchall()  # fmt: skip
    assert said == [(7, 0.875), (7, 1), (1, 1), (None, None), (None, None)]
    assert con.sql("SELECT _hockney_messages('all_reduce', 'ring', 1)").fetchall() == [(None,)]


def test_a_benchmarks_curve(open_job):
    rows = [
        {"op": "all_reduce", "bytes": s, "n_ranks": 8, "in_place": False, "time_ns": ring_ns(8, s)}
        for s in (1024, 8192, 1 << 20)
    ]
    con = open_job(cost_curves=[*rows, *({**r, "n_ranks": None} for r in rows)])
    said = con.sql("""
        SELECT n_ranks, round(alpha_ns, 1), round(bandwidth_bytes_per_s / 1e9, 5), n, how, caveat
        FROM cost_curve_fit ORDER BY n_ranks
    """).fetchall()
    assert said == [
        (8, 500, 8, 3, "assumed", None),
        (None, None, None, 3, "assumed", "number of ranks unknown"),
    ]


@pytest.fixture(scope="module")
def benchmarks(retime_traces, tmp_path_factory) -> Warehouse:
    """Every nccl-tests table of the real traces, as one job."""
    wh = Warehouse(str(tmp_path_factory.mktemp("curves")))
    wh.ingest(
        [retime_traces / "nccl_tests", retime_traces / "nccl_logs/nccl-collectives-bench"],
        job="curves",
    )
    return wh


def test_real_curves_against_numpy(benchmarks):
    """numpy.polyfit on the same points is the independent computation."""
    job = benchmarks.job("curves")
    fits = job.sql("FROM cost_curve_fit").filter(pl.col("alpha_ns") > 0)
    assert len(fits) > 20
    keys = ["op", "n_ranks", "n_hosts", "dtype", "redop", "in_place", "proto", "channels",
            "library", "device_name", "tool"]  # fmt: skip
    curves = job.sql("FROM cost_curves WHERE bytes > 0 AND time_ns > 0")
    for row in fits.to_dicts():
        same = [pl.col(k).eq_missing(row[k]) for k in keys]
        recorded = row["algorithm"] if row["how"] == "recorded" else None
        points = (
            curves.filter(*same, pl.col("algo").eq_missing(recorded))
            .group_by("bytes")
            .agg(pl.col("time_ns").median())
            .sort("bytes")
        )
        x, t = points["bytes"].to_numpy().astype(float), points["time_ns"].to_numpy()
        (slope, intercept), covariance = np.polyfit(x, t, 1, w=1 / t, cov=True)
        n = row["n_ranks"]
        ring = 2 * (n - 1) if row["op"] == "all_reduce" else n - 1
        volume = {"all_reduce": 2 * (n - 1) / n, "broadcast": 1, "reduce": 1}
        q = volume.get(row["op"], (n - 1) / n)
        assert row["alpha_ns"] == pytest.approx(intercept / ring, rel=1e-5)
        assert row["alpha_error_ns"] == pytest.approx(math.sqrt(covariance[1, 1]) / ring, rel=1e-4)
        assert row["bandwidth_bytes_per_s"] == pytest.approx(1e9 * q / slope, rel=1e-5)
        assert row["bandwidth_error_bytes_per_s"] == pytest.approx(
            1e9 * q * math.sqrt(covariance[0, 0]) / slope**2, rel=1e-4
        )


def test_real_bandwidths_of_large_messages_are_those_of_the_benchmark(benchmarks):
    """B of a ring is the bus bandwidth that the largest messages come near."""
    rows = benchmarks.sql("""
        SELECT bandwidth_bytes_per_s / busbw FROM cost_curve_fit
        JOIN (SELECT op, n_ranks, in_place, library, max(busbw_bytes_per_s) AS busbw
              FROM cost_curves WHERE algo IS NULL GROUP BY ALL)
            USING (op, n_ranks, in_place)
        WHERE max_bytes > 1e9 AND how = 'assumed' AND n_ranks = 8
    """)
    assert len(rows) == 12
    assert all(0.8 < r < 1.05 for r in rows.to_series())


def test_the_benchmarks_own_columns_are_our_macros(benchmarks):
    """algbw and busbw as nccl-tests printed them (two places of GB/s, times of 1 to 5 digits)."""
    rows = benchmarks.sql("""
        SELECT op, bytes / time_ns AS algbw, algbw_bytes_per_s / 1e9 AS algbw_said,
               bytes / time_ns * busbw_factor(op, n_ranks) AS busbw,
               busbw_bytes_per_s / 1e9 AS busbw_said
        FROM cost_curves
        WHERE tool = 'nccl-tests' AND n_ranks IS NOT NULL AND time_ns > 0
          AND algbw_bytes_per_s IS NOT NULL
    """)
    assert len(rows) > 600
    assert set(rows["op"]) == {
        "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce"
    }  # fmt: skip
    for row in rows.to_dicts():
        assert row["algbw"] == pytest.approx(row["algbw_said"], rel=0.006, abs=0.0051), row
        assert row["busbw"] == pytest.approx(row["busbw_said"], rel=0.006, abs=0.0051), row


def test_a_real_job(retime_traces, tmp_path):
    """Eight H100 of one host: a slope of the order of NVLink, messages of microseconds."""
    wh = Warehouse(str(tmp_path))
    folder = "kineto/modded-nanogpt/2025-12-11_NorMuonOptimsAndFixes/profiler-example-traces"
    wh.ingest([retime_traces / folder], job="h100")
    rows = wh.job("h100").hockney_fit().to_dicts()
    assert [(r["op"], r["algorithm"], r["how"], r["n_sizes"], r["caveat"]) for r in rows] == [
        ("all_gather", "ring", "assumed", 5, None),
        ("reduce_scatter", "ring", "assumed", 5, None),
    ]
    for r in rows:
        assert 100e9 < r["bandwidth_bytes_per_s"] < 450e9
        assert 1e3 < r["alpha_ns"] < 5e3
