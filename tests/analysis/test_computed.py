"""Computed tables in a connection: nothing before a query asks, once for all that ask, kept."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import retime
from retime.analysis import computed, connecting
from retime.ingest import kept
from retime.ingest.errors import StoreBusy, UnusableInput
from retime.ingest.schema import TABLES
from retime.replay.findings import computed as replayed

# Of two ranks that compute 400 and 700 ns the median is 550: rank 1's step of 1000 would end at
# 850. Rank 0's stays: its copy is on another stream than the all-reduce and nothing ties the two.
SCORES = [(0, 0, "never last"), (1, 75, "replay")]


@pytest.fixture
def made(tmp_path: Path, rows):
    """`made(name)`: snapshot and folder of a job of two ranks, as a warehouse gives them."""

    def make(name: str = "small", **other):
        folder = tmp_path / f"job={name}"
        (folder / "_manifests").mkdir(parents=True)
        (folder / "_manifests" / "derived-0123456789abcdef.json").touch()
        files = {}
        for table, of_table in {**rows, **other}.items():
            keys = {k for r in of_table for k in r}
            batch = TABLES[table].batch({k: [r.get(k) for r in of_table] for k in keys})
            path = folder / f"{table}.parquet"
            pq.write_table(pa.Table.from_batches([batch]), path)
            files[table] = [str(path)]
        generation = SimpleNamespace(id="0123456789abcdef")
        return SimpleNamespace(job=name, files=files, generation=generation, kernels=()), folder

    return make


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The jobs that were replayed so far, in order."""
    asked: list[str] = []
    tables = replayed.tables

    def counted(snapshot):
        asked.append(snapshot.job)
        return tables(snapshot)

    monkeypatch.setattr(replayed, "tables", counted)
    return asked


def opened(*jobs) -> duckdb.DuckDBPyConnection:
    """A connection as the doors make it: confined to its files."""
    snapshots = [snapshot for snapshot, _ in jobs]
    con = connecting.open_snapshots(snapshots, 1 << 30, 1)
    computed.attach(con, jobs)
    connecting.confine(con, snapshots)
    return con


def scores(con) -> list[tuple]:
    return con.execute("SELECT rank, score_ns, how FROM replay_scores ORDER BY rank").fetchall()


def test_a_plain_connection_has_them_typed_and_empty(small) -> None:
    for name in computed.TABLES_COMPUTED:
        rows = small.execute(f"FROM {name}")
        assert [d[0] for d in rows.description] == ["job", *TABLES[name].schema.names]
        assert rows.fetchall() == []


def test_nothing_is_computed_before_it_is_asked_for(made, replays) -> None:
    con = opened(made())
    con.execute("CREATE TEMP VIEW mine AS SELECT rank, score_ns FROM replay_scores")
    con.execute("FROM replay_scores LIMIT 0").fetchall()
    con.execute("EXPLAIN FROM mine").fetchall()
    con.execute("SELECT count(*) FROM problems").fetchall()
    assert replays == []


def test_one_replay_serves_every_table_and_every_scan(made, replays) -> None:
    con = opened(made())
    assert scores(con) == SCORES
    twice = "SELECT count(*) FROM critical_path JOIN critical_path USING (job, step, position)"
    assert (
        con.execute(twice).fetchone()
        == con.execute("SELECT count(*) FROM critical_path").fetchone()
    )
    path = con.execute(
        "SELECT position, rank, class, name, event_id, collective_id, dur_ns FROM critical_path "
        "ORDER BY position"
    ).fetchall()
    assert path == [
        (0, 0, "work", "gemm", 1, None, 400),
        (1, 0, "unexplained", "Memcpy DtoD", 3, None, 500),
        (2, 0, "work", "Memcpy DtoD", 3, None, 50),
        (3, 0, "unexplained", "step ends", None, None, 50),
    ]
    slack = "SELECT kind, name, slack_ns FROM slack WHERE rank = 0 ORDER BY ALL"
    assert con.execute(slack).fetchall() == [("compute", "gemm", 0), ("copy", "Memcpy DtoD", 0)]
    assert replays == ["small"]


def test_a_second_connection_only_reads(made, replays) -> None:
    job = made()
    first = opened(job)
    expected = scores(first), first.execute("FROM slack ORDER BY ALL").fetchall()
    again = opened(job)
    assert (scores(again), again.execute("FROM slack ORDER BY ALL").fetchall()) == expected
    assert replays == ["small"]


def test_what_is_damaged_is_computed_again(made, replays) -> None:
    job = made()
    scores(opened(job))
    for path in (job[1] / "_kept").glob("*.parquet"):
        path.write_bytes(b"PAR1")
    assert scores(opened(job)) == SCORES
    assert scores(opened(job)) == SCORES
    assert replays == ["small", "small"]


def test_where_nothing_can_be_kept_the_connection_does(made, replays, monkeypatch) -> None:
    monkeypatch.setattr(kept, "keep", lambda *_: False)
    job = made()
    con = opened(job)
    assert scores(con) == SCORES
    assert scores(con) == SCORES
    assert not (job[1] / "_kept").exists()
    assert replays == ["small"]


