"""The notebook API: the same verbs as the command line, giving Polars frames and dicts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb
import polars as pl
import pytest
import retime
from retime.analysis.query import BadQuery
from retime.ingest.errors import UsageError, WarehouseError


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory, demo_job: Path) -> retime.Warehouse:
    warehouse = retime.open(tmp_path_factory.mktemp("doors") / "warehouse")
    report = warehouse.ingest([demo_job / "rank0.json.gz", demo_job / "rank1.json.gz"], job="two")
    assert (report.job, report.exit_code) == ("two", 0)
    return warehouse


@pytest.fixture(scope="module")
def job(wh: retime.Warehouse) -> retime.Job:
    return wh.job("two")


def test_importing_is_light() -> None:
    code = (
        "import sys, retime; retime.open, retime.Warehouse; "
        "heavy = {'duckdb', 'polars', 'pyarrow', 'numba', 'altair'} & set(sys.modules); "
        "sys.exit(','.join(sorted(heavy)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_public_names_are_there() -> None:
    assert set(retime.__all__) <= set(dir(retime))
    for name in retime.__all__:
        assert callable(getattr(retime, name))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = retime.nothing


def test_open_takes_the_environment_then_a_folder_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETIME_WAREHOUSE", "/data/w")
    assert retime.open().url == "/data/w"
    assert retime.open("mine").url == "mine"
    monkeypatch.delenv("RETIME_WAREHOUSE")
    assert repr(retime.open()) == "retime.open('warehouse')"


def test_jobs(wh: retime.Warehouse) -> None:
    assert wh.job_ids() == ["two"]
    frame = wh.jobs()
    assert isinstance(frame, pl.DataFrame)
    assert frame.select("job", "ranks_seen", "steps").rows() == [("two", 2, 4)]
    assert repr(wh.job()) == f"retime.open({wh.url!r}).job('two')"
    with pytest.raises(WarehouseError, match="it holds two"):
        wh.job("three")


@pytest.mark.parametrize(
    ("view", "columns"),
    [
        ("waits", {"rank", "wait_ns", "transfer_ns", "wait_min_proxy_ns", "is_last"}),
        ("collective_instances", {"collective_id", "ready_ns", "busbw_gbps", "last_rank"}),
        ("sync_tax", {"dim", "op", "tau_share", "median_rank_tau_share"}),
        ("overlap", {"comm_ns", "compute_ns", "overlap_ns", "exposed_ns", "overlap_ratio"}),
        ("step_breakdown", {"rank", "step", "class", "ns"}),
        ("bandwidth", {"comm", "op"}),
        ("kernel_stats", {"rank", "name", "count", "total_ns", "p99_ns"}),
        ("kernel_classes", {"rank", "class", "kernels", "total_ns", "share"}),
        ("idle_gaps", {"rank", "start_ns", "dur_ns", "class"}),
        ("late_ranks", {"rank", "times_last", "wait_caused_ns"}),
        ("problems", {"severity", "code", "message"}),
        ("ranks", {"rank", "host", "clock_offset_ns"}),
        ("steps", {"rank", "step", "start_ns", "end_ns"}),
        ("comms", {"comm", "dim"}),
        ("collectives", {"rank", "op", "start_ns", "end_ns"}),
    ],
)
def test_views_are_polars_frames_of_one_job(job: retime.Job, view: str, columns: set[str]) -> None:
    frame = getattr(job, view)()
    assert isinstance(frame, pl.DataFrame)
    assert columns | {"job"} <= set(frame.columns)
    assert frame.height > 0
    assert frame["job"].unique().to_list() == ["two"]
    assert not [c for c, t in frame.schema.items() if c.endswith("_ns") and t != pl.Int64]


def test_waits_add_up(job: retime.Job) -> None:
    waits = job.waits()
    took = waits["end_ns"] - waits["start_ns"]
    assert (waits["wait_ns"] + waits["transfer_ns"] == took).all()


def test_the_breakdown_adds_up_to_the_steps(job: retime.Job) -> None:
    sums = job.step_breakdown().drop_nulls("step").group_by("rank", "step").agg(pl.col("ns").sum())
    windows = job.steps().select(
        "rank", "step", (pl.col("end_ns") - pl.col("start_ns")).alias("window")
    )
    both = sums.join(windows, on=["rank", "step"], how="full", coalesce=True)
    assert both.height == 8
    assert (both["ns"] == both["window"]).all()


def test_show_is_one_dict(job: retime.Job) -> None:
    found = job.show()
    assert (found["job"], found["ranks_seen"], found["steps"]) == ("two", 2, 4)
    assert found["waited_for"]["rank"] == job.waited_for()["rank"][0]
    assert found == job.show()


def test_connections_read_the_warehouse_and_nothing_else(
    wh: retime.Warehouse, tmp_path: Path
) -> None:
    con = wh.connect("two")
    assert con.sql("SELECT count(DISTINCT rank) FROM events").fetchall() == [(2,)]
    (tmp_path / "x.csv").write_text("a\n1\n")
    with pytest.raises(duckdb.Error, match="disabled by configuration"):
        con.sql(f"FROM '{tmp_path}/x.csv'").fetchall()
    with pytest.raises(duckdb.Error, match="disabled by configuration"):
        con.execute(f"COPY (SELECT 1) TO '{tmp_path}/y.csv'")
    with pytest.raises(duckdb.Error, match="locked"):
        con.execute("SET enable_external_access = true")


def test_a_connection_does_not_write_into_the_warehouse(wh: retime.Warehouse) -> None:
    store = wh.store.snapshot("two")
    part = Path(next(iter(store.files["events"])))
    before = part.read_bytes()
    con = wh.connect()
    for target in (part, part.with_name("more.parquet")):
        with pytest.raises(duckdb.PermissionException):
            con.execute(f"COPY (SELECT 1 AS a) TO '{target}' (FORMAT parquet)")
    assert part.read_bytes() == before
    assert not part.with_name("more.parquet").exists()


def test_a_warehouse_may_be_named_like_a_pattern(tmp_path: Path, demo_job: Path) -> None:
    (tmp_path / "wx1").mkdir()
    wh = retime.open(tmp_path / "w[x]*?")
    wh.ingest([demo_job / "rank0.json.gz"], job="one")
    assert wh.sql("SELECT count(*) AS n FROM collectives")["n"].to_list() == [76]
    assert retime.replay(wh.job("one"))["measured_ns"] > 0


def test_connect_is_short_for_open(wh: retime.Warehouse) -> None:
    assert retime.connect(wh.url).sql("SELECT count(*) FROM ranks").fetchall() == [(2,)]


def test_sql_keeps_integers_whole(wh: retime.Warehouse) -> None:
    frame = wh.sql("SELECT sum(x) AS s, sum(x) * 4 AS big FROM (VALUES (2::BIGINT ** 62)) t(x)")
    assert frame.columns == ["s", "big"]
    frame = wh.sql("SELECT sum(x) AS s FROM (VALUES (4611686018427387904), (1)) t(x)")
    assert frame.rows() == [(4611686018427387905,)]
    assert frame.schema == {"s": pl.Int64}


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT sum(x) AS s FROM (VALUES (9223372036854775807), (1)) t(x)", "9223372036854775808"),
        ("SELECT INTERVAL 1 DAY AS s", "1 day"),
        ("SELECT 'a'::ENUM('a', 'b') AS s", "a"),
    ],
)
def test_sql_gives_as_text_what_polars_lacks(wh: retime.Warehouse, query: str, rows: str) -> None:
    assert wh.sql(query).rows() == [(rows,)]


def test_sql_with_equal_names(wh: retime.Warehouse) -> None:
    assert wh.sql("SELECT 1 AS a, 2 AS a").to_dicts() == [{"a": 1, "a_1": 2}]


def test_bad_sql_is_a_bad_query(wh: retime.Warehouse) -> None:
    with pytest.raises(BadQuery, match="cannot run") as e:
        wh.sql("SELECT nothing FROM waits")
    assert e.value.exit_code == 2
    assert "\n" not in str(e.value)


def test_replay_is_a_call_and_a_package(job: retime.Job) -> None:
    result = retime.replay(job, policies=["align-arrivals"])
    assert result["job"] == "two"
    assert [p["name"] for p in result["policies"]] == ["align-arrivals"]
    assert result == job.replay(["align-arrivals"])
    from retime.replay import engine

    assert engine.__name__ == "retime.replay.engine"
    assert callable(retime.replay)
    with pytest.raises(UsageError, match="no policy"):
        retime.replay(job, policies=["nope"])


def test_stragglers(job: retime.Job) -> None:
    result = job.stragglers()
    assert {"slowdown", "m_w", "m_s", "by_op", "by_rank", "by_stage"} <= set(result)
    assert [r["rank"] for r in result["by_rank"]] == [0, 1]


def test_catalogues() -> None:
    assert {"waits", "events"} <= {r["name"] for r in retime.tables()}
    assert [r["name"] for r in retime.policies("align-arrivals")] == ["align-arrivals"]
    with pytest.raises(UsageError, match="did you mean waits"):
        retime.tables("wait")


def test_report(job: retime.Job, tmp_path: Path) -> None:
    written = job.report(tmp_path / "page.html")
    assert written == tmp_path / "page.html"
    assert "The others wait for rank" in written.read_text()


def test_demo_leaves_a_warehouse_and_a_page(tmp_path: Path) -> None:
    result = retime.demo(tmp_path / "d")
    assert result["exit_code"] == 0
    assert result["facts"]["ranks_seen"] == 8
    assert result["facts"]["exact"] + result["facts"]["order"] == 76
    last = result["facts"]["waited_for"]["rank"]
    page = Path(result["report"]).read_text()
    assert f"The others wait for rank {last}" in page
    assert retime.open(tmp_path / "d" / "warehouse").job_ids() == ["demo"]
    done = {r["policy"]: r for r in result["whatif"]["rows"]}
    assert done["align-arrivals"]["gain_pct"] > 0
    assert done[f"align-arrivals:ranks={last}"]["error"] is None
