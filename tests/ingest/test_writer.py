"""The thread that writes Parquet: what waits for it is bounded, and all of it is written."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from retime.ingest import writer
from retime.ingest.schema import TABLES
from retime.ingest.writer import PartWriter


def batch(n: int):
    return TABLES["counters"].batch({"name": ["a"] * n, "value": [1.0] * n, "time_ns": range(n)})


def test_what_waits_is_bounded_by_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, large = batch(10), batch(5000)
    monkeypatch.setattr(writer, "QUEUED_BYTES", 3 * small.nbytes)
    waiting: list[int] = []
    take = PartWriter._take

    def noted(self, table, rows):
        waiting.append(self._queued_bytes)
        take(self, table, rows)

    monkeypatch.setattr(PartWriter, "_take", noted)
    parts = PartWriter(tmp_path)
    for rows in [small] * 9 + [large] + [small] * 9 + [large, large]:
        parts.write("counters", rows)
    (written,) = parts.close()
    assert written.rows == 18 * 10 + 3 * 5000
    assert pq.read_metadata(tmp_path / written.file).num_rows == written.rows
    # One that is larger than all that may wait waits alone.
    assert {w for w in waiting if w > 3 * small.nbytes} <= {large.nbytes}
    assert waiting[-1] == 0


def test_a_producer_that_waits_is_told_of_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "QUEUED_BYTES", 1)

    def fails(self, table, rows):
        raise OSError("disk full")

    monkeypatch.setattr(PartWriter, "_take", fails)
    parts = PartWriter(tmp_path)

    def write_all():
        for _ in range(100):
            parts.write("counters", batch(100))

    with pytest.raises(OSError, match="disk full"):
        write_all()


def test_small_files_are_not_compressed_and_hold_the_same_rows(tmp_path: Path) -> None:
    table = TABLES["ranks"]
    for n, codecs in ((writer.PLAIN_ROWS, {"UNCOMPRESSED"}), (writer.PLAIN_ROWS + 1, {"ZSTD"})):
        ranks = [r % 7 for r in range(n)]
        batch = table.batch({"rank": ranks, "host": [f"h{r}" for r in ranks], "pid": range(n)})
        files = []
        for size in (n, 100):  # however the rows come
            folder = tmp_path / f"{n}-{size}"
            folder.mkdir()
            parts = PartWriter(folder)
            for at in range(0, n, size):
                parts.write("ranks", batch.slice(at, size))
            (written,) = parts.close()
            path = folder / written.file
            files.append(path.read_bytes())
            assert (written.rows, written.bytes) == (n, len(files[-1]))
            found = pq.ParquetFile(path)
            assert found.read().to_pylist() == batch.to_pylist()
            group = found.metadata.row_group(0)
            assert {group.column(i).compression for i in range(group.num_columns)} == codecs
        assert files[0] == files[1]
