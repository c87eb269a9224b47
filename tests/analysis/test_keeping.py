"""`retime tag`, `note`, `jobs --where`, `verify`, `prune`, `compact`, as commands and as calls."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import retime
from retime import cli
from retime.analysis import keeping
from retime.ingest.errors import UsageError, WarehouseError


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, demo_job: Path) -> Path:
    folder = tmp_path_factory.mktemp("keeping") / "warehouse"
    wh = retime.open(folder)
    wh.ingest([demo_job / "rank0.json.gz", demo_job / "rank1.json.gz"], job="a")
    return folder


@pytest.fixture
def wh(made: Path, tmp_path: Path) -> retime.Warehouse:
    """A warehouse with jobs `a` and `b` of the same two ranks."""
    for job in ("a", "b"):
        shutil.copytree(made / "job=a", tmp_path / "warehouse" / f"job={job}")
    return retime.open(tmp_path / "warehouse")


@pytest.fixture
def run(wh: retime.Warehouse, capfd: pytest.CaptureFixture[str]):
    def call(*args: str, code: int = 0) -> str:
        assert cli.run([*args, "--warehouse", wh.url]) == code
        return capfd.readouterr().out

    return call


HOSTILE = "<img src=x onerror=alert(1)>\x1b[31m\u202e'; DROP TABLE jobs; --"


def test_labels_are_said_and_shown_everywhere(wh, run) -> None:
    run("tag", "a", "cluster=a", "keep", "--author", "ann")
    said = json.loads(run("tag", "a", f"evil={HOSTILE}", "--json"))
    assert {r["tag"]: r["value"] for r in said} == {"cluster": "a", "keep": "", "evil": HOSTILE}
    run("note", "a", HOSTILE)
    for shown in (run("show", "a"), run("jobs"), run("note", "a"), run("tag", "a")):
        assert "onerror" in shown
        assert "\x1b" not in shown
        assert "\u202e" not in shown
    facts = wh.job("a").show()
    assert facts["tags"]["cluster"] == "a"
    assert facts["notes"][0]["text"] == HOSTILE
    page = wh.job("a").report(Path(wh.url).parent / "a.html").read_text()
    assert "cluster=a" in page
    assert "<img src=x" not in page
    run("tag", "a", "--remove", "evil")
    assert "evil" not in wh.job("a").show()["tags"]


def test_jobs_by_condition(wh, run) -> None:
    wh.job("a").tag({"cluster": "a"})
    where = "started > timestamp '2025-01-01' AND tags['cluster'] = 'a' AND ranks_seen >= 2"
    assert wh.jobs(where)["job"].to_list() == ["a"]
    (row,) = json.loads(run("jobs", "--where", where, "--json"))
    assert row["tags"] == {"cluster": "a"}
    assert wh.jobs("tags['cluster'] IS NULL")["job"].to_list() == ["b"]
    assert wh.jobs("created > now() - interval 7 day").height == 2
    assert run("jobs", "--where", "false").strip() == "no job fits"


@pytest.mark.parametrize(
    "where",
    [
        "nope = 1", "", "1=1; DROP TABLE jobs", "true) OR (true", "job", "count(*) > 1",
        "EXISTS (FROM read_csv('/etc/passwd'))", "EXISTS (FROM '/etc/passwd')",
        "EXISTS (FROM glob('/*'))", "getenv('HOME') IS NULL", "read_text('/etc/passwd') = ''",
    ],
)  # fmt: skip
def test_a_condition_that_is_none_is_one_sentence_with_the_columns(wh, where: str) -> None:
    with pytest.raises(UsageError, match="columns: job, ranks_seen") as e:
        wh.jobs(where)
    assert "\n" not in str(e.value)
    assert "root:" not in str(e.value)


def test_the_summary_says_what_the_tables_say(wh) -> None:
    from retime.analysis import frames

    columns = ["job", "ranks_seen", "world_size", "framework", "sources", "steps",
               "participations", "clocks", "problems", "lost", "created_utc"]  # fmt: skip
    by_tables = frames.jobs(wh.connect()).select(columns)
    assert wh.jobs().select(columns).rows() == by_tables.rows()


def test_prune_shows_first_and_keeps_what_is_pinned(wh, run) -> None:
    wh.job("a").tag({"keep": ""})
    assert "--yes does it" in run("prune", "--older-than", "0s")
    assert wh.job_ids() == ["a", "b"]
    kept, row = json.loads(run("prune", "--older-than", "0s", "--yes", "--json"))
    assert (kept["job"], kept["status"]) == ("a", "kept: tagged keep")
    assert (row["job"], row["status"]) == ("b", "pruned")
    assert row["removed_bytes"] > 100_000
    assert wh.job_ids() == ["a"]
    (named,) = json.loads(run("prune", "a", "--yes", "--json"))
    assert named["status"] == "kept: tagged keep"
    run("prune", "--older-than", "0s", "--yes", "--grace", "0s")
    assert not (Path(wh.url) / "job=b").exists()


def test_prune_says_how_many_jobs_their_tags_spared(wh, run) -> None:
    wh.job("a").tag({"keep": ""})
    spared = run("prune", "--where", "tags['keep'] IS NOT NULL")
    assert spared == "nothing to prune\n1 job that fits is kept: tagged keep\n"
    assert run("prune", "--where", "job = 'c'") == "nothing to prune\n"
    wh.job("b").tag({"team": "x"})
    both = run("prune", "--keep", "0", "--keep-tag", "team=x", "--yes")
    assert both == "nothing to prune\n2 jobs that fit are kept: tagged keep, tagged team=x\n"
    one = run("prune", "--keep", "0").splitlines()
    assert [line.split()[0] for line in one[1:2]] == ["b"]
    assert one[2] == "1 job that fits is kept: tagged keep"
    assert one[3].startswith("would remove 1 job, ")
    assert "kept: tagged keep" in run("prune", "a").splitlines()[1]
    # Events that went before are none that a tag spares.
    wh.job("a").tag({}, remove=["keep"])
    run("prune", "a", "--raw-events", "--yes", "--grace", "0s")
    wh.job("a").tag({"keep": ""})
    said = run("prune", "--where", "job = 'a'", "--raw-events")
    assert said == "nothing to prune\n"


def test_prune_takes_what_fits_all_that_is_said(wh) -> None:
    def taken(**said) -> list[str]:
        return wh.prune(**said).filter(status="would go")["job"].to_list()

    wh.job("b").tag({"team": "x"})
    assert taken(older_than="0s") == ["a", "b"]
    assert taken(older_than="90d") == []
    assert taken(where="tags['team'] = 'x'") == ["b"]
    assert taken(older_than=0, keep_tags=["team=x"]) == ["a"]
    assert taken(older_than=0, keep_tags=["team=y"]) == ["a", "b"]
    assert taken(keep=0) == ["a", "b"]
    assert taken(keep=1) == ["a"]
    assert taken(keep=9) == []
    assert taken(jobs=["a"], where="tags['team'] = 'x'") == []
    with pytest.raises(UsageError, match="say which jobs"):
        wh.prune()
    with pytest.raises(UsageError, match="90d, 12h"):
        wh.prune(older_than="soon")
    with pytest.raises(WarehouseError, match="no job 'x'"):
        wh.prune(["x"])


def test_pruned_events_leave_the_rest_and_say_so(wh, run) -> None:
    before = {t: wh.sql(f"FROM {t}", "a").sort("*") for t in ("steps", "collectives", "waits")}
    shown = wh.job("a").show()
    (stored,) = wh.jobs("job = 'a'")["stored_bytes"]
    run("prune", "a", "--raw-events", "--yes", "--grace", "0s")
    con = wh.connect("a")
    assert con.sql("SELECT count(*) FROM events").fetchall() == [(0,)]
    for table, rows in before.items():
        assert wh.sql(f"FROM {table}", "a").sort("*").equals(rows), table
    facts = wh.job("a").show()
    assert facts["classes"] == json.loads(json.dumps(shown["classes"]))
    assert facts["pruned"].keys() == {"events"}
    assert "pruned" in run("show", "a")
    assert "events_pruned" in {r["code"] for r in wh.job("a").problems().to_dicts()}
    (row,) = wh.jobs("pruned = 'events'").to_dicts()
    assert row["job"] == "a"
    assert row["stored_bytes"] < 0.6 * stored
    with pytest.raises(retime.ingest.errors.UnusableInput, match="no events any more"):
        retime.replay(wh.job("a"), policies=["align-arrivals"])
    assert wh.prune(["a"], raw_events=True).height == 0
    assert (
        wh.verify(deep=True).filter(retime.analysis.jobs.pl.col("severity") != "info").height == 0
    )


def test_compact_and_verify(wh, run) -> None:
    rows = json.loads(run("compact", "--grace", "0s", "--json"))
    assert [(r["job"], r["status"]) for r in rows] == [("a", "compacted"), ("b", "compacted")]
    assert all(r["files_after"] < r["files_before"] for r in rows)
    again = json.loads(run("compact", "--json"))
    assert {r["status"] for r in again} == {"nothing to do"}
    assert run("verify", "--deep").strip() == "sound"
    (path,) = (Path(wh.url) / "job=a" / "events").glob("*.parquet")
    path.write_bytes(path.read_bytes()[:-1])
    found = json.loads(run("verify", "--json", code=1))
    assert (found[0]["severity"], found[0]["code"]) == ("lost", "part_damaged")
    assert "--repair" in run("verify", "a", code=1)
    with pytest.raises(WarehouseError, match="no job 'x'"):
        wh.verify(["x"])


def test_lengths_of_time() -> None:
    assert [keeping.seconds(t, "--x") for t in ("90d", "12h", "30m", "2w", "0s")] == [
        90 * 86400, 12 * 3600, 1800, 14 * 86400, 0,
    ]  # fmt: skip
    for text in ("", "d", "-1d", "1y", "1.5d"):
        with pytest.raises(UsageError, match="--x"):
            keeping.seconds(text, "--x")


def test_a_job_that_cannot_be_read_does_not_hide_the_others(wh, run) -> None:
    for path in (Path(wh.url) / "job=b" / "_manifests").iterdir():
        path.write_text("{")
    rows = {r["job"]: r for r in json.loads(run("jobs", "--json"))}
    assert rows["a"]["ranks_seen"] == 2
    assert (rows["b"]["clocks"], rows["b"]["ranks_seen"]) == ("unreadable", None)
    assert "unreadable" in run("jobs")
    assert "manifest_damaged" in run("verify", "b", "--json", code=1)


def test_a_tag_that_comes_while_a_prune_goes_on_keeps_the_job(wh, monkeypatch) -> None:
    busy = keeping.pruning.busy

    def later(folder):
        retime.open(wh.url).job("a").tag({"baseline": ""})
        return busy(folder)

    monkeypatch.setattr(keeping.pruning, "busy", later)
    (row,) = wh.prune(["a"], keep_tags=["baseline"], dry_run=False).to_dicts()
    assert row["status"] == "kept: tagged baseline"
    assert wh.job_ids() == ["a", "b"]


@pytest.fixture
def no_lock(wh):
    """Job `a` cannot be locked: a folder lies where its lock should."""
    lock = Path(wh.url) / "job=a" / "_incoming" / "lock"
    lock.unlink(missing_ok=True)
    lock.mkdir(parents=True)


@pytest.mark.usefixtures("no_lock")
@pytest.mark.parametrize("words", [["compact"], ["prune", "--keep", "0", "--yes"],
                                   ["prune", "--keep", "0", "--raw-events", "--yes"]])  # fmt: skip
def test_a_job_that_cannot_be_written_does_not_stop_the_others(run, words) -> None:
    rows = {r["job"]: r["status"] for r in json.loads(run(*words, "--json", code=1))}
    assert rows["a"].startswith("failed: ")
    assert "_incoming/lock" in rows["a"]
    assert rows["b"] in ("compacted", "pruned")
    assert "failed: " in run(*words, code=1)


@pytest.mark.usefixtures("no_lock")
def test_a_job_that_cannot_be_repaired_does_not_stop_the_others(wh, run) -> None:
    for job in ("a", "b"):
        (Path(wh.url) / f"job={job}" / "events" / "x-000.parquet").write_bytes(b"")
    found = json.loads(run("verify", "--repair", "--json", code=1))
    assert [(r["job"], r["severity"], r["code"], r["done"]) for r in found] == [
        ("a", "lost", "unreadable", ""),
        ("a", "warning", "orphan", ""),
        ("b", "warning", "orphan", "removed"),
    ]  # fmt: skip


def test_prune_alone_frees_what_was_pruned_before(wh, run) -> None:
    assert run("prune", "--yes", "--grace", "0s") == "nothing to prune, nothing to free\n"
    run("prune", "b", "--yes")
    (waits,) = json.loads(run("prune", "--yes", "--json"))
    assert (waits["job"], waits["status"], waits["removed_bytes"]) == ("b", keeping.WAITS, 0)
    assert run("prune", "--yes").endswith("nothing to prune, nothing to free yet\n")
    there = sum(p.stat().st_size for p in (Path(wh.url) / "job=b").rglob("*") if p.is_file())
    said = run("prune", "--yes", "--grace", "0s")
    assert said.splitlines()[-1].startswith("freed ")
    assert said.endswith(" of 1 job\n")
    assert there > 100_000
    assert not (Path(wh.url) / "job=b").exists()
    assert run("prune", "--yes", "--grace", "0s") == "nothing to prune, nothing to free\n"
    assert wh.job_ids() == ["a"]
    wh.prune(["a"], dry_run=False)
    (row,) = wh.prune(dry_run=False, grace_s=0).to_dicts()
    assert (row["job"], row["status"]) == ("a", "freed")
    assert row["removed_bytes"] > 100_000


def test_prune_alone_takes_no_job(wh, run) -> None:
    for more in ([], ["--raw-events", "--yes"], ["--keep-tag", "x", "--yes"]):
        run("prune", *more, code=2)
    assert wh.prune(dry_run=False, grace_s=0).height == 0
    assert wh.job_ids() == ["a", "b"]


def test_a_prune_shows_seconds_at_most(run) -> None:
    _, a, b, _ = run("prune", "--older-than", "0s").splitlines()
    for line in (a, b):
        assert re.search(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d  ", line)
