"""Ingest from paths to tables: what is added, what changes nothing, and what bad input gets."""

import contextlib
import os
import resource
import signal
import subprocess

import pytest
from retime.ingest import run
from retime.ingest.errors import RetimeError, UnusableInput, UsageError, WarehouseError
from retime.ingest.run import ingest, job_id_of
from retime.ingest.schema import TABLES
from retime.ingest.warehouse import Warehouse


@pytest.fixture
def warehouse(tmp_path):
    return Warehouse(tmp_path / "warehouse")


@pytest.fixture
def processes(monkeypatch):
    """Worker processes even for small inputs."""
    monkeypatch.setattr(run, "SMALL_BYTES", 0)


def by_name(report):
    return {os.path.basename(s.name): s for s in report.sources}


def test_rows_of_every_source_and_derived_tables_stand(tmp_path, traces, warehouse, rows):
    for rank in range(2):
        traces(tmp_path / "job7" / f"{rank}.fake", rank, rows=3)
    report = ingest(warehouse, tmp_path / "job7")
    assert (report.job, report.exit_code, report.n_problems) == ("job7", 0, 0)
    assert [s.status for s in report.sources] == ["new", "new"]
    assert report.sources[1].rows == {"collectives": 3, "events": 3, "ranks": 1}
    assert report.bytes == sum(p.stat().st_size for p in (tmp_path / "job7").iterdir())
    found = rows(warehouse.snapshot("job7"))
    assert sorted((r["rank"], r["event_id"], r["dur_ns"]) for r in found["events"]) == [
        (0, 0, 0),
        (0, 1, 1),
        (0, 2, 4),
        (1, 1 << 40, 0),
        (1, (1 << 40) + 1, 1),
        (1, (1 << 40) + 2, 4),
    ]
    assert [(r["start_ns"], r["rank"]) for r in found["collectives"]] == [
        (10, 0),
        (10, 1),
        (20, 0),
        (20, 1),
        (30, 0),
        (30, 1),
    ]
    assert found["jobs"] == [
        {
            "world_size": 4,
            "ranks_seen": 2,
            "framework": "fake",
            "sources": 2,
            "tool_version": "0.1.0",
            "clocks": "one-host",
        }
    ]


def test_the_same_again_changes_nothing(tmp_path, traces, warehouse, tree):
    traces(tmp_path / "in" / "0.fake", 0)
    traces(tmp_path / "in" / "1.fake", 1, no_peek=True)
    ingest(warehouse, tmp_path / "in")
    before = tree(warehouse.path)
    report = ingest(warehouse, tmp_path / "in")
    assert [s.status for s in report.sources] == ["already", "already"]
    assert report.exit_code == 0
    assert tree(warehouse.path) == before


def test_a_rank_a_day_later_gives_the_same_as_all_at_once(tmp_path, traces, warehouse, rows):
    files = [traces(tmp_path / "in" / f"{rank}.fake", rank) for rank in range(3)]
    for f in (files[2], files[0], files[1]):
        ingest(warehouse, f, job="bit-by-bit")
    ingest(warehouse, tmp_path / "in", job="at-once")
    bit_by_bit, at_once = warehouse.snapshot("bit-by-bit"), warehouse.snapshot("at-once")
    assert rows(bit_by_bit) == rows(at_once)
    assert bit_by_bit.generation.id == at_once.generation.id


def test_the_number_of_workers_does_not_change_a_byte(tmp_path, traces, warehouse, processes):
    for rank in range(4):
        traces(tmp_path / "in" / f"{rank}.fake", rank, rows=2500)
    for workers in (1, 3):
        ingest(warehouse, tmp_path / "in", job=f"by-{workers}", workers=workers)
    one, three = (warehouse.snapshot(f"by-{w}").manifests for w in (1, 3))
    assert [m.parts for m in one] == [m.parts for m in three]
    assert all(len(m.parts) == 3 for m in one)


def test_progress_ends_at_all_the_bytes(tmp_path, traces, warehouse):
    traces(tmp_path / "in" / "0.fake", 0)
    traces(tmp_path / "in" / "1.fake", 1)
    seen = []
    report = ingest(warehouse, tmp_path / "in", progress=lambda *told: seen.append(told))
    assert seen[-1][:2] == (report.bytes, report.bytes)
    assert [s[0] for s in seen] == sorted(s[0] for s in seen)


def test_input_that_was_lost_is_exit_code_1(tmp_path, traces, warehouse, rows):
    traces(tmp_path / "in" / "0.fake", 0, lost=True)
    report = ingest(warehouse, tmp_path / "in")
    assert (report.exit_code, report.n_lost) == (1, 1)
    assert [r["code"] for r in rows(warehouse.snapshot("in"), "problems")] == ["truncated"]


