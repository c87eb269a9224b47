"""Uploads that go well, that fail for a while, and that cannot go well."""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import subprocess
import threading
import time
import zipfile

import pytest
from retime.ingest.errors import UnusableInput, UsageError, WarehouseError
from retime.ingest.run import ingest
from retime.ingest.upload import delivery, finding, run
from retime.ingest.upload import spool as spools
from retime.ingest.upload.run import forget, left, upload
from retime.ingest.warehouse import Warehouse

EVENTS = 9
"""Of each small trace."""


def states(report) -> dict[str, str]:
    return {os.path.basename(s.path): s.state for s in report.sent}


def test_files_are_in_and_nothing_is_left(trace, wh, spool, rows_of):
    trace(0), trace(1)
    report = upload(wh.parent / "traces", to=str(wh), job="j", spool=spool)
    assert states(report) == {"rank0.json": "new", "rank1.json": "new"}
    assert (report.exit_code, left(spool).sent) == (0, [])
    assert [s.ranks for s in report.sent] == [(0,), (1,)]
    assert not list((wh / "job=j" / "_manifests").glob("derived-*"))  # two of four ranks
    assert rows_of(wh, "j") == (2 * EVENTS, [0, 1])
    assert list((spool / "claims").iterdir()) == []


def test_the_same_content_twice_changes_nothing(trace, wh, spool, rows_of, tmp_path):
    first = trace(0)
    copy = tmp_path / "copy.json"
    copy.write_bytes(first.read_bytes())
    for path, state in ((first, "new"), (first, "already"), (copy, "already")):
        report = upload([path], to=str(wh), job="j", spool=spool)
        assert (list(states(report).values()), report.exit_code) == ([state], 0)
    assert rows_of(wh, "j") == (EVENTS, [0])


def test_the_last_rank_s_upload_makes_the_derived_tables(trace, wh, spool):
    for rank in range(4):
        report = upload([trace(rank)], to=str(wh), job="j", spool=spool)
        assert report.finished == ([(str(wh), "j")] if rank == 3 else [])
    assert len(list((wh / "job=j" / "_manifests").glob("derived-*"))) == 1


def test_finish_says_whether_derived_tables_are_made(trace, wh, spool):
    upload([trace(0, world=1)], to=str(wh), job="j", spool=spool, finish=False)
    derived = wh / "job=j" / "_manifests"
    assert not list(derived.glob("derived-*"))
    report = upload(to=str(wh), job="j", spool=spool, finish=True)
    assert report.finished == [(str(wh), "j")]
    assert len(list(derived.glob("derived-*"))) == 1
    assert upload(to=str(wh), job="j", spool=spool, finish=True).finished == []


def test_an_unreachable_warehouse_that_comes_back_has_it_all(trace, wh, spool, store, rows_of):
    store.goes_down()
    paths = [trace(0), trace(1)]
    report = upload(paths, to=str(wh), job="j", spool=spool, for_s=0.1)
    assert (report.exit_code, len(report.left)) == (1, 2)
    assert all(s.attempts > 1 and s.error for s in report.left)
    waiting = left(spool).sent
    assert [s.path for s in waiting] == [str(p) for p in paths]
    entry = json.loads((spool / "entries" / f"{waiting[0].id}.json").read_text())
    assert (entry["job"], entry["to"], entry["size_bytes"]) == (
        "j",
        str(wh),
        paths[0].stat().st_size,
    )
    assert len(entry["sha256"]) == 64
    assert upload(spool=spool, for_s=0).sent == []  # not due yet
    store.is_back()
    report = upload(spool=spool, retry=True)
    assert (states(report), report.exit_code) == ({"rank0.json": "new", "rank1.json": "new"}, 0)
    assert left(spool).sent == []
    assert rows_of(wh, "j") == (2 * EVENTS, [0, 1])


def test_it_goes_on_trying_until_the_warehouse_is_back(trace, wh, spool, store):
    store.goes_down()
    threading.Timer(0.5, store.is_back).start()
    report = upload([trace(0)], to=str(wh), job="j", spool=spool, for_s=60)
    assert (states(report), report.exit_code) == ({"rank0.json": "new"}, 0)
    assert report.sent[0].attempts > 1


