"""What rails carried, stored with a large job, is what the views compute."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from retime.ingest.keeping import slices
from retime.ingest.made import rails
from retime.ingest.manifest import Manifest, Part
from retime.ingest.schema import TABLES
from retime.ingest.store import folder
from retime.ingest.writer import PartWriter
from retime.queries import loader

ASKED = ("rail_load", "rail_imbalance", "rail_left_out")


def rows(table: str, found: list[dict]) -> pa.Table:
    columns = {c for row in found for c in row}
    return pa.Table.from_batches(
        [TABLES[table].batch({c: [row.get(c) for row in found] for c in columns})]
    )


def job(*, steps: bool) -> dict[str, pa.Table]:
    """Two hosts of two ranks: exchanges, a ring, an operation without a form, a proxy's records."""
    collectives, transfers = [], []
    for step in range(3):
        for rank in range(4):
            at = 1000 * step + 7 * rank
            common = {"rank": rank, "step": step if steps else None, "group_size": 4, "comm": "w",
                      "match": "exact", "source": "kineto"}  # fmt: skip
            for n, (op, algo) in enumerate(
                (("all_to_all", None), ("all_reduce", "ring"), ("all_gather", "collnet"))
            ):
                collectives.append({
                    **common, "op": op, "algo": algo, "collective_id": 10 * step + n,
                    "in_bytes": 4000 + step, "out_bytes": 4000, "start_ns": at + 100 * n,
                    "end_ns": at + 100 * n + 60,
                })  # fmt: skip
            transfers += [{
                "rank": rank, "measured": True, "via": "NET", "source": "inspector",
                "direction": way, "bytes": 100 + rank, "start_ns": at + shift,
                "end_ns": at + shift + 40, "nic": f"mlx5_{rank % 2}",
            } for way, shift in (("send", 0), ("recv", 15), ("send", 90))]  # fmt: skip
    return {
        "ranks": rows("ranks", [
            {"rank": r, "host": f"n{r // 2}", "clock_offset_ns": 5 * (r // 2), "clock_error_ns": 1}
            for r in range(4)
        ]),
        "steps": rows("steps", [
            {"rank": r, "step": s, "start_ns": 1000 * s, "end_ns": 1000 * s + 850}
            for r in range(4) for s in range(3) if steps
        ]),
        "comms": rows("comms", [{"comm": "w", "ranks": [0, 1, 2, 3], "size": 4}]),
        "collectives": rows("collectives", collectives),
        "transfers": rows("transfers", transfers),
    }  # fmt: skip


def routing() -> pa.Table:
    return rows("routing", [
        {"rank": r, "expert_rank": e, "step": s, "tokens": 3 * r + e + 1, "expert": e}
        for r in range(4) for e in range(4) for s in range(2)
    ])  # fmt: skip


@pytest.mark.parametrize("steps", [True, False])
def test_stored_rows_are_those_of_the_views(tmp_path: Path, monkeypatch, steps: bool):
    monkeypatch.setattr(rails, "LEAST_ROWS", 1)
    place = tmp_path / "job"
    place.mkdir()
    tables = job(steps=steps)
    files: dict[str, list[str]] = {}
    for name, table in {**tables, "routing": routing()}.items():
        pq.write_table(table, place / f"{name}.parquet")
        files[name] = [str(place / f"{name}.parquet")]
    source = Manifest(
        id="0" * 64, name="routing", sha256="", size_bytes=0, format="csv", ranks=[],
        world_sizes=[], views={}, problems={}, tool_version="", created_at_ns=0,
        tables={"routing": [Part("routing.parquet", 32, 1, "")]},
    )  # fmt: skip
    writer = PartWriter(tmp_path)
    rails.write(writer, tmp_path, slices.of(folder(place)), [source], tables)
    made = {w.table: [str(tmp_path / w.file)] for w in writer.close()}
    assert set(made) == set(rails.VIEWS)
    assert not list(tmp_path.glob("rails-*"))  # nothing is left behind
    stored = loader.connect({"j": {**files, **made}}, threads=1)
    computed = loader.connect({"j": files}, threads=1)
    for view in ASKED:
        query = f"FROM {view} ORDER BY ALL"
        found = computed.execute(query).fetchall()
        assert found
        assert [c[:2] for c in stored.execute(f"DESCRIBE {view}").fetchall()] == [
            c[:2] for c in computed.execute(f"DESCRIBE {view}").fetchall()
        ]
        assert [_rounded(r) for r in stored.execute(query).fetchall()] == [
            _rounded(r) for r in found
        ]
    assert "_computed" not in _definition(stored, "_rail_load")


def _rounded(row: tuple) -> tuple:
    """A variation is of squares of doubles, which are added up in the order of rows."""
    return tuple(round(v, 12) if isinstance(v, float) else v for v in row)


def _definition(con, view: str) -> str:
    return con.execute("SELECT sql FROM duckdb_views() WHERE view_name = ?", [view]).fetchone()[0]


def test_what_cannot_be_read_is_left_to_the_views(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(rails, "LEAST_ROWS", 1)
    place = tmp_path / "job"
    place.mkdir()
    (place / "routing.parquet").write_bytes(b"PAR1 and nothing else")
    source = Manifest(
        id="0" * 64, name="routing", sha256="", size_bytes=0, format="csv", ranks=[],
        world_sizes=[], views={}, problems={}, tool_version="", created_at_ns=0,
        tables={"routing": [Part("routing.parquet", 32, 1, "")]},
    )  # fmt: skip
    writer = PartWriter(tmp_path)
    rails.write(writer, tmp_path, slices.of(folder(place)), [source], job(steps=True))
    assert writer.close() == []


def test_a_small_job_is_left_to_the_views(tmp_path: Path):
    writer = PartWriter(tmp_path)
    rails.write(writer, tmp_path, slices.of(folder(tmp_path)), [], job(steps=True))
    assert writer.close() == []


@pytest.mark.parametrize(
    ("too_few", "limits", "made"),
    [
        (2, ["488.2 MiB", "953.6 MiB", "1.8 GiB", "488.2 MiB"], 2),
        (3, ["488.2 MiB", "953.6 MiB", "1.8 GiB"], 0),
    ],
)
def test_more_memory_is_taken_where_it_must_be(
    tmp_path: Path, monkeypatch, too_few: int, limits: list[str], made: int
):
    monkeypatch.setattr(rails, "LEAST_ROWS", 1)
    asked = []
    rows_of = rails._rows

    def scarce(con, table: str, view: str):
        asked.append(con.execute("SELECT current_setting('memory_limit')").fetchall()[0][0])
        if len(asked) <= too_few:
            raise duckdb.OutOfMemoryException("too little")
        return rows_of(con, table, view)

    monkeypatch.setattr(rails, "_rows", scarce)
    writer = PartWriter(tmp_path)
    rails.write(writer, tmp_path, slices.of(folder(tmp_path)), [], job(steps=True))
    assert len(writer.close()) == made
    assert asked == limits


def test_only_what_moved_makes_a_job_large(tmp_path: Path, monkeypatch):
    """A log tells of many links; where little went over them the views are quick enough."""
    tables = job(steps=True)
    moved = len(tables["collectives"]) + len(tables["transfers"])
    tables["steps"] = pa.concat_tables([tables["steps"]] * moved)
    place = tmp_path / "job"
    place.mkdir()

    def stored(least: int) -> list[str]:
        monkeypatch.setattr(rails, "LEAST_ROWS", least)
        writer = PartWriter(tmp_path)
        rails.write(writer, tmp_path, slices.of(folder(place)), [], tables)
        return [w.table for w in writer.close()]

    assert stored(moved + 1) == []
    assert "_made_rail_load" in stored(moved)


def test_many_files_make_a_job_large(tmp_path: Path, monkeypatch):
    """A view opens each of them many times, however few rows they have."""
    place = tmp_path / "job"
    place.mkdir()
    pq.write_table(routing(), place / "routing.parquet")
    part = Part("routing.parquet", 32, 1, "")

    def stored(files: int) -> list[str]:
        source = Manifest(
            id="0" * 64, name="routing", sha256="", size_bytes=0, format="csv", ranks=[],
            world_sizes=[], views={}, problems={}, tool_version="", created_at_ns=0,
            tables={"routing": [part] * files},
        )  # fmt: skip
        writer = PartWriter(tmp_path)
        rails.write(writer, tmp_path, slices.of(folder(place)), [source], job(steps=True))
        return [w.table for w in writer.close()]

    monkeypatch.setattr(rails, "LEAST_FILES", 3)
    assert stored(2) == []
    assert "_made_rail_load" in stored(3)
