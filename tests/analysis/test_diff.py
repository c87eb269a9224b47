"""Comparisons of two jobs: parts that add up, what is more than chance, and jobs of other sizes."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import retime
from retime.analysis import diff, diff_steps
from retime.ingest.errors import UsageError


def parts(columns: dict[tuple[str, str], list[float]], pieces: dict | None = None) -> diff.Parts:
    """Parts from a list of ns, a step each; pieces 1 unless given."""
    keys = list(columns)
    ns = np.array([columns[k] for k in keys], float).T
    n = np.array([[(pieces or {}).get(k, 1.0) for k in keys]] * len(ns))
    return diff.Parts(list(range(len(ns))), keys, ns, n, True)


GEMM, NORM, IDLE = ("compute", "gemm"), ("compute", "norm"), ("idle", "idle_unknown")


def test_the_parts_changes_add_up_to_the_steps():
    a = parts({GEMM: [100, 100, 100, 100], IDLE: [10, 12, 8, 10]})
    b = parts({GEMM: [130, 130, 130, 130], IDLE: [10, 11, 9, 10]})
    found = diff.compare(a, b)
    assert found["change_ns"] == 30
    assert found["change_share"] == pytest.approx(30 / 110)
    assert [(r["what"], r["change_ns"], r["share"]) for r in found["parts"]] == [
        ("gemm", 30, 1.0), ("idle_unknown", 0, 0.0)]  # fmt: skip
    assert [(r["group"], r["change_ns"]) for r in found["groups"]] == [("compute", 30), ("idle", 0)]
    assert [r["significant"] for r in found["parts"]] == [True, False]
    assert found["significant"] is True
    assert (found["parts"][0]["low_ns"], found["parts"][0]["high_ns"]) == (30, 30)


def test_a_part_of_one_job_only_is_a_change_of_all_of_it():
    found = diff.compare(parts({GEMM: [50] * 4}), parts({GEMM: [50] * 4, NORM: [20] * 4}))
    row = found["parts"][0]
    assert (row["what"], row["a_ns"], row["b_ns"], row["only_in"]) == ("norm", 0, 20, "b")
    assert found["change_ns"] == 20


def test_more_often_and_slower_are_told_apart():
    # 4 pieces of 10 become 5 of 12: one more at 10, and 2 more on each of five.
    a = parts({GEMM: [40] * 3}, {GEMM: 4.0})
    b = parts({GEMM: [60] * 3}, {GEMM: 5.0})
    row = diff.compare(a, b)["parts"][0]
    assert (row["more_ns"], row["slower_ns"]) == (10, 10)


def test_exposed_pieces_are_no_calls():
    waited = ("wait", "all_reduce")
    a = parts({GEMM: [1e6] * 4, waited: [4e5] * 4}, {waited: 2.0})
    b = parts({GEMM: [1e6] * 4, waited: [3e5] * 4}, {waited: 1.5})
    found = diff.compare(a, b)
    assert (found["parts"][0]["more_ns"], found["parts"][0]["slower_ns"]) == (None, None)
    line = next(s for s in said(found).splitlines() if s.startswith("all_reduce"))
    assert line.split()[1] == "wait"
    assert line.endswith("yes   less exposed")


def test_a_change_that_may_be_none_has_no_shares():
    a = parts({GEMM: [1e6, 2e6, 3e6, 4e6], NORM: [1e5] * 4})
    b = parts({GEMM: [1.1e6, 2e6, 3e6, 4e6], NORM: [9e5] * 4})
    text = said(diff.compare(a, b))
    assert "What changed most" in text
    assert text.count(" %") == 2  # the whole's, and its interval's level


def test_noise_is_not_significant_and_its_interval_holds_the_truth():
    rng = np.random.default_rng(7)
    false = held = 0
    for _ in range(40):
        a = parts({GEMM: list(rng.normal(100, 10, 12)), IDLE: list(rng.normal(50, 5, 12))})
        b = parts({GEMM: list(rng.normal(100, 10, 12)), IDLE: list(rng.normal(50, 5, 12))})
        found = diff.compare(a, b)
        false += sum(bool(r["significant"]) for r in found["parts"])
        held += found["low_ns"] <= 0 <= found["high_ns"]
    assert false <= 8  # of 80, where 4 are allowed
    assert held >= 33  # of 40


def test_few_steps_widen_by_students_t():
    # Tables: 4.303 at 2 degrees of freedom (the expansion gives 4.17), 2.228 at 10, 1.984 at 100.
    got = diff._student(np.array([2.0, 10.0, 100.0]))
    assert got.tolist() == pytest.approx([4.303, 2.228, 1.984], rel=0.035)
    assert got[1:].tolist() == pytest.approx([2.228, 1.984], abs=1e-3)


def test_two_steps_say_nothing_of_chance():
    found = diff.compare(parts({GEMM: [1, 2]}), parts({GEMM: [5, 6]}))
    assert found["significant"] is None
    assert found["low_ns"] is None
    assert "nothing says whether a change is more than chance" in found["remarks"][0]


def test_a_mean_that_an_outlier_moves_is_pointed_out():
    found = diff.compare(parts({GEMM: [100, 100, 100, 900]}), parts({GEMM: [100] * 4}))
    assert any("job A's mean step is +200 % off its median" in r for r in found["remarks"])


def test_a_change_below_what_traces_resolve_is_not_significant():
    step = [10_000_000.0] * 4
    for more, sure in ((900, False), (1_000, True), (5, False)):
        found = diff.compare(parts({GEMM: step}), parts({GEMM: [s + more for s in step]}))
        assert found["significant"] is sure
        assert found["parts"][0]["significant"] is sure
        assert found["groups"][0]["significant"] is sure
    # 5 ns are much of a step of 100 ns, and a part is held against the step, not against itself.
    a = parts({GEMM: [100.0] * 4, NORM: [1.0] * 4})
    assert diff.compare(a, parts({GEMM: [105.0] * 4, NORM: [1.0] * 4}))["significant"] is True
    a = parts({GEMM: step, NORM: [100.0] * 4})
    row = diff.compare(a, parts({GEMM: step, NORM: [200.0] * 4}))["parts"][0]
    assert (row["what"], row["significant"]) == ("norm", False)


def test_steps_and_a_whole_trace_do_not_compare():
    a = parts({GEMM: [100] * 4})
    whole = parts({GEMM: [400]})._replace(has_steps=False)
    for one, other in ((a, whole), (whole, a)):
        with pytest.raises(UsageError, match="do not compare"):
            diff.compare(one, other)
    assert diff.compare(whole, whole)["change_ns"] == 0


def test_the_job_without_steps_is_named(monkeypatch):
    of = {"x": parts({GEMM: [100] * 4}), "y": parts({GEMM: [400]})._replace(has_steps=False)}
    monkeypatch.setattr(diff, "parts", lambda con, job, steps=None: of[job])
    x, y = (SimpleNamespace(id=name, con=None) for name in "xy")
    for one, other in ((x, y), (y, x)):
        with pytest.raises(UsageError, match="job 'y' has no steps and the other has"):
            diff.diff(cast(Any, one), cast(Any, other))


def said(found: dict, width: int = 200) -> str:
    from io import StringIO

    from retime.analysis import diff_screen
    from rich.console import Console

    out = StringIO()
    for name in ("a", "b"):
        found[name] |= {"job": name, "ranks": 1}
    diff_screen.show(Console(file=out, width=width), found, 20)
    return out.getvalue()


KERNELS = [
    f"nvjet_tst_{shape}_64x4_{cluster}_v_bz_coop{kind}_NNT"
    for shape in ("192x192", "256x128") for cluster in ("1x2", "2x1") for kind in "AB"
]  # fmt: skip


@pytest.mark.parametrize("width", [60, 80, 160])
def test_kernels_stay_apart_and_numbers_whole_at_any_width(width):
    a = parts({("compute", k): [5e6 + 1e5 * i] * 4 for i, k in enumerate(KERNELS)})
    b = parts({("compute", k): [6e6 + 2e5 * i] * 4 for i, k in enumerate(KERNELS)})
    text = said(diff.compare(a, b), width)
    assert all(len(line) <= width for line in text.splitlines())
    rows = [s for s in text.splitlines() if s.startswith("nvjet")]
    assert len({r.split()[0] for r in rows}) == len(KERNELS)
    assert all(re.search(r"  \+\d\.\d\d ms  ", r) for r in rows)
    if width == 80:
        assert "(1 more column does not fit: why; --json has it)" in text
        assert "6.00 ms  +1.00 ms   9.3 %  yes" in text


def test_columns_that_say_nothing_are_left_out():
    few = said(diff.compare(parts({GEMM: [1e6, 1e6]}), parts({GEMM: [2e6, 2e6]})))
    assert "sure" not in few
    rng = np.random.default_rng(3)
    a, b = (parts({GEMM: list(1e6 + 1e5 * rng.standard_normal(9))}) for _ in range(2))
    chance = said(diff.compare(a, b))
    assert "of it" not in chance
    assert "sure" in chance


def test_no_change_is_said_so():
    a = parts({GEMM: [1e6] * 4, NORM: [1e5] * 4})
    same = said(diff.compare(a, a))
    assert "No change: B's step is as long as A's; 95 %" in same
    assert "What changed most" not in same
    assert "!" not in same
    rounded = parts({GEMM: [1e6 - 1e-6] * 4, NORM: [1e5] * 4})
    text = said(diff.compare(a, rounded))
    assert "No change" in text
    assert "-0" not in text
    little = parts({GEMM: [1e6 - 100] * 4, NORM: [1e5] * 4})
    assert "B's step is 100 ns shorter than A's (under 0.1 %)" in said(diff.compare(a, little))
    assert "10.0 us longer than A's (+0.9 %)" in said(
        diff.compare(a, parts({GEMM: [1.01e6] * 4, NORM: [1e5] * 4}))
    )


@pytest.mark.parametrize(
    ("asked", "taken"),
    [
        (None, None),
        ("10-12", None),
        ("12,10", None),
        ("0-99", "10-12, 14 are taken"),
        ("10,13-20", "10-12, 14 are taken"),
    ],
)
def test_steps_that_were_not_there_are_told(asked, taken):
    remark = diff_steps.taken("A", [10, 11, 12, 14], asked)
    assert remark is None if taken is None else taken in (remark or "")


def test_benjamini_and_hochberg():
    # Their procedure at 5 % over five: 0.01 <= 1/5 of it, 0.02 <= 2/5, 0.03 <= 3/5; 0.2 is not.
    p = np.array([0.2, 0.01, 0.03, 0.02, 0.9])
    assert diff._rejected(p).tolist() == [False, True, True, True, False]
    assert not diff._rejected(np.array([0.06, 0.5])).any()


def kernel(rank, event_id, start, end, name, category="gemm"):
    times = {"start_ns": start, "dur_ns": end - start}
    what = {"kind": "kernel", "name": name, "category": category, "device": 0}
    return {"rank": rank, "event_id": event_id} | what | times


def job_tables(n_ranks: int, gemm_ns: int) -> dict:
    """Two steps of 100 ns on each rank: a gemm, then idle; a norm beside the gemm's first 10 ns."""
    events, steps, ranks = [], [], []
    for r in range(n_ranks):
        ranks.append({"rank": r, "host": "h", "start_ns": 0, "end_ns": 200,
                      "clock_offset_ns": 0, "clock_error_ns": 0})  # fmt: skip
        for s in range(2):
            t = 100 * s
            steps.append({"rank": r, "step": s, "start_ns": t, "end_ns": t + 100})
            events.append(kernel(r, 10 * s + r * 100 + 1, t, t + gemm_ns, "gemm"))
            events.append(kernel(r, 10 * s + r * 100 + 2, t, t + 10, "norm"))
    return {"events": events, "steps": steps, "ranks": ranks}


