"""Readers while a job is pruned, compacted or written anew: all of it, or one clear error."""

import shutil

import duckdb
import pytest
from retime.ingest.warehouse import Warehouse
from whole import rows, whole

WHOLE = [[36, 4], [12, 4]]
"""Rows and ranks of events and of collectives."""


@pytest.fixture(scope="module")
def made(tmp_path_factory, job, processes):
    folder = tmp_path_factory.mktemp("read") / "w"
    for path in job[0]:  # one after the other: generations that took each other's place
        assert processes.run("ingest", folder, [path], "j").error == ""
    return folder


@pytest.mark.parametrize("act", ["prune", "compact"])
@pytest.mark.parametrize("grace_s", [None, 0.0])
def test_a_reader_has_all_or_is_told(tmp_path, made, job, processes, act, grace_s):
    paths, expected = job
    warehouse = shutil.copytree(made, tmp_path / "w")
    readers = [processes.start("queries", warehouse, "j", 30) for _ in range(3)]
    said = {"grace_s": grace_s}
    came = processes.run(act, warehouse, "j", said)
    assert came.error == ""
    after = processes.run("queries", warehouse, "j", 1)
    for pid in readers:
        told, error = processes.wait(pid).result
        assert all(seen == WHOLE for seen in told)
        if grace_s is None and told:
            assert error == ""  # whoever had begun goes on
        if error:
            assert "no job" in error or "no longer there" in error or "changed" in error, error
    if act == "prune":
        assert "no jobs" in after.result[1] or "no job" in after.result[1]
        assert processes.run("ingest", warehouse, paths, "j").error == ""
    else:
        assert after.result == [[WHOLE], ""]
    whole(warehouse, "j", expected, paths)


def test_a_query_that_is_running_goes_on_while_its_files_go(tmp_path, made, processes):
    from retime.analysis.warehouse import Warehouse as Door

    warehouse = shutil.copytree(made, tmp_path / "w")
    con = Door(str(warehouse)).connect("j")
    # A row at a time, so that it is in the middle when the files go.
    reader = con.sql("SELECT e.rank FROM events e, range(100000)").to_arrow_reader(1000)
    seen = reader.read_next_batch().num_rows
    assert processes.run("prune", warehouse, "j", {"grace_s": 0.0}).result == ["pruned"]
    assert Warehouse(warehouse).jobs() == []
    for batch in reader:
        seen += batch.num_rows
    assert seen == 36 * 100_000
    with pytest.raises(Exception, match="no longer there"):
        con.sql("SELECT count(dur_ns) FROM events").fetchall()


def test_a_snapshot_is_the_same_whatever_comes_after(tmp_path, made, job, processes):
    warehouse = shutil.copytree(made, tmp_path / "w")
    before = Warehouse(warehouse).snapshot("j")
    held = rows(before)
    assert processes.run("compact", warehouse, "j", {}).error == ""
    assert processes.run("tag", warehouse, "j", "a", "1").error == ""
    assert processes.run("prune", warehouse, "j", {}).result == ["pruned"]
    assert processes.run("ingest", warehouse, job[0], "j").error == ""
    assert rows(before) == held


def test_objects_that_go_are_read_whole_or_told(in_store, job, processes):
    from retime.analysis.warehouse import Warehouse as Door

    warehouse = in_store.new("w")
    assert processes.run("ingest", warehouse, job[0], "j", **in_store.meets).error == ""
    con = Door(warehouse).connect("j")
    assert con.sql("SELECT count(DISTINCT rank) FROM events").fetchall() == [(4,)]
    came = processes.run("prune", warehouse, "j", {"grace_s": 0.0}, **in_store.meets)
    assert came.result == ["pruned"]
    for table, n in (("events", 36), ("collectives", 12)):
        try:
            found = con.sql(f"SELECT count(start_ns) FROM {table}").fetchall()
        except duckdb.Error as e:
            said = str(e)
        else:  # small files were fetched whole before
            assert found == [(n,)]
            continue
        assert "no longer there" in said