def test_no_permission_is_told_at_once_and_kept(trace, wh, spool, monkeypatch):
    tried = []

    def refused(*args, **options):
        tried.append(args)
        raise WarehouseError("s3://b/w: access denied") from PermissionError(13, "no")

    monkeypatch.setattr(delivery, "ingest", refused)
    report = upload([trace(0), trace(1)], to=str(wh), job="j", spool=spool, for_s=60)
    assert len(tried) == 1
    assert (report.exit_code, len(report.left)) == (1, 2)
    assert "access denied" in report.left[0].error


def test_a_library_that_raises_anything_costs_a_try(trace, wh, spool, monkeypatch):
    real, fails = delivery.ingest, [RuntimeError("AWS Error SLOW_DOWN"), MemoryError()]

    def flaky(*args, **options):
        if fails:
            raise fails.pop()
        return real(*args, **options)

    monkeypatch.setattr(delivery, "ingest", flaky)
    report = upload([trace(0)], to=str(wh), job="j", spool=spool, for_s=60)
    assert (states(report), report.sent[0].attempts) == ({"rank0.json": "new"}, 3)


def test_a_clash_is_told_and_kept_and_the_others_go_in(trace, wh, spool, rows_of):
    upload([trace(0)], to=str(wh), job="j", spool=spool)
    other = trace(0, folder="again", salt=1)
    report = upload([other, trace(1), trace(2)], to=str(wh), job="j", spool=spool, for_s=60)
    assert report.exit_code == 1
    assert [(s.path, s.attempts) for s in report.failed] == [(str(other), 1)]
    assert "rank 0 of job j clashes" in report.failed[0].error
    assert rows_of(wh, "j") == (3 * EVENTS, [0, 1, 2])
    assert upload(spool=spool).sent == []  # another try would end the same
    assert upload(spool=spool, retry=True).exit_code == 3
    [s] = left(spool).sent
    assert forget([s.id], spool).sent[0].path == str(other)
    assert left(spool).sent == []
    assert other.exists()
    with pytest.raises(UsageError, match="no such entry"):
        forget([s.id], spool)


def test_what_is_no_trace(trace, wh, spool, tmp_path):
    trace(0)
    (tmp_path / "traces" / "README.md").write_text("traces of a run")
    (tmp_path / "traces" / "cut.json.gz").write_bytes(gzip.compress(os.urandom(99))[:15])
    (tmp_path / "notes.txt").write_text("nothing")
    report = upload(tmp_path / "traces", to=str(wh), job="j", spool=spool)
    assert (report.others, report.exit_code) == (1, 1)
    assert [os.path.basename(s.path) for s in report.failed] == ["cut.json.gz"]  # it was one
    report = upload([tmp_path / "notes.txt"], to=str(wh), job="j", spool=spool)
    assert report.exit_code == 3
    assert "not a trace" in report.failed[0].error
    with pytest.raises(UnusableInput, match="no such file"):
        upload([tmp_path / "none"], to=str(wh), job="j", spool=spool)
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "a.txt").write_text("x")
    with pytest.raises(UnusableInput, match="no trace among 1 files"):
        upload(tmp_path / "plain", to=str(wh), job="j", spool=spool)


def test_an_archive_is_one_entry(trace, wh, spool, store, tmp_path, rows_of):
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as z:
        for rank in range(2):
            z.write(trace(rank), f"rank{rank}.json")
    store.goes_down()
    upload([tmp_path / "all.zip"], to=str(wh), job="j", spool=spool, for_s=0)
    assert len(left(spool).sent) == 1
    store.is_back()
    report = upload(spool=spool, retry=True)
    assert [(s.state, s.ranks) for s in report.sent] == [("new", (0, 1))]
    assert rows_of(wh, "j") == (2 * EVENTS, [0, 1])


def test_input_lost_in_a_trace_is_exit_1(trace, wh, spool):
    path = trace(0)
    path.write_text(path.read_text()[:-200])
    report = upload([path], to=str(wh), job="j", spool=spool)
    assert (states(report), report.lost > 0, report.exit_code) == ({"rank0.json": "new"}, True, 1)