def refused(warehouse, *args, **kwargs):
    """The error of an ingest that must be refused."""
    with pytest.raises(RetimeError) as caught:
        ingest(warehouse, *args, **kwargs)
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda p: p.write_text("hello"), "notes.txt: not a trace of a known format"),
        (lambda p: p.write_text(""), "notes.txt: the file is empty"),
        (lambda p: p.write_text(" \n "), "notes.txt: there is nothing but white space"),
        (lambda p: None, "notes.txt: no such file or folder"),
        (lambda p: p.mkdir(), "notes.txt: nothing in it"),
    ],
    ids=["not a trace", "empty", "blank", "absent", "empty folder"],
)
def test_nothing_usable_makes_no_warehouse(tmp_path, traces, warehouse, make, says):
    make(tmp_path / "notes.txt")
    error = refused(warehouse, tmp_path / "notes.txt")
    assert isinstance(error, UnusableInput)
    assert error.exit_code == 3
    assert says in str(error)
    assert not warehouse.path.exists()


def test_a_folder_of_other_files_is_not_usable(tmp_path, traces, warehouse):
    (tmp_path / "in").mkdir()
    for n in range(3):
        (tmp_path / "in" / f"{n}.txt").write_text("hello")
    error = refused(warehouse, tmp_path / "in")
    assert error.exit_code == 3
    assert "nothing usable in 3 files" in str(error)
    assert not warehouse.path.exists()


def test_another_file_in_a_folder_is_a_problem_and_named_itself_a_loss(tmp_path, traces, warehouse):
    trace = traces(tmp_path / "in" / "0.fake", 0)
    notes = tmp_path / "in" / "notes.txt"
    notes.write_text("hello")
    report = ingest(warehouse, tmp_path / "in", job="folder")
    assert report.exit_code == 0
    assert [(os.path.basename(n), p.code) for n, p in report.problems] == [
        ("notes.txt", "not_a_trace")
    ]
    report = ingest(warehouse, [trace, notes], job="named")
    assert report.exit_code == 1
    assert {n: s.status for n, s in by_name(report).items()} == {
        "0.fake": "new",
        "notes.txt": "failed",
    }


@pytest.mark.parametrize("no_peek", [False, True], ids=["told at once", "told by parsing"])
def test_a_rank_again_with_other_content_is_refused(tmp_path, traces, warehouse, tree, no_peek):
    first = traces(tmp_path / "first.fake", 3, rows=5)
    ingest(warehouse, first, job="j")
    before = set(tree(warehouse.path))
    contents = tree(warehouse.path / "job=j" / "events")
    other = traces(tmp_path / "other.fake", 3, rows=6, no_peek=no_peek)
    error = refused(warehouse, other, job="j")
    assert isinstance(error, UsageError)
    assert error.exit_code == 2
    for said in ("rank 3 of job j clashes", "first.fake", "other.fake", "--job"):
        assert said in str(error)
    assert set(tree(warehouse.path)) == before
    assert tree(warehouse.path / "job=j" / "events") == contents


def test_a_job_id_taken_from_the_path_that_exists_with_another_job(
    tmp_path, traces, warehouse, tree
):
    traces(tmp_path / "monday" / "run" / "0.fake", 0, rows=5)
    traces(tmp_path / "tuesday" / "run" / "0.fake", 0, rows=6)
    ingest(warehouse, tmp_path / "monday" / "run")
    before = tree(warehouse.path)
    error = refused(warehouse, tmp_path / "tuesday" / "run")
    assert error.exit_code == 2
    assert "rank 0 of job run clashes" in str(error)
    assert tree(warehouse.path) == before


def test_of_ranks_that_clash_in_one_call_the_larger_stays(tmp_path, traces, warehouse):
    for name, rank, rows in (("a", 1, 9), ("b", 2, 9), ("c", 2, 10_000), ("d", 2, 8)):
        traces(tmp_path / "in" / f"{name}.fake", rank, rows=rows)
    report = ingest(warehouse, tmp_path / "in")
    assert [(s.status, s.ranks) for s in report.sources] == [
        ("new", [1]), ("refused", []), ("new", [2]), ("refused", []),
    ]  # fmt: skip
    assert report.exit_code == 1
    told = str(report.sources[1].error)
    assert "rank 2" in told
    assert "b.fake" in told
    assert "c.fake" in told


def test_a_copy_under_another_rank_in_one_call_is_said(tmp_path, traces, warehouse):
    traces(tmp_path / "in" / "5.fake", -1)
    traces(tmp_path / "in" / "6.fake", -1)
    report = ingest(warehouse, tmp_path / "in")
    assert [(s.status, s.ranks) for s in report.sources] == [("new", [5]), ("already", [5])]
    assert [(p.code, p.rank) for p in report.sources[1].problems] == [("same_content", 6)]


