"""Tables read from a SQLite file's pages are those that SQLite gives, on whatever file."""

import random
import sqlite3
from pathlib import Path

import pyarrow as pa
import pytest
from retime.ingest.errors import UnusableInput
from retime.ingest.nsys import btree, sqlite
from retime.ingest.nsys.columns import READ
from retime.ingest.nsys.tables import Report


@pytest.fixture
def read(monkeypatch):
    """`read(path, pages)`: (rows by table, problems), and how many tables the pages gave whole."""

    def one(path, pages):
        told, whole = [], []

        def batches(*args):
            yield from btree.batches(*args)
            whole.append(args[1])

        monkeypatch.setattr(sqlite, "SMALL_BYTES", 0 if pages else 1 << 60)
        monkeypatch.setattr(sqlite, "BATCH_ROWS", 100)
        monkeypatch.setattr(sqlite, "batches", batches)
        if not pages:
            monkeypatch.setattr(sqlite, "Pages", _none)

        def odd(*args, **more):
            told.append((args, tuple(sorted(more.items()))))

        try:
            tables = sqlite.SqliteTables(Path(path), "x", odd)
        except UnusableInput as e:
            monkeypatch.undo()
            return {}, [str(e)], 0
        report = Report(tables, odd)
        out = {t: list(report.batches(t)) for t in READ}
        tables.close()
        monkeypatch.undo()
        return out, told, len(whole)

    return one


def _none(path):
    raise btree.NotPlain


def same(read, path):
    """Whether both ways agree, asserted; how many tables the pages gave whole."""
    quick, told, whole = read(path, True)
    slow, wanted, _ = read(path, False)
    assert told == wanted
    assert set(quick) == set(slow)
    for table, batches in slow.items():
        assert [b.num_rows for b in quick[table]] == [b.num_rows for b in batches], table
        for a, b in zip(quick[table], batches, strict=True):
            assert a.equals(b), table
    return whole


def test_real_exports(read, retime_traces):
    found = sorted((retime_traces / "nsys").rglob("*.sqlite"))
    assert found
    for path in found:
        assert same(read, path) > 5


VALUES = (None, 0, 1, -1, 127, 128, -129, 1 << 15, -(1 << 23), 1 << 31, -(1 << 40), 1 << 47,
          1 << 55, (1 << 63) - 1, -(1 << 63), 0.5, -3.0, 1e15, 4e18, 1e300, float("inf"), "", "a",
          "ä" * 40, "7", b"", b"\0\xff", b"x" * 200)  # fmt: skip


def made(path, n, page=4096, columns=None, pragma="", seed=1, values=VALUES):
    """A table of launches and one of metrics with values of every kind."""
    db = sqlite3.connect(path)
    db.executescript(f"PRAGMA page_size={page}; {pragma}")
    rng = random.Random(seed)
    names = columns or "start, [end], globalTid INTEGER, correlationId TEXT, nameId BLOB"
    db.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (more, {names})")
    db.execute("CREATE TABLE GPU_METRICS (timestamp INT, typeId, metricId, value)")
    db.execute("CREATE TABLE NVTX_EVENTS (start, text TEXT, binaryData, extra, jsonText BLOB)")
    for _ in range(n):
        row = [rng.choice(values) for _ in range(6)]
        db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?,?,?,?,?,?)", row)
        db.execute("INSERT INTO GPU_METRICS VALUES (?,?,?,?)", row[:4])
        db.execute("INSERT INTO NVTX_EVENTS VALUES (?,?,?,?,?)", row[:5])
    db.commit()
    return db


@pytest.mark.parametrize("page", [512, 1024, 4096, 65536])
def test_values_of_every_kind(read, tmp_path, page):
    made(tmp_path / "x", 700, page).close()
    whole = same(read, tmp_path / "x")
    # Records outgrow small pages.
    assert page < 4096 or whole == 3


def test_rows_that_were_deleted_and_written_in_any_order(read, tmp_path):
    db = made(tmp_path / "x", 900)
    db.execute("DELETE FROM NVTX_EVENTS WHERE rowid % 3 = 0")
    db.execute("UPDATE NVTX_EVENTS SET text = 'longer than it was before' WHERE rowid % 7 = 0")
    for i in (-5, 1 << 40, 450):
        db.execute(f"INSERT OR REPLACE INTO NVTX_EVENTS (rowid, start) VALUES ({i}, 1)")
    db.commit()
    db.close()
    assert same(read, tmp_path / "x") == 3