@pytest.fixture
def con_of(tmp_path: Path):
    import pyarrow as pa
    import pyarrow.parquet as pq
    from retime.ingest.schema import TABLES
    from retime.queries import loader

    def make(tables: dict):
        files = {}
        for name, rows in tables.items():
            columns = {c for r in rows for c in r}
            batch = TABLES[name].batch({c: [r.get(c) for r in rows] for c in columns})
            path = tmp_path / f"{name}-{len(list(tmp_path.iterdir()))}.parquet"
            pq.write_table(pa.Table.from_batches([batch]), path)
            files[name] = [str(path)]
        return loader.connect({"j": files})

    return make


def test_jobs_of_different_size_are_compared_by_rank(con_of):
    a = diff.parts(con_of(job_tables(2, 40)), "a")
    b = diff.parts(con_of(job_tables(4, 60)), "b")
    assert a.keys == [("compute", "gemm"), ("idle", "idle_unknown")]
    assert a.ns.tolist() == [[40, 60], [40, 60]]
    found = diff.compare(a, b)
    assert found["change_ns"] == 0
    assert {r["what"]: r["change_ns"] for r in found["parts"]} == {"gemm": 20, "idle_unknown": -20}


def test_steps_may_be_chosen(con_of):
    con = con_of(job_tables(1, 40))
    assert diff.parts(con, "a", "1").steps == [1]
    assert diff.parts(con, "a", "0-1").steps == [0, 1]
    with pytest.raises(UsageError, match="no step 7; it has 0-1"):
        diff.parts(con, "a", "7")
    for steps, words in {
        "1-0": "ends before",
        "-1": "neither",
        "0-": "neither",
        "": "neither",
    }.items():
        with pytest.raises(UsageError, match=words):
            diff.parts(con, "a", steps)
    with pytest.raises(UsageError, match="neither a number nor"):
        diff.parts(con, "a", "x")


