"""Times that no run has: left out, counted, and no view fails for those that stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import retime
from hypothesis import given
from hypothesis import strategies as st
from retime.ingest.moments import LATEST_NS, LONGEST_NS, sound
from retime.ingest.run import ingest
from retime.ingest.schema import TABLES
from retime.ingest.warehouse import Warehouse
from retime.queries import manual

MOST = 2**63 - 1
NOW = 1_772_409_600 * 10**9


def kept(table: str, rows: list[dict[str, Any]]) -> tuple[list[dict], Any]:
    columns = {c: [r.get(c) for r in rows] for c in rows[0]}
    batch, odd = sound(table, TABLES[table].batch(columns))
    assert batch.schema == TABLES[table].schema
    return batch.select(list(rows[0])).to_pylist(), odd


def event(start: int | None, dur: int | None) -> dict[str, Any]:
    return {"rank": 3, "start_ns": start, "dur_ns": dur}


GOOD = [event(NOW, 5), event(-5, 0), event(None, 4), event(0, None), event(LATEST_NS, LONGEST_NS)]


def test_what_a_run_can_have_stays() -> None:
    assert kept("events", GOOD) == (GOOD, None)


@pytest.mark.parametrize(
    "bad", [event(MOST, 0), event(-MOST - 1, 0), event(NOW, MOST), event(NOW, -MOST - 1),
            event(LATEST_NS + 1, 0), event(NOW, LONGEST_NS + 1)],
)  # fmt: skip
def test_events_beyond_it_are_left_out_and_counted(bad: dict[str, Any]) -> None:
    rows, odd = kept("events", [*GOOD, bad, bad])
    assert rows == GOOD
    assert (odd.code, odd.severity, odd.count, odd.rank) == ("time_out_of_range", "lost", 2, 3)


def test_a_participation_keeps_all_but_its_times() -> None:
    def part(start: int | None, end: int | None) -> dict[str, Any]:
        return {"rank": 1, "seq": 7, "start_ns": start, "end_ns": end}

    good = [part(NOW, NOW + 9), part(None, NOW), part(NOW, None), part(None, None)]
    assert kept("collectives", good) == (good, None)
    for bad in (part(NOW, MOST), part(-MOST - 1, MOST), part(0, NOW), part(MOST, None)):
        rows, odd = kept("collectives", [*good, bad])
        assert rows == [*good, part(None, None)]
        assert odd.count == 1


MOMENTS = st.one_of(st.integers(-MOST - 1, MOST), st.sampled_from([0, NOW, MOST, -MOST - 1]))


@given(st.lists(st.builds(event, MOMENTS, MOMENTS), min_size=1, max_size=9))
def test_ends_of_what_stays_fit_in_64_bits(rows: list[dict[str, Any]]) -> None:
    for row in kept("events", rows)[0]:
        assert abs(row["start_ns"] + row["dur_ns"]) <= MOST
    stays = [r for r in rows if abs(r["start_ns"]) <= LATEST_NS and abs(r["dur_ns"]) <= LONGEST_NS]
    assert kept("events", rows)[0] == stays


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(tmp_path / "w")


@pytest.mark.parametrize("beyond", [MOST, -MOST - 1])
def test_a_source_with_such_times_is_ingested_and_every_view_answers(
    tmp_path: Path, traces: Any, warehouse: Any, beyond: int
) -> None:
    traces(tmp_path / "in" / "0.fake", 0)
    traces(tmp_path / "in" / "1.fake", 1, rows=2500, beyond=beyond)
    assert ingest(warehouse, tmp_path / "in", job="j").exit_code == 1
    job = retime.open(warehouse.path).job("j")
    (lost,) = job.problems().filter(severity="lost").to_dicts()
    assert (lost["code"], lost["rank"], lost["count"]) == ("time_out_of_range", 1, 2500)
    assert lost["source"].endswith("1.fake")
    assert job.sql("SELECT rank, count(*) AS n FROM events GROUP BY rank").rows() == [(0, 10)]
    for view in (e for e in manual.objects() if e.kind == "view"):
        job.sql(f"FROM {view.name}")
