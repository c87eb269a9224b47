"""What was odd about inputs that became no source stays in the job's problems."""

from retime.ingest.run import ingest
from retime.ingest.warehouse import Warehouse


def told(warehouse, rows):
    found = rows(Warehouse(warehouse).snapshot("j"), "problems")
    return {(r["source"].rpartition("/")[2], r["severity"], r["code"], r["count"])
            for r in found if r["source"]}  # fmt: skip


def test_files_that_are_no_traces_and_failed_ones_are_remembered(tmp_path, traces, rows, tree):
    folder = tmp_path / "in"
    traces(folder / "rank0.fake", 0)
    (folder / "notes.txt").write_text("hello")
    (folder / "x.json").write_text("{")
    (folder / "empty.json").write_text("")
    traces(folder / "bad.fake", 1, unusable=True)
    ingest(tmp_path / "w", str(folder), job="j")
    first = told(tmp_path / "w", rows)
    assert first == {
        ("notes.txt", "info", "not_a_trace", 1),
        ("x.json", "warning", "not_a_trace", 1),
        ("empty.json", "warning", "empty_file", 1),
        ("bad.fake", "lost", "unusable", 1),
    }
    before = tree(tmp_path / "w")
    ingest(tmp_path / "w", str(folder), job="j")
    # The one that fails is tried again, which leaves nothing but the time of its folder.
    assert {k: v for k, v in tree(tmp_path / "w").items() if "_incoming" not in k} == {
        k: v for k, v in before.items() if "_incoming" not in k
    }


def test_what_became_a_source_since_is_no_problem_any_more(tmp_path, traces, rows):
    folder = tmp_path / "in"
    traces(folder / "rank0.fake", 0)
    traces(folder / "rank1.fake", 1, unusable=True)
    ingest(tmp_path / "w", str(folder), job="j")
    assert told(tmp_path / "w", rows) == {("rank1.fake", "lost", "unusable", 1)}
    traces(folder / "rank1.fake", 1)
    (folder / "later.txt").write_text("?")
    ingest(tmp_path / "w", str(folder), job="j")
    assert told(tmp_path / "w", rows) == {("later.txt", "info", "not_a_trace", 1)}


def test_they_count_neither_as_sources_nor_as_a_format(tmp_path, traces, rows):
    traces(tmp_path / "in" / "rank0.fake", 0)
    (tmp_path / "in" / "notes.txt").write_text("hello")
    ingest(tmp_path / "w", str(tmp_path / "in"), job="j")
    (job,) = rows(Warehouse(tmp_path / "w").snapshot("j"), "jobs")
    assert (job["sources"], job["framework"]) == (1, "fake")