@pytest.mark.parametrize("workers", [1, 2])
def test_of_ranks_that_clash_only_when_parsed_the_first_stays(
    tmp_path, traces, warehouse, processes, rows, workers
):
    traces(tmp_path / "in" / "a.fake", 1, no_peek=True, rows=20_000)
    traces(tmp_path / "in" / "b.fake", 1, no_peek=True, rows=2)
    traces(tmp_path / "in" / "c.fake", 0, no_peek=True, rows=2)
    report = ingest(warehouse, tmp_path / "in", workers=workers)
    assert {n: s.status for n, s in by_name(report).items()} == {
        "a.fake": "new",
        "b.fake": "refused",
        "c.fake": "new",
    }
    assert report.exit_code == 1
    assert by_name(report)["b.fake"].problems[0].code == "rank_clash"
    assert len(rows(warehouse.snapshot("in"), "events")) == 20_002


def test_a_copy_under_another_rank_is_said(tmp_path, traces, warehouse):
    ingest(warehouse, traces(tmp_path / "0.fake", -1), job="j")
    report = ingest(warehouse, traces(tmp_path / "5.fake", -1), job="j")
    assert report.sources[0].status == "already"
    assert [(p.code, p.rank) for p in report.sources[0].problems] == [("same_content", 5)]


def test_two_copies_in_one_call_are_one_source(tmp_path, traces, warehouse, rows):
    traces(tmp_path / "in" / "a.fake", 0)
    traces(tmp_path / "in" / "b.fake", 0)
    report = ingest(warehouse, tmp_path / "in")
    assert [s.status for s in report.sources] == ["new", "already"]
    assert len(rows(warehouse.snapshot("in"), "events")) == 10


@pytest.mark.parametrize("fault", ["unusable", "bug"])
def test_a_source_that_fails_in_the_middle_leaves_a_remark_and_no_row(
    tmp_path, traces, warehouse, fault, rows
):
    traces(tmp_path / "in" / "0.fake", 0)
    traces(tmp_path / "in" / "1.fake", 1, rows=5000, **{fault: True})
    report = ingest(warehouse, tmp_path / "in")
    assert [s.status for s in report.sources] == ["new", "failed"]
    assert report.exit_code == 1
    assert len(report.sources[1].problems[0].message) > 20
    ingest(warehouse, tmp_path / "in" / "0.fake", job="alone")
    both, alone = rows(warehouse.snapshot("in")), rows(warehouse.snapshot("alone"))
    (told,) = [p for p in both["problems"] if p["source"].endswith("1.fake")]
    assert (told["severity"], told["count"]) == ("lost", 1)
    both["problems"].remove(told)
    assert {t: r for t, r in both.items() if r} == {t: r for t, r in alone.items() if r}
    error = refused(warehouse, tmp_path / "in" / "1.fake", job="broken")
    assert error.exit_code == 3
    assert not (warehouse.path / "job=broken").exists()


def test_a_worker_that_is_killed_takes_only_its_file(tmp_path, traces, warehouse, processes):
    for rank in range(4):
        traces(tmp_path / "in" / f"{rank}.fake", rank, die=rank == 1)
    report = ingest(warehouse, tmp_path / "in", workers=2)
    assert [s.status for s in report.sources] == ["new", "failed", "new", "new"]
    assert report.sources[1].problems[0].code == "worker_died"
    assert "memory" in report.sources[1].problems[0].message
    assert report.exit_code == 1


def test_sources_that_disagree_on_the_world_are_warned_of(tmp_path, traces, warehouse, rows):
    traces(tmp_path / "in" / "0.fake", 0, world=8)
    traces(tmp_path / "in" / "1.fake", 1, world=128)
    ingest(warehouse, tmp_path / "in")
    (problem,) = rows(warehouse.snapshot("in"), "problems")
    assert (problem["code"], problem["severity"]) == ("world_size_differs", "warning")
    assert "8 says" in problem["message"]
    assert "128 says" in problem["message"]


def test_a_file_that_changes_while_it_is_read_is_not_taken(
    tmp_path, traces, warehouse, monkeypatch
):
    import fake_trace

    path = traces(tmp_path / "0.fake", 0)
    parse = fake_trace.parse

    def growing(source, **kwargs):
        yield from parse(source, **kwargs)
        path.write_bytes(path.read_bytes() + b" ")

    monkeypatch.setattr(fake_trace, "parse", growing)
    error = refused(warehouse, path)
    assert "changed while it was read" in str(error)
    assert not warehouse.path.exists()


