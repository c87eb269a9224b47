"""Reports that are not what they seem: views, triggers, cut and damaged files, traps in folders."""

import random
import re
import sqlite3
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from retime.ingest import arrow_in
from retime.ingest.detect import detect
from retime.ingest.errors import RetimeError, UnusableInput
from retime.ingest.nsys import recipe, report, stats
from retime.ingest.run import ingest

MFU = "nsys/nsys-ai/mfu_2gpu_before.sqlite"
MOCK = "nsys/nsys-ai/mock.sqlite"
SAXPY = "nsys/pipit/saxpy-mpi-cuda_nsys_perlmutter0.sqlite"


@pytest.fixture
def small(nsys, tmp_path):
    """A small sound report that can be spoilt: its path."""
    g, t = nsys.gid(100), nsys.gid(100, 100)
    kernels = [(1000 * i, 1000 * i + 500, 0, 1, 7, i, g, 1, 1, 1, 1, 1, 1, 1, 1) for i in range(50)]
    return nsys.make(
        tmp_path / "small_rank0.sqlite", StringIds=[(1, "gemm"), (2, "nccl")],
        CUPTI_ACTIVITY_KIND_KERNEL=kernels, NVTX_EVENTS=[(1, 2, 59, "a", t)],
        CUPTI_ACTIVITY_KIND_RUNTIME=[(1, 2, 0, t, 1, 2, 0)],
        TARGET_INFO_SESSION_START_TIME=[(1_700_000_000_000_000_000, "")],
    )  # fmt: skip


def spoil(path, *statements):
    db = sqlite3.connect(path)
    for s in statements:
        db.execute(s)
    db.commit()
    db.close()


def kinds(out, kind):
    return [e for e in out.get("events", []) if e["kind"] == kind]


def test_a_view_of_an_expected_name_is_refused(nsys, small):
    spoil(
        small,
        "DROP TABLE NVTX_EVENTS",
        # would give rows without end
        "CREATE VIEW NVTX_EVENTS AS WITH RECURSIVE n(start) AS (SELECT 1 UNION ALL SELECT "
        "start + 1 FROM n) SELECT start, start + 1 AS end, 59 AS eventType, 'x' AS text, "
        f"{nsys.gid(100, 100)} AS globalTid FROM n",
    )
    out = nsys.read(small)
    assert not kinds(out, "annotation")
    assert len(kinds(out, "kernel")) == 50
    said = nsys.problems(out)["view_refused"]
    assert said["severity"] == "lost"
    assert "NVTX_EVENTS is a view" in said["message"]


def test_a_virtual_table_is_refused(nsys, small):
    spoil(
        small, "DROP TABLE NVTX_EVENTS",
        "CREATE VIRTUAL TABLE NVTX_EVENTS USING fts5(start, text, globalTid)",
    )  # fmt: skip
    out = nsys.read(small)
    assert "virtual table" in nsys.problems(out)["view_refused"]["message"]


def test_generated_columns_and_triggers_do_nothing(nsys, small):
    spoil(
        small,
        "DROP TABLE StringIds",
        "CREATE TABLE StringIds (id INTEGER, value TEXT AS (zeroblob(999999999)))",
        "INSERT INTO StringIds (id) VALUES (1)",
        "CREATE TRIGGER t AFTER INSERT ON NVTX_EVENTS BEGIN DELETE FROM NVTX_EVENTS; END",
        "CREATE INDEX lie ON CUPTI_ACTIVITY_KIND_KERNEL (start, end) WHERE start < 0",
    )
    before = small.read_bytes()
    out = nsys.read(small)
    assert {e["name"] for e in kinds(out, "kernel")} == {"unknown kernel 1"}
    assert len(kinds(out, "kernel")) == 50
    assert small.read_bytes() == before


def test_the_file_and_its_folder_stay_as_they_are(nsys, small):
    before = sorted(p.name for p in small.parent.iterdir()), small.stat().st_mtime_ns
    nsys.read(small)
    assert (sorted(p.name for p in small.parent.iterdir()), small.stat().st_mtime_ns) == before