def test_what_the_job_leaves_behind_is_kept_though_the_job_s_folder_goes(
    trace, wh, spool, store, rows_of
):
    store.goes_down()
    path = trace(0)
    report = upload([path], to=str(wh), job="j", spool=spool, for_s=0, keep=True)
    assert report.left[0].stored
    path.unlink()
    store.is_back()
    assert upload(spool=spool, retry=True).exit_code == 0
    assert rows_of(wh, "j") == (EVENTS, [0])
    assert list((spool / "files").iterdir()) == []


def test_without_keep_a_file_that_is_gone_is_told(trace, wh, spool, store):
    store.goes_down()
    path = trace(0)
    upload([path], to=str(wh), job="j", spool=spool, for_s=0)
    path.unlink()
    store.is_back()
    report = upload(spool=spool, retry=True)
    assert report.exit_code == 3
    assert "gone" in report.failed[0].error
    assert len(left(spool).sent) == 1


def test_another_run_s_trace_in_its_place_does_not_go_to_the_job(trace, wh, spool, store):
    store.goes_down()
    upload([trace(0)], to=str(wh), job="j", spool=spool, for_s=0)
    store.is_back()
    trace(0, salt=5)
    report = upload(spool=spool, retry=True)
    assert "not the file any more" in report.failed[0].error
    assert not list(wh.iterdir())


def test_what_is_kept_of_a_path_is_not_lost_to_what_comes_there_later(trace, wh, spool, store):
    store.goes_down()
    upload([trace(0)], to=str(wh), job="j", spool=spool, for_s=0, keep=True)
    (wh.parent / "traces" / "rank0.json").unlink()
    upload([trace(0, salt=5)], to=str(wh), job="j", spool=spool, for_s=0, keep=True)
    assert [s.stored for s in left(spool).sent] == [True, True]
    store.is_back()
    report = upload(spool=spool, retry=True)
    assert sorted(s.state for s in report.sent) == ["failed", "new"]  # two traces of a rank


def test_a_file_that_has_only_grown_is_the_same(trace, wh, spool, store):
    store.goes_down()
    path = trace(0)
    whole = path.read_text()
    path.write_text(whole[:700])
    upload([path], to=str(wh), job="j", spool=spool, for_s=0)
    path.write_text(whole)
    store.is_back()
    report = upload(spool=spool, retry=True)
    assert (states(report), report.exit_code) == ({"rank0.json": "new"}, 0)


def test_a_file_that_changes_while_it_is_read_is_read_again(trace, wh, spool, monkeypatch):
    path = trace(0)
    real, changes = delivery.ingest, [1, 2]

    def meanwhile(*args, **options):
        from retime.ingest import stage

        written = stage._write_parts

        def and_write(*a):
            done = written(*a)
            if changes:
                changes.pop()
                path.write_text(path.read_text() + " ")
            return done

        with monkeypatch.context() as m:
            m.setattr(stage, "_write_parts", and_write)
            return real(*args, **options)

    monkeypatch.setattr(delivery, "ingest", meanwhile)
    report = upload([path], to=str(wh), job="j", spool=spool, for_s=60)
    assert (states(report), report.sent[0].attempts) == ({"rank0.json": "new"}, 3)


def test_a_file_that_is_written_to_for_good_is_left_for_later(trace, wh, spool):
    path = trace(0)
    trace(1)
    os.utime(path.with_name("rank1.json"), (1e9, 1e9))
    done = threading.Event()

    def write():
        while not done.wait(0.05):
            with open(path, "a") as f:
                f.write(" ")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        report = upload(path.parent, to=str(wh), job="j", spool=spool, for_s=1, wait_idle_s=0.4)
    finally:
        done.set()
        writer.join()
    assert states(report) == {"rank0.json": "waiting", "rank1.json": "new"}
    assert "still being written" in report.left[0].error
    report = upload(spool=spool, retry=True)
    assert states(report) == {"rank0.json": "new"}


def test_idle_is_by_the_file_s_time_and_by_what_is_seen(trace):
    path = trace(0)
    old = finding.Quiet(10.0)
    os.utime(path, (1e9, 1e9))
    assert old.is_quiet(str(path))
    for mtime in (time.time(), time.time() + 1e6):  # just now; a clock that is ahead
        os.utime(path, (mtime, mtime))
        assert not finding.Quiet(10.0).is_quiet(str(path))
        watched = finding.Quiet(0.05)
        assert not watched.is_quiet(str(path))
        time.sleep(0.1)
        assert watched.is_quiet(str(path))