@pytest.mark.parametrize(
    "job", ["", "a/b", "..", ".hidden", "_staged", "-x", "a b", "x" * 129, "a\nb", "é"]
)
def test_a_job_id_that_cannot_name_a_folder_is_refused(tmp_path, traces, warehouse, job):
    path = traces(tmp_path / "0.fake", 0)
    assert refused(warehouse, path, job=job).exit_code == 2
    assert not warehouse.path.exists()


@pytest.mark.parametrize(
    "wrong",
    [{"rank": -1}, {"workers": 0}, {"format": "csv"}],
    ids=["rank", "workers", "format"],
)
def test_arguments_out_of_range_are_refused(tmp_path, traces, warehouse, wrong):
    path = traces(tmp_path / "0.fake", 0)
    assert refused(warehouse, path, **wrong).exit_code == 2


def test_a_rank_for_several_sources_is_refused(tmp_path, traces, warehouse):
    for rank in range(2):
        traces(tmp_path / "in" / f"{rank}.fake", rank)
    assert refused(warehouse, tmp_path / "in", rank=0).exit_code == 2


@pytest.mark.parametrize(
    ("paths", "job"),
    [
        (["/a/run 7/"], "run-7"),
        (["/a/llama.pt.trace.json.gz"], "llama"),
        (["/a/llama.tar.gz"], "llama"),
        (["/a/b/rank3.json"], "b"),
        (["/a/b/trace_rank-12.json.gz"], "b"),
        (["/a/b/*.json"], "b"),
        (["/a/b/*/x*.json"], "b"),
        (["/a/b/x.json", "/a/b/y.json"], "b"),
        (["/a/.../___"], "job"),
    ],
)
def test_a_job_id_is_made_from_the_path(paths, job):
    assert job_id_of(paths) == job


def test_a_folder_that_is_no_warehouse_is_not_written_to(tmp_path, traces, tree):
    path = traces(tmp_path / "in" / "0.fake", 0)
    before = tree(tmp_path)
    error = refused(tmp_path / "in", path)
    assert error.exit_code == 3
    assert "is not a warehouse" in str(error)
    error = refused(path, path)
    assert "is a file" in str(error)
    assert tree(tmp_path) == before


@contextlib.contextmanager
def small_disk(folder, size):
    """A file system of `size` bytes; skips where this user may not mount one."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    try:
        made = subprocess.run(command, capture_output=True)
    except FileNotFoundError:
        pytest.skip("no mount command for a small file system")
    if made.returncode:
        pytest.skip(f"no small file system: {made.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_full_disk_leaves_what_was_finished(tmp_path, traces, tree, rows, workers, processes):
    traces(tmp_path / "in" / "0.fake", 0, rows=1000)
    big = traces(tmp_path / "in" / "1.fake", 1, rows=200_000)
    with small_disk(tmp_path / "disk", "300k") as disk:
        warehouse = Warehouse(disk / "warehouse")
        error = refused(warehouse, big, job="j")
        assert isinstance(error, WarehouseError)
        assert error.exit_code == 3
        assert "full" in str(error)
        assert list(disk.iterdir()) == []
        ingest(warehouse, tmp_path / "in" / "0.fake", job="j")
        before = tree(disk)
        error = refused(warehouse, tmp_path / "in", job="j", workers=workers)
        assert "full" in str(error)
        assert set(tree(disk)) == set(before)
        assert len(rows(warehouse.snapshot("j"), "events")) == 1000


@pytest.mark.parametrize("kilobytes", [16, 52, 76, 100, 148])
def test_wherever_the_disk_is_full_the_job_reads_whole(tmp_path, traces, rows, kilobytes):
    for rank in range(3):
        traces(tmp_path / "in" / f"{rank}.fake", rank, rows=2000)
    with small_disk(tmp_path / "disk", f"{kilobytes}k") as disk:
        warehouse = Warehouse(disk / "warehouse")
        with contextlib.suppress(WarehouseError):
            ingest(warehouse, tmp_path / "in", job="j")
        if not warehouse.path.exists():
            return
        assert not list(warehouse.path.glob("job=j/_incoming/*/"))
        snapshot = warehouse.snapshot("j")
        ranks = [r for m in snapshot.manifests for r in m.ranks]
        assert len(rows(snapshot, "events")) == 2000 * len(ranks)
        assert [r["rank"] for r in rows(snapshot, "ranks")] == sorted(ranks)


def test_a_file_size_limit_is_a_full_disk(tmp_path, traces, warehouse):
    path = traces(tmp_path / "0.fake", 0, rows=200_000)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
    try:
        error = refused(warehouse, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert isinstance(error, WarehouseError)
    assert not warehouse.path.exists()


def test_every_table_has_a_place_in_a_snapshot(tmp_path, traces, warehouse):
    ingest(warehouse, traces(tmp_path / "0.fake", 0), job="j")
    assert set(warehouse.snapshot("j").files) == set(TABLES)