def test_a_name_with_marks_of_its_own(nsys, small):
    odd = small.with_name("a%41?mode=rwc&x#y_rank0.sqlite")
    small.rename(odd)
    assert len(kinds(nsys.read(odd), "kernel")) == 50
    assert [p.name for p in odd.parent.iterdir()] == [odd.name]


def test_values_of_other_types(nsys, small):
    """SQLite stores any type in any column: what cannot be meant is null, the rest stays."""
    spoil(
        small,
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, end, globalPid, shortName, streamId, gridX)"
        f" VALUES (90000.0, 90001, {nsys.gid(100)}, x'01', 'seven', 1e300)",
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, end, globalPid)"
        f" VALUES ('soon', 90001, {nsys.gid(100)})",
        "INSERT INTO StringIds VALUES (3, x'ff41')",
    )
    out = nsys.read(small)
    late = [e for e in kinds(out, "kernel") if e["start_ns"] % 10**9 == 90000]
    assert [(e["stream"], e["grid_blocks"], e["name"]) for e in late] == [
        (None, None, "unknown kernel")
    ]
    assert nsys.problems(out)["row_without_time"]["count"] == 1


def test_a_cut_file_gives_what_is_there(nsys, retime_traces, tmp_path):
    whole = (retime_traces / MFU).read_bytes()
    path = tmp_path / "cut_rank0.sqlite"
    path.write_bytes(whole[: len(whole) // 2])
    out = nsys.read(path)
    assert 0 < len(out["events"]) < 32255
    assert "lost" in {p["severity"] for p in out["problems"]}
    assert "kept" in nsys.problems(out)["damaged_table"]["message"]


def test_damaged_pages_lose_what_is_on_them(nsys, retime_traces, tmp_path):
    data = bytearray((retime_traces / MFU).read_bytes())
    for page in range(200, 400, 40):
        data[page * 4096 : page * 4096 + 4096] = b"\xa5" * 4096
    path = tmp_path / "damaged.sqlite"
    path.write_bytes(data)
    out = nsys.read(path, rank=None)
    assert out["events"]
    assert nsys.problems(out)["damaged_table"]["severity"] == "lost"


@pytest.mark.parametrize(
    "content",
    [
        b"SQLite format 3\0", b"SQLite format 3\0" + b"\0" * 5000, b"SQLite format 3\0" + b"x" * 99,
        b"", b"{}", b'{"table": "StringIds"', b'{"table": 5}\n' * 9, b"[" * 10**6,
        b'{"table": "NVTX_EVENTS", "x": ' + b"[" * 10**5,
        b'{"table": "NVTX_EVENTS", "start": 1e999, "end": "' + b"9" * 10**5 + b'"}',
    ],
)  # fmt: skip
def test_nothing_usable_is_said_so(nsys, tmp_path, content):
    path = tmp_path / "x_rank0.sqlite"
    path.write_bytes(content or b" ")
    with pytest.raises(UnusableInput):
        nsys.read(path)


def test_a_report_that_was_not_exported_gives_the_command(nsys, tmp_path):
    path = tmp_path / "job.3.nsys-rep"
    path.write_bytes(b"\x01\x00binary")
    source = nsys.source(path)
    assert detect(source) == "nsys"
    with pytest.raises(UnusableInput, match=re.escape(
        "nsys export --type sqlite --include-blobs=true -o job.3.sqlite job.3.nsys-rep"
    )):  # fmt: skip
        nsys.read(path)
    old = tmp_path / "old.json"
    old.write_text('{"Type":79,"CudaEvent":{"startNs":"1"}}\n')
    assert detect(nsys.source(old)) == "nsys"
    with pytest.raises(UnusableInput, match="export it anew"):
        nsys.read(old)


def test_other_files_are_not_taken(nsys, retime_traces, tmp_path):
    other = tmp_path / "other.db"
    spoil(other, "CREATE TABLE NOTES (a)", "INSERT INTO NOTES VALUES (1)")
    heads = {
        "other.sqlite": other.read_bytes(), "README.md": b"# Nsight Systems\nnsys export",
        "x.nsys-rep.txt": b"plain", "trace.json": b'{"traceEvents": []}',
        "a.parquet": b"PAR1....", "b.csv": b"Start,Duration\n1,2\n",
    }  # fmt: skip
    for name, head in heads.items():
        for reader in (report, recipe, stats):
            assert not reader.looks_like(head, name), (name, reader)
    outgrown = b"SQLite format 3\0".ljust(100) + b"\x05" + b"\0" * 4000
    assert report.looks_like(outgrown, "job.sqlite")
    assert not report.looks_like(outgrown, "job.db")
    for path in ("a/trace.parquet", "a/data.arrow", "StringIds.parquet", "x/StringIds.csv"):
        assert report.bundle_of(path) is None
        assert recipe.bundle_of(path) is None
    assert report.bundle_of("a.zip!r_pqtdir/UnwindMethodType.parquet") == "a.zip!r_pqtdir"
    assert report.bundle_of("/x/y/StringIds.arrow") == "/x/y"


def folder(tmp_path, **tables):
    place = tmp_path / "r_rank0_pqtdir"
    place.mkdir()
    for name, content in tables.items():
        if isinstance(content, bytes):
            (place / f"{name}.parquet").write_bytes(content)
        else:
            pq.write_table(content, place / f"{name}.parquet")
    return place


def test_a_folder_with_damaged_and_odd_tables(nsys, tmp_path):
    g = nsys.gid(100)
    kernels = pa.table(
        {
            "start": pa.array([1, 2], pa.uint32()), "end": pa.array([5.0, None]),
            "globalPid": pa.array([g, g], pa.uint64()), "shortName": pa.array(["1", "x"]),
            "deviceId": pa.array([True, False]), "streamId": pa.array([[1], [2]]),
        }
    )  # fmt: skip
    place = folder(
        tmp_path, CUPTI_ACTIVITY_KIND_KERNEL=kernels, NVTX_EVENTS=b"PAR1 no more",
        StringIds=pa.table({"id": [1, None, 1], "value": ["gemm", "b", "second"]}),
    )  # fmt: skip
    out = nsys.read(place)
    assert [(e["start_ns"], e["dur_ns"], e["name"], e["stream"]) for e in out["events"]] == [
        (1, 4, "gemm", None), (2, 0, "unknown kernel", None),
    ]  # fmt: skip
    said = nsys.problems(out)
    assert said["damaged_table"]["severity"] == "lost"
    assert said["wrong_type"]["count"] == 3


def test_more_rows_than_bytes_can_hold(nsys, tmp_path):
    n = 40_000_000
    one = pa.array([7], pa.int64())
    many = pa.DictionaryArray.from_arrays(pa.nulls(n, pa.int8()).fill_null(0), one)
    place = folder(tmp_path, CUPTI_ACTIVITY_KIND_KERNEL=pa.table({"start": many}))
    with pytest.raises(UnusableInput):
        nsys.read(place)


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_a_long_name_in_every_row_is_cut_off_where_it_outgrows_the_file(
    nsys, tmp_path, monkeypatch, kind
):
    monkeypatch.setattr(arrow_in, "FREE_BYTES", 4 << 20)
    n, long = 65536, "x" * 40_000
    text = pa.DictionaryArray.from_arrays(pa.nulls(n, pa.int8()).fill_null(0), pa.array([long]))
    ranges = pa.table(
        {"start": range(n), "end": range(1, n + 1), "eventType": [59] * n,
         "globalTid": [nsys.gid(100, 100)] * n, "text": text}
    )  # fmt: skip
    place = folder(tmp_path, StringIds=pa.table({"id": [1], "value": ["k"]}))
    if kind == "parquet":
        path = place / "NVTX_EVENTS.parquet"
        pq.write_table(ranges, path, compression="zstd")
    else:
        path = place / "NVTX_EVENTS.arrow"
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_file(str(path), ranges.schema, options=options) as f:
            f.write_table(ranges)
    before, most, kept = pa.total_allocated_bytes(), 0, 0
    for table, batch in report.parse(nsys.source(place)):
        most = max(most, pa.total_allocated_bytes() - before)
        kept += batch.num_rows if table == "events" else 0
        if table == "problems":
            said = {r["code"]: r for r in batch.to_pylist()}
    size = path.stat().st_size
    assert said["damaged_table"]["severity"] == "lost"
    assert f"{size} bytes gave over" in said["damaged_table"]["message"]
    # A row takes 40,032 bytes at most, and a piece of 16 MB is read whole or not at all.
    allowed = ((4 << 20) + 100 * size) // 40_032
    assert allowed - 500 < kept <= allowed + 5
    assert most < 256 << 20


def test_tables_that_cannot_be_put_together_are_unusable(nsys, small, monkeypatch):
    def fails(parts):
        raise pa.ArrowCapacityError("array cannot contain more than 2147483646 bytes")

    monkeypatch.setattr("retime.ingest.nsys.tables._whole", fails)
    with pytest.raises(UnusableInput, match=r"put together .*2147483646 bytes"):
        nsys.read(small)


def test_arrow_offsets_that_point_elsewhere(nsys, tmp_path):
    place = tmp_path / "r_rank0_arwdir"
    place.mkdir()
    lie = pa.StringArray.from_buffers(
        2, pa.py_buffer(b"\0\0\0\0\xff\xff\xff\x7f\2\0\0\0"), pa.py_buffer(b"ab")
    )
    table = pa.RecordBatch.from_arrays([pa.array([1, 2]), lie], ["id", "value"])
    with pa.ipc.new_file(str(place / "StringIds.arrow"), table.schema) as f:
        f.write_batch(table)
    with pytest.raises(UnusableInput):
        nsys.read(place)


def mutations(data, seed, n):
    """Copies with bytes changed, cut, repeated or set to all ones, always the same for a seed."""
    rng = random.Random(seed)
    for _ in range(n):
        out = bytearray(data)
        for _ in range(rng.choice((1, 3, 20))):
            at = rng.randrange(len(out) or 1)
            kind = rng.randrange(4)
            if kind == 0 and out:
                out[at] = rng.randrange(256)
            elif kind == 1:
                out[at : at + 8] = bytes([rng.choice((0, 0x7F, 0x80, 0xFF))]) * 8
            elif kind == 2:
                length = rng.randrange(1, 200)
                out[at : at + length] = out[-length:]
            else:
                del out[at : at + rng.randrange(1, 4096)]
        if not rng.randrange(6):
            del out[rng.randrange(len(out) or 1) :]
        yield bytes(out)


@pytest.mark.parametrize("file", ["small", MOCK])
def test_mutated_reports_end_in_rows_or_an_error(nsys, small, retime_traces, tmp_path, file):
    data = small.read_bytes() if file == "small" else (retime_traces / file).read_bytes()
    path = tmp_path / "mutated_rank0.sqlite"
    read = refused = 0
    for mutated in mutations(data, 1, 60):
        path.write_bytes(mutated)
        try:
            read += bool(nsys.read(path))
        except RetimeError:
            refused += 1
    assert read > 5
    assert read + refused == 60


def test_a_report_beside_its_own_export_is_no_loss(tmp_path, retime_traces):
    real = retime_traces / "nsys" / "nsys-ai" / "mfu_2gpu_before.sqlite"
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "run.sqlite").write_bytes(real.read_bytes())
    (tmp_path / "in" / "run.nsys-rep").write_bytes(b"\x01\x02\0\0binary")
    done = ingest(tmp_path / "w", str(tmp_path / "in"), job="j")
    status = {Path(s.name).name: (s.status, [p.code for p in s.problems]) for s in done.sources}
    assert status["run.sqlite"][0] == "new"
    assert status["run.nsys-rep"] == ("already", ["spare"])
    (tmp_path / "in" / "other.nsys-rep").write_bytes(b"\x01\x02\0\0binary")
    done = ingest(tmp_path / "w", str(tmp_path / "in"), job="j")
    failed = [s for s in done.sources if s.status == "failed"]
    assert [Path(s.name).name for s in failed] == ["other.nsys-rep"]
    assert "nsys export" in str(failed[0].error)