def test_several_jobs_have_what_is_kept_and_start_no_replay(made, replays) -> None:
    one, other = made("a"), made("b")
    both = opened(one, other)
    assert both.execute("SELECT count(*) FROM slack").fetchone() == (0,)
    assert replays == []
    scores(opened(other))
    assert both.execute("SELECT DISTINCT job FROM critical_path").fetchall() == [("b",)]
    assert replays == ["b"]


def test_threads_with_a_cursor_each_share_one_replay(made, replays) -> None:
    con = opened(made())
    found: list[list[tuple]] = []
    cursors = [con.cursor() for _ in range(6)]
    threads = [threading.Thread(target=lambda c=c: found.append(scores(c))) for c in cursors]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert found == [SCORES] * 6
    assert replays == ["small"]


def test_a_job_without_steps_has_no_rows_and_no_problem(made) -> None:
    con = opened(made(steps=[]))
    assert scores(con) == []
    assert con.execute("SELECT code FROM problems WHERE code = 'not_replayed'").fetchall() == []


def test_without_a_common_clock_nobody_knows_who_was_last(made, rows) -> None:
    untied = [{**r, "clock_error_ns": None} for r in rows["ranks"]]
    one_host = opened(made("one", ranks=untied))
    assert scores(one_host) == SCORES  # a host has one clock whatever ties it to others
    apart = opened(made("two", ranks=[{**r, "host": f"h{r['rank']}"} for r in untied]))
    for name in computed.TABLES_COMPUTED:
        assert apart.execute(f"FROM {name}").fetchall() == []
    (message,) = apart.execute(
        "SELECT message FROM problems WHERE code = 'not_replayed'"
    ).fetchall()
    assert "clocks that nothing ties together" in message[0]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (UnusableInput("task graph has a cycle"), "cannot be replayed: task graph has a cycle"),
        (KeyError("op"), "cannot be replayed: KeyError: 'op'"),
    ],
)
def test_a_job_that_cannot_be_replayed_says_so_once_asked(made, monkeypatch, error, said) -> None:
    def fails(_):
        raise error

    monkeypatch.setattr(replayed, "tables", fails)
    job = made()
    con = opened(job)
    problems = "SELECT job, severity, code, count FROM problems WHERE code = 'not_replayed'"
    assert con.execute(problems).fetchall() == []
    assert scores(con) == []
    assert con.execute("FROM critical_path").fetchall() == []
    assert con.execute(problems).fetchall() == [("small", "warning", "not_replayed", 1)]
    message = con.execute("SELECT message FROM problems WHERE code = 'not_replayed'").fetchone()
    assert message is not None
    assert message[0].endswith(said)
    # The problem is the job's: whoever opens it or its neighbours sees it.
    assert len(opened(job).execute(problems).fetchall()) == 1
    assert len(opened(job, made("b")).execute(problems).fetchall()) == 1


@pytest.mark.parametrize(
    "error", [MemoryError("no room"), OSError("no space"), StoreBusy("slow down")]
)
def test_what_may_go_another_time_is_tried_then(made, monkeypatch, error) -> None:
    def fails(_):
        raise error

    job = made()
    with monkeypatch.context() as patched:
        patched.setattr(replayed, "tables", fails)
        con = opened(job)
        assert scores(con) == []
        (message,) = con.execute(
            "SELECT message FROM problems WHERE code = 'not_replayed'"
        ).fetchall()
        assert str(error) in message[0]
    assert scores(opened(job)) == SCORES


def test_what_was_said_of_the_input_is_still_there(made) -> None:
    con = opened(made())
    assert con.execute("SELECT code FROM problems ORDER BY code").fetchall() == [
        ("note",), ("odd",), ("truncated",),
    ]  # fmt: skip


def test_the_bundled_job(tmp_path: Path, demo_job: Path) -> None:
    wh = retime.open(tmp_path / "warehouse")
    wh.ingest(demo_job, job="demo")
    job = wh.job("demo")
    found = job.replay_scores()
    assert found["rank"].sort().to_list() == list(range(8))
    assert found["rank"][0] == 1  # whose host is slowest: align-arrivals gains most with it, too
    replay = job.replay(["align-arrivals:ranks=1"])
    gain_ns = replay["replayed_ns"] * replay["policies"][0]["gain_pct"] / 100
    assert found["score_ns"][0] == pytest.approx(gain_ns, rel=0.05)
    assert set(found["step_ns"]) == {replay["replayed_ns"]}
    path = job.critical_path()
    shares = {c: path.filter(path["class"] == c)["dur_ns"].sum() for c in ("work", "host")}
    total = path["dur_ns"].sum()
    assert shares["host"] / total == pytest.approx(replay["critical_path"]["host_share"])
    assert shares["work"] / total == pytest.approx(replay["critical_path"]["work_share"])
    for _, of_step in path.group_by("step"):
        assert of_step["start_ns"].to_list()[1:] == of_step["end_ns"].to_list()[:-1]
        assert of_step["position"].to_list() == list(range(of_step.height))
    slack = job.slack()
    assert slack["slack_ns"].min() == 0
    assert (slack["critical"] <= slack["tasks"]).all()
    assert (slack["slack_ns"] <= slack["median_slack_ns"]).all()
