"""Memory and threads of a connection: what is asked for, the environment, what there is."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from retime.analysis import limits, query
from retime.analysis.commands import failing
from retime.ingest.errors import UsageError

GIB = 1 << 30


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RETIME_MEMORY", "RETIME_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(limits, "available_bytes", lambda: 64 * GIB)
    monkeypatch.setattr(limits, "cores", lambda: 96)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (None, 32 * GIB),
        ("8GB", 8_000_000_000),
        ("8 GiB", 8 * GIB),
        ("1.5gib", 3 * GIB // 2),
        ("512MB", 512_000_000),
        ("25%", 16 * GIB),
        ("2000000000", 2_000_000_000),
        (GIB, GIB),
    ],
)
def test_memory_as_it_is_asked_for(asked, expected: int) -> None:
    assert limits.memory_bytes(asked) == expected


def test_the_environment_is_asked_where_nobody_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETIME_MEMORY", "4GB")
    monkeypatch.setenv("RETIME_THREADS", "3")
    assert (limits.memory_bytes(), limits.memory_bytes("6GB")) == (4 * 10**9, 6 * 10**9)
    assert (limits.threads(), limits.threads(2)) == (3, 2)


@pytest.mark.parametrize("said", ["much", "8", "8GB; SET threads = 9", "-1GB", "200%", "0", "1MB"])
def test_memory_that_cannot_be(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="memory is "):
        limits.memory_bytes(said)
    monkeypatch.setenv("RETIME_MEMORY", said)
    with pytest.raises(UsageError, match="RETIME_MEMORY is "):
        limits.memory_bytes()


@pytest.mark.parametrize("said", ["0", "many", "1.5", "-2", "99999", "2; DROP"])
def test_threads_that_cannot_be(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETIME_THREADS", said)
    with pytest.raises(UsageError, match=r"RETIME_THREADS is .*: say a number from 1 to 1024"):
        limits.threads()


def test_a_core_each_and_no_more_than_that(monkeypatch: pytest.MonkeyPatch) -> None:
    assert limits.threads() == limits.MOST_THREADS == 16
    monkeypatch.setattr(limits, "cores", lambda: 2)
    assert limits.threads() == 2


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cgroup of this process, in a folder; with the functions that look at it."""
    monkeypatch.undo()
    monkeypatch.setattr(limits, "_own_cgroups", lambda controller: [tmp_path])
    return tmp_path


@pytest.mark.parametrize("name", ["memory.max", "memory.limit_in_bytes"])
def test_a_group_has_less_memory_than_the_machine(group: Path, name: str) -> None:
    machine = limits.available_bytes()
    (group / name).write_text("500000000\n")
    assert limits.available_bytes() == 500_000_000
    assert limits.memory_bytes() == limits.LEAST_BYTES
    for more in ("max\n", f"{machine * 4}\n"):
        (group / name).write_text(more)
        assert limits.available_bytes() == machine


def test_a_group_has_less_time_than_the_machine_has_cores(group: Path) -> None:
    cores = limits.cores()
    (group / "cpu.max").write_text("50000 100000\n")
    assert limits.cores() == 1
    (group / "cpu.max").write_text("max 100000\n")
    assert limits.cores() == cores
    (group / "cpu.cfs_quota_us").write_text("100000\n")
    (group / "cpu.cfs_period_us").write_text("100000\n")
    assert limits.cores() == 1
    (group / "cpu.cfs_quota_us").write_text("-1\n")
    assert limits.cores() == cores


def test_groups_are_found_from_the_inside_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CGROUPS", tmp_path)
    monkeypatch.setattr(limits, "OWN_GROUPS", tmp_path / "own")
    (tmp_path / "own").write_text("5:cpu,cpuacct:/a\n4:memory:/pod/one\n0::/slice/two\n")
    below = [tmp_path / "memory" / "pod" / "one", tmp_path / "memory" / "pod", tmp_path / "memory"]
    other = [tmp_path / "slice" / "two", tmp_path / "slice", tmp_path]
    assert limits._own_cgroups("memory") == [*below, *other]
    (tmp_path / "own").unlink()
    assert limits._own_cgroups("memory") == [tmp_path, tmp_path / "memory"]


MUCH = "SELECT unnest(list(hash(range))) AS h FROM range(100_000_000)"


def test_too_little_memory_is_one_sentence_that_says_how_to_have_more() -> None:
    con = duckdb.connect(config={"memory_limit": "256MB", "temp_directory": "", "threads": 1})
    with pytest.raises(UsageError) as of_user:
        query.run(con, MUCH)
    with pytest.raises(UsageError) as of_frame:
        query.frame(con.sql(MUCH))
    with pytest.raises(UsageError) as of_rows:
        query.tuples(con, MUCH)
    con.execute(f"CREATE VIEW much AS {MUCH}")
    with pytest.raises(UsageError) as of_kept:
        query.compute_once(con, "much")
    with pytest.raises(duckdb.OutOfMemoryException) as raw:
        con.sql(MUCH).fetchall()
    ours = [str(e.value) for e in (of_user, of_frame, of_rows, of_kept)]
    for said in (*ours, failing.of_files(raw.value) or ""):
        assert said.startswith("a query needs more memory than it may have (")
        assert "244.1 MiB used): say more by RETIME_MEMORY (8GB, 75%), or connect(memory=" in said
        assert "\n" not in said
    assert "not as it should be" in (failing.of_files(duckdb.IOException("x")) or "")
