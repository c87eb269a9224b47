"""The spool: entries that stand or do not, claims, bounds, and what strangers may not do to it."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import msgspec
import pytest
from retime.ingest.errors import UsageError
from retime.ingest.upload import backoff, entry, job_names, log, spool
from retime.ingest.upload.entry import Entry
from retime.ingest.upload.spool import Spool, SpoolFull


def made(path: str = "/traces/rank0.json", **said) -> Entry:
    said = {"stored": False, "size_bytes": 10, "mtime_ns": 1, "job": "j", "to": "/w"} | said
    id = entry.entry_id(path, said["job"], said["to"], entry.here())
    return Entry(id=id, path=path, host=entry.here(), since_s=1e9, **said)


@pytest.fixture
def kept(spool) -> Spool:
    s = Spool(spool)
    s.make()
    return s


def test_an_entry_comes_back_as_it_was_put(kept):
    one = made(error="no\nroute", attempts=3, sha256="ab" * 32)
    kept.put(one, new=True)
    assert kept.get(one.id) == one
    assert kept.entries() == ([one], [])
    kept.remove(one)
    assert (kept.ids(), kept.get(one.id)) == ([], None)


def test_the_same_file_for_the_same_job_is_one_entry(kept):
    for _ in range(2):
        kept.put(made(), new=True)
    kept.put(made(job="other"), new=True)
    assert len(kept.ids()) == 2


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not an entry"),
        (b"{", "not an entry"),
        (b"[" * 60000, "not an entry"),
        (b" " * (entry.MOST_ENTRY_BYTES + 1), "too large"),
        (msgspec.json.encode(msgspec.structs.replace(made(), layout=2)), "layout is 2"),
        (msgspec.json.encode(made(path="relative")), "path is not one"),
        (msgspec.json.encode(msgspec.structs.replace(made("a/../b"), stored=True)), "path is not"),
        (msgspec.json.encode(made(path="/other")), "not the one in its name"),
    ],
)
def test_a_damaged_entry_is_told_and_stays(kept, data, words):
    path = kept.folder / "entries" / f"{made().id}.json"
    path.write_bytes(data)
    good, bad = kept.entries()
    assert good == []
    assert len(bad) == 1
    assert words in bad[0]
    assert kept.take(made().id) is None
    assert path.exists()


@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
def test_what_is_no_file_is_no_entry(kept, kind, tmp_path):
    path = kept.folder / "entries" / f"{made().id}.json"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        (tmp_path / "elsewhere").write_bytes(entry.encode(made()))
        path.symlink_to(tmp_path / "elsewhere")
    else:
        path.mkdir()
    assert kept.entries()[0] == []
    assert len(kept.entries()[1]) == 1


def test_a_claim_is_one_process_s_and_goes_with_it(kept):
    kept.put(made())
    mine = kept.take(made().id)
    assert kept.take(made().id) is None
    mine[1].release(False)
    code = (
        "import os, sys; from retime.ingest.upload.spool import Spool; "
        "taken = Spool(sys.argv[1]).take(sys.argv[2]); print('held', flush=True); "
        "sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(kept.folder), made().id],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert child.stdout.readline() == b"held\n"
    assert kept.take(made().id) is None
    child.kill()
    child.communicate()
    assert kept.take(made().id) is not None


def test_what_its_writer_left_half_done_is_taken_as_it_is(kept):
    one = made("rank0.json", stored=True, state="writing", size_bytes=0)
    claim = kept.claim(one.id)
    kept.put(one)
    kept.room(one.id).mkdir()
    (kept.room(one.id) / "rank0.json").write_text("half")
    assert kept.take(one.id) is None  # its writer is alive
    claim.release(False)
    found, _ = kept.take(one.id)
    assert (found.state, found.size_bytes) == ("waiting", 4)


def test_without_locks_what_was_written_to_just_now_is_left_alone(kept, monkeypatch):
    import fcntl

    def no_locks(*_):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    one = made("rank0.json", stored=True, state="writing", size_bytes=0)
    kept.put(one)
    kept.room(one.id).mkdir()
    file = kept.room(one.id) / "rank0.json"
    file.write_text("half")
    assert kept.take(one.id) is None
    os.utime(file, (1e9, 1e9))
    assert kept.take(one.id) is not None


def test_a_full_spool_says_what_is_the_oldest_in_it(kept, monkeypatch, tmp_path):
    monkeypatch.setattr(spool, "MOST_ENTRIES", 2)
    kept.put(msgspec.structs.replace(made("/old"), since_s=1e9 - 1), new=True)
    kept.put(made("/newer"), new=True)
    kept.put(made("/newer"), new=True)  # it is there already
    with pytest.raises(
        SpoolFull, match="2 entries wait there already; the oldest since 2001-09-09"
    ):
        kept.put(made("/newest"), new=True)
    file = tmp_path / "trace.json"
    file.write_bytes(b"x" * 1000)
    small = Spool(kept.folder, most_bytes=999)
    (small.room("a" * 16)).mkdir()
    (small.room("a" * 16) / "b").write_bytes(b"x" * 1000)
    with pytest.raises(SpoolFull, match="/old for job j"):
        small.keep(made(str(file)))
    monkeypatch.setattr(spool, "FREE_BYTES", 1 << 62)
    with pytest.raises(SpoolFull, match="MiB free"):
        kept.keep(made(str(file)))
    assert len(kept.ids()) == 2


def test_what_is_kept_outlives_the_file_it_came_from(kept, tmp_path):
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "a").write_text("1")
    (tmp_path / "one.json").write_text("2")
    for name in ("bundle", "one.json"):
        one = kept.keep(made(str(tmp_path / name)))
        assert (one.stored, one.path) == (True, name)
        assert kept.get(one.id) == one
    (tmp_path / "one.json").unlink()
    assert [os.path.exists(kept.path_of(e)) for e in kept.entries()[0]] == [True, True]
    assert kept.bytes_kept() == 2


def test_due_is_what_waited_long_enough_and_is_of_this_machine(kept, tmp_path):
    now = time.time()
    there = tmp_path / "on-a-shared-disk"
    there.touch()
    states = {
        "/due": {}, "/later": {"next_try_s": now + 900}, "/failed": {"state": "failed"},
        "/clock-was-put-back": {"next_try_s": now + 1e6}, "/not-here": {}, str(there): {},
    }  # fmt: skip
    for path, said in states.items():
        one = msgspec.structs.replace(made(path), **said)
        if path in ("/not-here", str(there)):
            one = msgspec.structs.replace(one, host="another-machine")
        kept.put(one)
    due = {e.path for e in kept.due()}
    assert due == {"/due", "/clock-was-put-back", str(there)}
    assert {e.path for e in kept.due(all=True)} == due | {"/later", "/failed"}


@pytest.mark.parametrize("mode", [0o777, 0o720, 0o702])
def test_a_spool_that_others_may_write_is_refused(spool, mode):
    spool.mkdir()
    spool.chmod(mode)
    with pytest.raises(UsageError, match="others may write there"):
        Spool(spool)


def test_a_spool_is_a_folder_of_its_owner_alone(kept):
    assert kept.folder.stat().st_mode & 0o777 == 0o700
    with pytest.raises(UsageError, match="not a folder"):
        Spool("/dev/null")


def test_where_the_spool_is_by_default(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    assert spool.default_folder() == tmp_path / ".local" / "state" / "retime" / "spool"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert spool.default_folder() == tmp_path / "state" / "retime" / "spool"
    monkeypatch.setenv("RETIME_SPOOL", str(tmp_path / "here"))
    assert Spool().folder == tmp_path / "here"
    monkeypatch.setenv("RETIME_SPOOL_BYTES", "12")
    assert Spool().most_bytes == 12
    monkeypatch.setenv("RETIME_SPOOL_BYTES", "many")
    with pytest.raises(UsageError, match="RETIME_SPOOL_BYTES"):
        Spool()


@pytest.mark.parametrize(
    "address",
    [
        "s3://AKIA1:hunter2@bucket/w", "s3://AKIA1@bucket/w", "gs://u:hunter2@bucket",
        "s3://bucket/w?secret_key=hunter2", "s3://b/w?region=x&session_token=hunter2",
        "abfss://c@account/w?sas_token=hunter2",
    ],
)  # fmt: skip
def test_an_address_with_credentials_is_refused_and_not_repeated(address):
    with pytest.raises(UsageError, match="has credentials in it") as e:
        entry.check_address(address)
    assert "hunter2" not in str(e.value)
    assert "AKIA1" not in str(e.value)


def test_addresses(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert entry.check_address("w") == str(tmp_path / "w")
    for good in ("s3://bucket/a/b", "abfss://container@account/w", "gs://bucket?region=x"):
        assert entry.check_address(good) == good
    with pytest.raises(UsageError, match="where to"):
        entry.check_address("")


def test_the_log_is_lines_that_act_on_nothing_and_stays_small(kept, monkeypatch):
    log.say(kept.folder, 40, "kernel \x1b[2J \n of a stranger\u202e" + "x" * 9000)
    line = (kept.folder / "upload.log").read_text()
    assert line.count("\n") == 1
    assert "\\u001b[2J \\u000a of a stranger\\u202e" in line
    assert len(line) < 3000
    monkeypatch.setattr(log, "MOST_BYTES", 5000)
    for _ in range(100):
        log.say(kept.folder, 20, "y" * 1000)
    sizes = [(kept.folder / n).stat().st_size for n in ("upload.log", "upload.log.1")]
    assert max(sizes) < 7000
    log.say(kept.folder / "not there", 20, "nobody minds")


def test_durations():
    said = {"90": 90, "90s": 90, "5m": 300, "1.5h": 5400, "250ms": 0.25, "30d": 2592000, "0": 0}
    assert {t: backoff.seconds(t, "--for") for t in said} == said
    for wrong in ("", "-1", "5x", "31d", "1e3", "nan", "1h30m"):
        with pytest.raises(UsageError, match="--for is a time"):
            backoff.seconds(wrong, "--for")


def test_pauses_grow_to_a_bound_and_are_spread(monkeypatch):
    monkeypatch.setattr(backoff, "FIRST_S", 1.0)
    monkeypatch.setattr(backoff, "MOST_S", 60.0)
    for attempt, most in ((0, 1), (3, 8), (10, 60), (10**6, 60)):
        pauses = [backoff.pause_s(attempt) for _ in range(300)]
        assert 0 <= min(pauses) < most * 0.2
        assert most * 0.8 < max(pauses) <= most
    assert 1800 <= backoff.later_s(99) <= 3600


@pytest.mark.parametrize(
    ("environment", "job"),
    [
        ({}, None),
        ({"RETIME_JOB": "run 7/a"}, "run-7-a"),
        ({"SLURM_JOB_ID": "812", "SLURM_JOB_NAME": "x"}, "slurm-812"),
        ({"SLURM_JOB_ID": "812", "SLURM_RESTART_COUNT": "0"}, "slurm-812"),
        ({"SLURM_JOB_ID": "812", "SLURM_RESTART_COUNT": "2"}, "slurm-812.restart-2"),
        ({"SLURM_JOB_ID": "812", "TORCHELASTIC_RUN_ID": "r"}, "slurm-812"),
        ({"TORCHELASTIC_RUN_ID": "none"}, None),
        ({"TORCHELASTIC_RUN_ID": "run-9"}, "run-9"),
        ({"RETIME_JOB": "x" * 300}, "x" * 100),
    ],
)
def test_the_job_of_an_environment(environment, job):
    assert job_names.from_environment(environment) == job


def test_the_job_of_a_process_says_which_attempt_and_window_it_is():
    env = {"SLURM_JOB_ID": "812", "SLURM_RESTART_COUNT": "1", "TORCHELASTIC_RESTART_COUNT": "3"}
    assert job_names.of_process(None, env) == "slurm-812.restart-1.attempt-3"
    assert job_names.of_process("mine", env) == "mine.restart-1.attempt-3"
    assert job_names.of_process("mine", {}) == "mine"
    assert job_names.of_process(None, {}) is None
    assert job_names.of_window("mine", 1) == "mine"
    assert job_names.of_window("mine", 3) == "mine.window-3"