def test_an_empty_file_that_is_just_made_is_a_trace_to_come(trace, wh, spool, tmp_path):
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "rank0.json").touch()
    report = upload(tmp_path / "traces", to=str(wh), job="j", spool=spool, for_s=0.2, wait_idle_s=9)
    assert states(report) == {"rank0.json": "waiting"}
    trace(0)
    assert states(upload(spool=spool, retry=True)) == {"rank0.json": "new"}


@pytest.mark.parametrize("how", ["a file is in the way", "its disk is full"])
def test_without_a_spool_files_are_delivered_all_the_same(
    trace, wh, spool, store, how, monkeypatch
):
    if how == "its disk is full":
        monkeypatch.setattr(spools.Spool, "put", _full)
    else:
        spool.parent.mkdir(exist_ok=True)
        (spool.parent / "f").write_text("")
        spool = spool.parent / "f" / "spool"
    report = upload([trace(0)], to=str(wh), job="j", spool=spool)
    assert (states(report), report.exit_code) == ({"rank0.json": "new"}, 0)
    assert len(report.notes) == 1
    store.goes_down()
    report = upload([trace(1)], to=str(wh), job="j", spool=spool, for_s=0)
    assert (states(report), report.exit_code) == ({"rank1.json": "waiting"}, 1)
    assert report.left[0].next_try_s is None
    if how != "its disk is full":
        assert upload(spool=spool).exit_code == 1  # whatever was left there is not delivered


def _full(*_, **__):
    raise OSError(28, "No space left on device")


def test_a_full_disk_of_the_warehouse_leaves_all_in_the_spool(trace, wh, spool, monkeypatch):
    def full(*args, **options):
        raise WarehouseError(f"{wh}: the disk (or quota) is full") from OSError(28, "No space")

    with monkeypatch.context() as m:
        m.setattr(delivery, "ingest", full)
        report = upload([trace(0)], to=str(wh), job="j", spool=spool, for_s=0.1)
    assert report.exit_code == 1
    assert report.left[0].attempts > 1
    assert upload(spool=spool, retry=True).exit_code == 0


def test_a_full_spool_takes_no_file_in_and_delivers_all_the_same(trace, wh, spool, monkeypatch):
    monkeypatch.setattr(spools, "MOST_ENTRIES", 1)
    trace(0), trace(1)
    report = upload(wh.parent / "traces", to=str(wh), job="j", spool=spool)
    assert set(states(report).values()) == {"new"}
    assert "entries wait there already" in report.notes[0]


def test_many_files_are_delivered_in_pieces(trace, wh, spool, monkeypatch, rows_of):
    monkeypatch.setattr(run, "upload", upload)
    from retime.ingest.upload import sending

    monkeypatch.setattr(sending, "MOST_CLAIMS", 3)
    monkeypatch.setattr(sending, "MOST_AT_ONCE", 2)
    for rank in range(8):
        trace(rank, world=8)
    report = upload(wh.parent / "traces", to=str(wh), job="j", spool=spool)
    assert len(report.delivered) == 8
    assert report.finished
    assert rows_of(wh, "j") == (8 * EVENTS, list(range(8)))


def test_a_file_on_another_machine_s_disk_is_for_that_one(trace, wh, spool, store, monkeypatch):
    store.goes_down()
    monkeypatch.setattr("retime.ingest.upload.sending.here", lambda: "node1")
    path = trace(0)
    upload([path], to=str(wh), job="j", spool=spool, for_s=0)
    store.is_back()
    path.rename(path.with_name("hidden"))
    report = upload(spool=spool, retry=True)
    assert report.sent == []
    assert "1 entries are of files on other machines (node1)" in report.notes[0]
    path.with_name("hidden").rename(path)  # a shared disk: any machine may
    assert states(upload(spool=spool, retry=True)) == {"rank0.json": "new"}


def test_a_reader_that_died_is_not_tried_again_at_once(trace, wh, spool, monkeypatch):
    from retime.ingest import run as ingesting
    from retime.ingest.workers import WorkerDied

    tries = []

    def dies(*_):
        tries.append(1)
        raise WorkerDied("it was killed, perhaps because memory ran out")

    with monkeypatch.context() as m:
        m.setattr(ingesting, "stage_source", dies)
        report = upload([trace(0)], to=str(wh), job="j", spool=spool, for_s=60)
    assert (len(tries), states(report)) == (1, {"rank0.json": "waiting"})
    assert states(upload(spool=spool, retry=True)) == {"rank0.json": "new"}