def test_every_ns_of_the_bundled_job_has_an_owner(demo_job: Path, tmp_path: Path):
    wh = retime.open(tmp_path / "wh")
    wh.ingest([demo_job], job="demo")
    con = wh.connect("demo")
    ((wrong, classes),) = con.sql(
        """
        WITH c AS (
            SELECT rank, step, class, sum(ns) AS ns FROM step_composition GROUP BY ALL
        ), b AS (
            SELECT rank, step, sum(ns) AS ns,
                CASE class WHEN 'compute_with_comm' THEN 'compute' ELSE class END AS class
            FROM step_breakdown WHERE NOT starts_with(class, 'idle') GROUP BY ALL
        )
        SELECT count(*) FILTER (c.ns IS DISTINCT FROM b.ns), count(*)
        FROM c FULL JOIN b
            ON b.rank = c.rank AND b.step IS NOT DISTINCT FROM c.step AND b.class = c.class
        """
    ).fetchall()
    assert (wrong, classes > 100) == (0, True)
    found = wh.diff("demo", "demo", steps_a="10-11", steps_b="12-13")
    assert sum(r["change_ns"] for r in found["parts"]) == pytest.approx(found["change_ns"])
    assert sum(r["change_ns"] for r in found["groups"]) == pytest.approx(found["change_ns"])
    beyond = wh.diff("demo", "demo", steps_a="0-99")
    assert "job A's steps 10-13 are taken" in beyond["remarks"][-1]
    same = wh.diff("demo", "demo")
    assert all(r["change_ns"] == 0 for r in same["parts"])
    assert not any(r["significant"] for r in same["parts"])
