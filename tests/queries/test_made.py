"""What is stored of views is what they compute, row by row, whatever happens in a job."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from retime.ingest import sorting
from retime.ingest.made import beside, causes, collectives, events, grouped, make, overlap, parts
from retime.queries import loader

sys.path.insert(0, str(Path(__file__).parent))

import made_up

SEEDS = range(8)


@pytest.fixture
def by_parts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Ranks are looked at by parts of a few events; gives how many there were of each."""
    monkeypatch.setattr(events, "HELD_ROWS", 5)
    monkeypatch.setattr(make, "MOST_WHOLE_ROWS", 0)
    for name, rows in {"PART_ROWS": 1, "PIECE_ROWS": 3}.items():
        monkeypatch.setattr(parts, name, rows)
    sizes = {"RUN_ROWS": 8, "LEAST_RUN_ROWS": 4, "MARK_ROWS": 2, "MERGED_ROWS": 4, "BLOCK_ROWS": 4}
    for name, rows in sizes.items():
        monkeypatch.setattr(sorting, name, rows)
    monkeypatch.setattr(overlap, "BLOCK_ROWS", 3)
    monkeypatch.setattr(grouped, "PIECE_ROWS", 3)
    monkeypatch.setattr(beside, "LEAST_ROWS", 1)
    seen: list[int] = []
    of_rank = parts.Large.parts

    def counted(*asked):
        found = list(of_rank(*asked))
        seen.append(len(found))
        return iter(found)

    monkeypatch.setattr(parts.Large, "parts", counted)
    return seen


@pytest.mark.parametrize("seed", SEEDS)
def test_a_rank_by_parts_of_its_time_is_the_same(tmp_path: Path, monkeypatch, request, seed: int):
    monkeypatch.setattr(beside, "LEAST_ROWS", 1)
    _, whole = made_up.written(tmp_path / "whole", made_up.job(seed))
    seen = request.getfixturevalue("by_parts")
    _, made = made_up.written(tmp_path / "parts", made_up.job(seed))
    assert made.keys() == whole.keys()
    for table, files in whole.items():
        assert [pq.read_table(f).to_pylist() for f in made[table]] == [
            pq.read_table(f).to_pylist() for f in files
        ], table
    assert seed != 3 or max(seen) > 1


@pytest.mark.parametrize("seed", SEEDS)
def test_stored_rows_are_those_that_are_computed(tmp_path: Path, monkeypatch, seed: int):
    monkeypatch.setattr(collectives, "MANY_PARTICIPATIONS", 1)
    files, made = made_up.written(tmp_path / "j", made_up.job(seed))
    assert "_made_breakdown" in made  # nothing in these jobs is left to the views
    stored = loader.connect({"j": {**files, **made}}, threads=1)
    computed = loader.connect({"j": files}, threads=1)
    for view, table in loader.STORED.items():
        if table not in made:
            continue
        shape = computed.execute(f"DESCRIBE _{view}").fetchall()
        assert {c[:2] for c in stored.execute(f"DESCRIBE _{view}").fetchall()} == {
            c[:2] for c in shape
        }
        rows = f"SELECT {', '.join(c[0] for c in shape)} FROM _{view} ORDER BY ALL"
        assert stored.execute(rows).fetchall() == computed.execute(rows).fetchall(), view


def test_said_categories_are_followed(tmp_path: Path):
    files, made = made_up.written(tmp_path / "j", made_up.job(3))
    said = {"j": {"gemm": "comm"}}
    stored = loader.connect({"j": {**files, **made}}, categories=said, threads=1)
    computed = loader.connect({"j": files}, categories=said, threads=1)
    for view in ("step_breakdown", "kernel_stats", "idle_gaps", "step_composition", "waits"):
        rows = f"FROM {view} ORDER BY ALL"
        assert stored.execute(rows).fetchall() == computed.execute(rows).fetchall()


def test_names_are_those_of_the_library():
    text = "".join(loader.library())
    for part in causes.LOADING_RANGE.split("|(^|")[1:]:
        assert part in text
    assert causes.LOADING_FRAME in text
    assert causes.LOADING_BEGINS in text
    assert all(f"'{name}'" in text for name in causes.BLOCKING)


def test_jobs_with_and_without_stored_rows_are_read_together(tmp_path: Path):
    one, made = made_up.written(tmp_path / "a", made_up.job(8))
    other, _ = made_up.written(tmp_path / "b", made_up.job(2))
    both = loader.connect({"a": {**one, **made}, "b": other}, threads=1)
    plain = loader.connect({"a": one, "b": other}, threads=1)
    for view in ("step_breakdown", "overlap", "idle_gaps", "waits", "late_ranks", "kernel_stats",
                 "_explained"):  # fmt: skip
        rows = f"FROM {view} ORDER BY ALL"
        assert both.execute(rows).fetchall() == plain.execute(rows).fetchall()


@pytest.mark.parametrize(
    ("table", "values"),
    [
        ("events", {"start_ns": 2**63 - 5}),
        ("events", {"start_ns": -(2**63) + 1}),
        ("events", {"dur_ns": 2**62}),
        ("collectives", {"start_ns": 2**62 + 3, "end_ns": 2**63 - 1}),
        ("collectives", {"in_bytes": 2**62, "out_bytes": None, "op": "all_gather"}),
        ("ranks", {"clock_offset_ns": 2**63 - 1}),
        ("ranks", {"clock_drift_ppm": math.nan}),
        ("ranks", {"clock_drift_ppm": math.inf}),
        ("ranks", {"clock_drift_ppm": 1e300}),
        ("ranks", {"start_ns": -(2**62), "end_ns": 2**62 + 7, "clock_drift_ppm": 1.0}),
    ],
)
def test_numbers_that_overflow_are_left_to_the_views(tmp_path: Path, table: str, values: dict):
    job = made_up.job(3)
    for row in job[table]:
        row.update(values)
    _, made = made_up.written(tmp_path / "j", job)
    assert not made


@pytest.mark.parametrize("seed", [0, 8, 9])
def test_causes_from_stored_time_are_those_from_all_work(tmp_path: Path, seed: int):
    files, made = made_up.written(tmp_path / "j", made_up.job(seed))
    stored = loader.connect({"j": {**files, **made}}, threads=1)
    computed = loader.connect({"j": files}, threads=1)
    rows = "FROM _explained ORDER BY ALL"
    found = stored.execute(rows).fetchall()
    assert found
    assert found == computed.execute(rows).fetchall()
    # Seed 0 has ranks without a device: the walk along their work is still asked of the views.
    assert ("_made_covered" in made) == (seed > 0)


def test_what_is_stored_is_not_held_in_memory(tmp_path: Path):
    files, made = made_up.written(tmp_path / "j", made_up.job(8))
    for its, held in ((files, {"waits", "_activity", "_accounts"}), ({**files, **made}, set())):
        con = loader.connect({"j": its}, threads=1)
        loader.materialise(con)
        kept = con.execute("SELECT table_name FROM duckdb_tables()").fetchall()
        assert {name.removeprefix("_kept_") for (name,) in kept} == held