def test_a_damaged_entry_is_said_and_the_others_go(trace, wh, spool, store):
    store.goes_down()
    upload([trace(0)], to=str(wh), job="j", spool=spool, for_s=0)
    (spool / "entries" / ("0" * 16 + ".json")).write_text("{")
    store.is_back()
    report = upload(spool=spool, retry=True)
    assert states(report) == {"rank0.json": "new"}
    assert "not an entry" in report.notes[0]
    assert len(left(spool).notes) == 1


def test_the_job_and_the_warehouse_come_from_the_environment(trace, wh, spool, monkeypatch):
    with pytest.raises(UsageError, match="where to"):
        upload([trace(0)], job="j", spool=spool)
    monkeypatch.setenv("RETIME_WAREHOUSE", str(wh))
    with pytest.raises(UsageError, match="which job"):
        upload([trace(0)], spool=spool)
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    upload([trace(0)], spool=spool)
    assert Warehouse(str(wh)).jobs() == ["slurm-17"]
    with pytest.raises(UsageError, match="not usable"):
        upload([trace(0)], job="a/b", spool=spool)


def test_an_upload_is_what_an_ingest_is(trace, wh, spool, tmp_path):
    for rank in range(4):
        trace(rank)
    upload(tmp_path / "traces", to=str(wh), job="j", spool=spool)
    ingest(str(tmp_path / "other"), str(tmp_path / "traces"), job="j")
    contents = [
        {
            str(p.relative_to(root)): p.read_bytes()
            for p in root.rglob("*.parquet")
            if p.parent.name != "jobs"  # it has the time of the ingest
        }
        for root in (wh, tmp_path / "other")
    ]
    assert contents[0] == contents[1]


def test_a_warehouse_that_is_not_there_is_not_made(trace, wh, spool, store):
    wh.rmdir()
    report = upload([trace(0)], to=str(wh), job="j", spool=spool, for_s=60)
    assert (report.exit_code, store.tries, wh.exists()) == (1, 0, False)
    assert "is its disk mounted?" in report.left[0].error
    wh.mkdir()
    assert upload(spool=spool, retry=True).exit_code == 0


def test_an_interrupted_call_holds_nothing_afterwards(trace, wh, spool, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as m:
        m.setattr(delivery, "ingest", interrupted)
        with pytest.raises(KeyboardInterrupt):
            upload([trace(0)], to=str(wh), job="j", spool=spool)
    assert states(upload(spool=spool)) == {"rank0.json": "new"}


def test_what_has_no_address_waits_for_one(trace, wh, spool, monkeypatch):
    upload([trace(0)], to=str(wh / "none"), job="j", spool=spool, for_s=0)
    [entry] = (spool / "entries").iterdir()
    entry.write_text(entry.read_text().replace(str(wh / "none"), ""))
    report = upload(spool=spool, retry=True)
    assert (report.exit_code, "where to?" in report.left[0].error) == (1, True)
    assert states(upload(spool=spool, retry=True, to=str(wh))) == {"rank0.json": "new"}


def test_a_hostile_name_acts_nowhere(trace, wh, spool, cli, tmp_path):
    path = trace(0)
    bad = path.rename(path.with_name("rank0 \x1b[2J\n$(touch x)'; --;<b>\u202e.json"))
    wh.rmdir()
    where = ("--to", wh, "--job", "j", "--spool", spool)
    for command in (["upload", bad, *where], ["upload", "--list", "--spool", spool]):
        _, out, err = cli(*command)
        assert "\x1b" not in out + err
        assert "\u202e" not in out + err
        assert all("rank0" in line for line in out.splitlines() if "$(touch x)" in line)
    log = (spool / "upload.log").read_text()
    assert "\x1b" not in log
    assert all(line.split()[1] in ("info", "warning", "error") for line in log.splitlines())
    wh.mkdir()
    assert cli("upload", "--retry", "--spool", spool)[0] == 0
    assert not (tmp_path / "x").exists()


def test_the_command_line(trace, wh, spool, cli):
    path = trace(0)
    wh.rmdir()
    where = ("--to", wh, "--job", "j", "--spool", spool, "--for", "0")
    code, out, err = cli("upload", path, *where)
    assert (code, err) == (1, "")
    assert f"left for later: {path}: " in out
    code, out, _ = cli("upload", "--list", "--spool", spool, "--json")
    [file] = json.loads(out)["files"]
    assert (code, file["state"], file["path"]) == (0, "waiting", str(path))
    assert f"job j in {wh}  {path}" in cli("upload", "--list", "--spool", spool)[1]
    code, out, _ = cli("upload", path, *where, "--epilogue")
    assert (code, "left for later" in out) == (0, True)
    secret = ("--to", "s3://k:hunter2@b", "--job", "j", "--spool", spool)
    assert cli("upload", path, *secret)[0] == 2
    assert cli("upload", path, *secret, "--epilogue")[0] == 0
    assert "has credentials in it" in (spool / "upload.log").read_text()
    assert "hunter2" not in "".join(p.read_text() for p in spool.rglob("*") if p.is_file())
    wh.mkdir()
    code, out, err = cli("upload", "--retry", "--spool", spool, "--json")
    assert (code, err, json.loads(out)["delivered"]) == (0, "", 1)
    assert cli("upload", path, *where, "--epilogue") == (0, "", "")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (["--list", "x"], "alone"),
        (["--follow"], "needs the folders"),
        (["x", "--for", "soon"], "--for is a time"),
        (["--example", "x"], "no example"),
        (["x", "--to", "w"], "which job?"),
        (["--forget", "0" * 16], "no such entry"),
    ],
)
def test_usage(cli, spool, wrong, words):
    code, out, err = cli("upload", *wrong, "--spool", spool)
    assert (code, out) == (2, "")
    assert words in err
    assert len(err.splitlines()) == 1


