"""Parquet that holds more than its bytes: how much is read at once, and what is refused."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from retime.ingest import arrow_in, parquet_in

MB = 1 << 20


def repeated(text, n):
    return pa.DictionaryArray.from_arrays(pa.array([0] * n, pa.int32()), pa.array([text]))


@pytest.fixture
def long_texts(tmp_path):
    """65,536 rows of one text of 40,000 bytes, 2.6 GB of them, in a file of some kilobytes."""
    path = tmp_path / "long.parquet"
    table = pa.table({"a": pa.array(range(65536)), "text": repeated("x" * 40_000, 65536)})
    pq.write_table(table, path, compression="zstd")
    assert path.stat().st_size < MB
    return path


@pytest.mark.parametrize("stored", ["dictionary", "string"])
def test_a_text_that_repeats_does_not_fill_memory(long_texts, tmp_path, stored):
    if stored == "string":  # without the schema that says it was a dictionary
        table = pq.read_table(long_texts)
        with pq.ParquetWriter(tmp_path / "s.parquet", table.schema, store_schema=False,
                              compression="zstd") as w:  # fmt: skip
            w.write_table(table)
        long_texts = tmp_path / "s.parquet"
        del table
    before = pa.total_allocated_bytes()
    most = n = 0
    refused = ""
    with parquet_in.opened(long_texts) as file:
        assert file.schema.field("text").type == pa.string()
        try:
            for batch in file.batches():
                n += batch.num_rows
                most = max(most, pa.total_allocated_bytes() - before, batch.nbytes)
                assert batch["text"].type == pa.string()
        except ValueError as e:
            refused = str(e)
    assert refused.startswith("refused: ")
    assert most < 64 * MB
    size = long_texts.stat().st_size
    # All rows that the file may have, to the last piece: 40,012 bytes each.
    allowed = (256 * MB + 100 * size) // 40_012
    assert allowed - 500 < n <= allowed


def test_long_texts_that_differ_are_read_a_few_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_in, "AT_ONCE_BYTES", 1 * MB)
    texts = [f"{i:06}" + "y" * 9994 for i in range(2000)]
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"text": texts}), path, use_dictionary=False)
    with parquet_in.opened(path) as file:
        sizes = [(b.num_rows, b.nbytes) for b in file.batches()]
    assert sum(n for n, _ in sizes) == 2000
    assert sizes[0][0] == 256
    assert all(size <= 1 * MB for _, size in sizes[1:])
    assert len(sizes) < 30


def test_short_rows_are_read_many_at_once(tmp_path):
    path = tmp_path / "n.parquet"
    pq.write_table(pa.table({"a": range(200_000)}), path)
    with parquet_in.opened(path) as file:
        sizes = [b.num_rows for b in file.batches(["a"])]
    assert sizes[:5] == [256, 1024, 4096, 16384, 65536]
    assert sum(sizes) == 200_000


def test_rows_come_as_they_stand(tmp_path):
    n = 30_000
    table = pa.table(
        {
            "i": pa.array([None if k % 7 == 0 else k for k in range(n)], pa.int64()),
            "few": pa.array([None if k % 5 == 0 else f"name {k % 11}" for k in range(n)]),
            "many": pa.array([f"{k}" * (k % 4) for k in range(n)]),
            "large": pa.array([f"L{k % 3}" for k in range(n)], pa.large_string()),
            "bytes": pa.array([bytes([k % 256, 255]) for k in range(n)]),
            "coded": pa.array([f"c{k % 9}" for k in range(n)]).dictionary_encode(),
            "list": pa.array([[k, None] for k in range(n)]),
            "texts": pa.array([["a", None, str(k)] for k in range(n)]),
            "f": pa.array([k / 3 for k in range(n)]),
        }
    )
    path = tmp_path / "all.parquet"
    pq.write_table(table, path, row_group_size=7000)
    # A text has one type, whatever the length of its offsets.
    plain = table.set_column(5, "coded", table["coded"].cast(pa.string()))
    plain = plain.set_column(3, "large", plain["large"].cast(pa.string()))
    with parquet_in.opened(path) as file:
        assert file.table().to_pydict() == plain.to_pydict()
        assert file.table().schema.names == plain.schema.names
        assert file.table(["few", "i"]).equals(plain.select(["few", "i"]))
        raw = file.table(["many", "large", "coded"], text=False)
    assert raw.schema.types == [pa.binary()] * 3
    assert raw["coded"].cast(pa.string()).equals(plain["coded"])


def test_more_rows_than_its_bytes_can_hold(tmp_path):
    path = tmp_path / "null.parquet"
    pq.write_table(pa.table({"a": pa.nulls(3_000_000, pa.int8())}), path)
    with pytest.raises(ValueError, match="refused: 3000000 rows"), parquet_in.opened(path):
        pass


def test_pieces_are_cut_at_rows(monkeypatch):
    monkeypatch.setattr(arrow_in, "PIECE_BYTES", 10)
    words = ["four", "a text of nineteen.", ""]
    column = pa.DictionaryArray.from_arrays(
        pa.array([0, 0, None, 1, 2, 0, 0, 0], pa.int8()), pa.array(words)
    )
    numbers = pa.array(range(8))
    found = list(arrow_in.pieces([column, numbers], ["w", "n"], arrow_in.Allowance(1000)))
    # A null counts as its dictionary's first: the bound is one from above.
    assert [b["n"].to_pylist() for b in found] == [[0, 1], [2], [3], [4, 5, 6], [7]]
    assert [w for b in found for w in b["w"].to_pylist()] == [
        "four", "four", None, words[1], "", "four", "four", "four",
    ]  # fmt: skip


def test_a_dictionary_of_lists_is_none_of_a_strangers_business():
    lists = pa.array([[1] * 100_000])
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 1000, pa.int8()), lists)
    with pytest.raises(ValueError, match="nested"):
        list(arrow_in.pieces([column], ["l"], arrow_in.Allowance(1000)))