def test_a_table_without_rows(read, tmp_path):
    made(tmp_path / "x", 0).close()
    same(read, tmp_path / "x")


@pytest.mark.parametrize(
    ("columns", "pragma"),
    [
        ("start INTEGER PRIMARY KEY, [end], globalTid, correlationId, nameId", ""),
        ("start REAL, [end] DOUBLE, globalTid FLOAT, correlationId, nameId", ""),
        ("start, [end], globalTid, correlationId, nameId", "PRAGMA encoding='UTF-16'"),
        ("start, [end], globalTid, correlationId, nameId", "PRAGMA auto_vacuum=1"),
    ],
)
def test_tables_that_sqlite_reads_in_its_own_way(read, tmp_path, columns, pragma):
    values = tuple(range(5000)) if "KEY" in columns else VALUES
    rng = iter(range(10**6))
    if "KEY" in columns:
        db = made(tmp_path / "x", 0, columns=columns, pragma=pragma)
        db.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?,?,?,?,?,?)",
                       [(1, next(rng), 2, 3, 4, 5) for _ in range(300)])  # fmt: skip
        db.commit()
        db.close()
    else:
        made(tmp_path / "x", 300, columns=columns, pragma=pragma, values=values).close()
    same(read, tmp_path / "x")


def test_columns_that_were_added_and_computed_ones(read, tmp_path):
    db = made(tmp_path / "x", 150)
    db.execute("ALTER TABLE NVTX_EVENTS ADD COLUMN textId INT DEFAULT 9")
    db.execute("ALTER TABLE GPU_METRICS ADD COLUMN x AS (1)")
    db.execute("INSERT INTO NVTX_EVENTS (start, textId) VALUES (1, 2)")
    db.commit()
    db.close()
    same(read, tmp_path / "x")


def test_a_record_on_several_pages_after_many_that_are_not(read, tmp_path):
    db = made(tmp_path / "x", 500)
    db.execute("INSERT INTO NVTX_EVENTS (start, text) VALUES (1, ?)", ("long " * 5000,))
    db.execute("INSERT INTO NVTX_EVENTS (start, text) VALUES (2, 'last')")
    db.commit()
    db.close()
    assert same(read, tmp_path / "x") == 2


def test_damaged_files_go_the_same_way(read, tmp_path):
    rng = random.Random(6)
    made(tmp_path / "x", 200, 1024, values=VALUES[:24]).close()
    data = (tmp_path / "x").read_bytes()
    n_pages = len(data) // 1024
    whole = 0
    for case in range(40):
        new = bytearray(data)
        for _ in range(rng.choice([1, 1, 3])):
            page = rng.randrange(1, n_pages)
            # The first bytes of a page say what it is and where its records are.
            at = rng.randrange(rng.choice([12, 60, 1024]))
            new[1024 * page + at] = rng.choice([0, 1, 5, 13, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        if case % 10 == 0:
            del new[rng.randrange(2048, len(new)) :]
        path = tmp_path / f"y{case}"
        path.write_bytes(new)
        whole += same(read, path)
        path.unlink()
    assert whole > 20


def test_a_tree_that_goes_round_in_circles_is_left_to_sqlite(tmp_path):
    made(tmp_path / "x", 700, 512).close()
    db = sqlite3.connect(tmp_path / "x")
    root = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'GPU_METRICS'").fetchone()[0]
    db.close()
    data = bytearray((tmp_path / "x").read_bytes())
    at = (root - 1) * 512
    data[at + 8 : at + 12] = root.to_bytes(4, "big")
    (tmp_path / "x").write_bytes(data)
    pages = btree.Pages(tmp_path / "x")
    stored = [btree.Stored(n, "", False, False)
              for n in ("timestamp", "typeId", "metricId", "value")]  # fmt: skip
    with pytest.raises(btree.NotPlain):
        list(btree.batches(pages, root, stored, {"typeId": "int"}, 100))
    pages.close()


def test_batches_are_what_sqlite_gives(tmp_path):
    made(tmp_path / "x", 250).close()
    told = []
    tables = sqlite.SqliteTables(tmp_path / "x", "x", lambda *a, **m: told.append(a))
    pages = btree.Pages(tmp_path / "x")
    root, stored = tables._stored["GPU_METRICS"]
    got = list(btree.batches(pages, root, stored, READ["GPU_METRICS"], 100))
    assert [b.num_rows for b in got] == [100, 100, 50]
    assert got[0].schema.types == [pa.int64(), pa.int64(), pa.int64(), pa.float64()]
    pages.close()
    tables.close()