def test_follow_sends_what_is_whole_and_at_sigterm_all(trace, wh, spool, command, rows_of):
    old = trace(0)
    os.utime(old, (1e9, 1e9))
    (old.parent / "README").write_text("no trace")
    following = subprocess.Popen(
        [str(command), "upload", str(old.parent), "--to", str(wh), "--job", "j", "--spool",
         str(spool), "--follow", "--wait-idle", "1h", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        for _ in range(600):
            if (wh / "job=j" / "_manifests").is_dir():
                break
            time.sleep(0.1)
        trace(1)  # not idle for an hour yet
        time.sleep(0.1)
        following.terminate()
        out, err = following.communicate(timeout=60)
    finally:
        following.kill()
    report = json.loads(out)
    assert following.returncode == 0
    assert sorted(f["state"] for f in report["files"]) == ["new", "new"]
    assert err.count("delivered (new)") == 2
    assert rows_of(wh, "j") == (2 * EVENTS, [0, 1])


def test_what_is_said_of_a_clash_replaces_the_standing_trace(trace, wh, spool, cli, rows_of):
    upload([trace(0), trace(1)], to=str(wh), job="j", spool=spool)
    whole = trace(0, folder="again", salt=1)
    report = upload([whole], to=str(wh), job="j", spool=spool)
    said = re.search(r"`retime (.*)` and all of the job's traces again", report.failed[0].error)
    assert said is not None
    assert cli(*shlex.split(said[1]))[0] == 0
    assert upload([trace(1)], to=str(wh), job="j", spool=spool, retry=True).exit_code == 0
    assert left(spool).sent == []
    assert rows_of(wh, "j") == (2 * EVENTS, [0, 1])


def test_an_error_of_several_files_is_said_once(trace, wh, spool, cli):
    paths = [trace(r) for r in range(4)]
    bad = paths[0].with_name("rank9.json")
    bad.write_text("{")
    wh.rmdir()
    where = ("--to", wh, "--job", "j", "--spool", spool, "--for", "0")
    _, out, _ = cli("upload", *paths, *where)
    assert out.count("no such folder: is its disk mounted?") == 1
    assert "left for later: 4 files: " in out
    assert "    rank0.json, rank1.json, rank2.json, rank3.json\n" in out
    wh.mkdir()
    _, out, _ = cli("upload", bad, *where)
    assert f"not deliverable: {bad}: " in out
    assert out.count(str(bad)) == 1
