"""Columns of Arrow tables, whatever their chunks, nulls and types, as plain Python reads them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from retime.ingest.tasks import columns, needed
from retime.ingest.tasks.columns import coded, numbers
from retime.replay.graph import NULL

chunks = st.lists(
    st.lists(st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1)), max_size=20), max_size=4
)


@settings(max_examples=100, deadline=None)
@given(chunks, st.sampled_from([pa.int64(), pa.int32()]), st.integers(0, 9), st.data())
def test_numbers_of_some_rows(drawn, dtype, cut, data):
    # Slices, so that the bits of what is there do not begin with a byte; a table without it.
    whole = [pa.array(c, dtype).slice(cut) for c in drawn]
    tables = [pa.table({"x": pa.chunked_array(whole, dtype)}), pa.table({"y": [1, 2]})]
    every = [v for c in drawn for v in c[cut:]] + [None, None]
    rows = [i for i in range(len(every)) if data.draw(st.booleans())]
    got = numbers(tables, "x", np.array(rows, np.int64), -7)
    assert got.tolist() == [-7 if every[i] is None else every[i] for i in rows]


@pytest.mark.parametrize("dtype", [pa.int16(), pa.uint32()])
def test_numbers_of_other_widths(dtype):
    table = pa.table({"x": pa.array([None, 5, 7], dtype)})
    assert numbers([table], "x", np.arange(3), int(NULL)).tolist() == [int(NULL), 5, 7]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.sampled_from([None, "a", "b", "c"]), max_size=12), max_size=3),
       st.sampled_from(["text", "dictionary", "wide"]), st.integers(0, 5))  # fmt: skip
def test_codes_of_texts(drawn, kind, cut):
    types = {"text": pa.string(), "dictionary": pa.dictionary(pa.int32(), pa.string()),
             "wide": pa.dictionary(pa.uint32(), pa.large_string())}  # fmt: skip
    dtype = types[kind]
    plain = [pa.array(c, pa.string()).slice(cut) for c in drawn]
    made = plain if kind == "text" else [c.dictionary_encode().cast(dtype) for c in plain]
    tables = [pa.table({"x": pa.chunked_array(made, dtype)}), pa.table({"y": [1]})]
    every = [v for c in drawn for v in c[cut:]] + [None]
    got = coded(tables, "x", np.arange(len(every)), lambda ts: ["abc".index(t or "") for t in ts])
    assert got.tolist() == [-1 if v is None else "abc".index(v) for v in every]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.sampled_from([None, "a", "b", "c"]), max_size=12), max_size=3),
       st.data())  # fmt: skip
def test_texts_that_no_row_has_are_not_asked_for(drawn, data):
    # As if a chunk of three different texts had many.
    made = [pa.array(c, pa.string()).dictionary_encode() for c in drawn]
    tables = [pa.table({"x": pa.chunked_array(made, pa.dictionary(pa.int32(), pa.string()))})]
    every = [v for c in drawn for v in c]
    rows = [i for i in range(len(every)) if data.draw(st.booleans())]
    asked = []

    def code(texts):
        asked.extend(texts)
        return ["abc".index(t) for t in texts]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "MANY_TEXTS", 0)
        got = coded(tables, "x", np.array(rows, np.int64), code)
    assert got.tolist() == [-1 if every[i] is None else "abc".index(every[i]) for i in rows]
    assert set(asked) == {every[i] for i in rows} - {None}


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 5)), max_size=30),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5)), max_size=6),
)
def test_rows_that_a_graph_needs(events, asked):
    """Kinds are a device's, another that is always needed, and the host's; event 0 is none."""
    core, device = np.array([True, True, False]), np.array([True, False, False])
    kind, place, event = np.array(events, np.int64).reshape(-1, 3).T.copy()
    at, of = np.array(asked, np.int64).reshape(-1, 2).T.copy()
    event, of = (np.where(x == 0, NULL, x) for x in (event, of))
    got = needed.rows(kind.astype(np.int8), core, device, place, 4, event, at, of)
    seen = {e for k, _, e in events if k < 2 and e}
    bare = {p for p in range(4) if not any(k == 0 and q == p for k, q, _ in events)}
    bare |= {p for p, e in asked if e not in seen}
    assert got.tolist() == [i for i, (k, p, _) in enumerate(events) if k < 2 or p in bare]
