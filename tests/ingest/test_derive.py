"""Tables that are derived are put together without more memory than they take."""

from __future__ import annotations

import pyarrow as pa
import pytest
from retime.ingest import derive
from retime.ingest.schema import TABLES


def rows(*found: dict) -> pa.Table:
    columns = {c for row in found for c in row}
    batch = TABLES["transfers"].batch({c: [row.get(c) for row in found] for c in columns})
    return pa.Table.from_batches([batch])


@pytest.fixture
def parts() -> list[pa.Table]:
    """Of two sources; some columns have nothing in either, one in the second alone."""
    return [
        rows({"rank": 1, "start_ns": 5, "source": "b"}, {"rank": 0, "source": "a"}),
        rows({"rank": 0, "start_ns": 5, "source": "a", "bytes": 7}),
    ]


def test_tables_put_together_are_all_rows_in_their_order(parts: list[pa.Table]) -> None:
    wanted = pa.concat_tables(parts).to_pylist()
    found = derive._together("transfers", parts)
    assert found.to_pylist() == wanted
    assert found.schema == TABLES["transfers"].schema
    found.validate(full=True)
    assert not parts  # nobody else holds them


def test_columns_of_nulls_share_one_memory(parts: list[pa.Table]) -> None:
    found = derive._together("transfers", parts)
    numbers = [c for c in found.columns if c.type != pa.bool_()]
    nulls = [c.chunk(0) for c in numbers if c.null_count == len(found)]
    assert len(nulls) > 4
    codes = [c.indices if isinstance(c, pa.DictionaryArray) else c for c in nulls]
    assert len({b.address for c in codes for b in c.buffers() if b is not None}) == 1


def test_rows_are_sorted_and_those_that_tie_keep_their_order(parts: list[pa.Table]) -> None:
    tables = {"transfers": derive._together("transfers", parts)}
    found = derive._sorted("transfers", tables)
    assert not tables
    said = found.select(["start_ns", "rank", "bytes"]).to_pylist()
    assert [tuple(r.values()) for r in said] == [(5, 0, 7), (5, 1, None), (None, 0, None)]
    found.validate(full=True)
