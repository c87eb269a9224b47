"""Whatever events a source gives, looking for steps ends, and says or finds something sensible."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import example, given, settings
from hypothesis import strategies as st
from retime.ingest import schema, steps

I64 = (1 << 63) - 1
ODD = st.sampled_from([None, 0, -1, I64, -I64 - 1])
TIME = st.one_of(*[st.integers(0, 400)] * 5, ODD)
SMALL = st.one_of(*[st.integers(0, 6)] * 5, ODD)
RANK = st.sampled_from([0, 0, 0, 1, None, -1])
EVENT = st.fixed_dictionaries(
    {
        "rank": RANK,
        "event_id": SMALL,
        "kind": st.sampled_from(["kernel", "kernel", "runtime", "annotation", "memcpy", "x", None]),
        "name": st.sampled_from(["a", "b", "Optimizer.step#SGD.step", "step 1", "step", None]),
        "thread": st.sampled_from(["t", None]),
        "start_ns": TIME,
        "dur_ns": st.one_of(st.integers(0, 50), ODD),
        "correlation": SMALL,
        "category": st.sampled_from(["optimizer", "comm", "gemm", None]),
    }
)
CALL = st.fixed_dictionaries(
    {
        "rank": RANK, "comm": st.sampled_from(["c", "d", None]), "collective_id": SMALL,
        "op": st.sampled_from(["all_reduce", "all_to_all", None]), "in_bytes": SMALL,
        "start_ns": TIME, "end_ns": TIME, "event_id": SMALL, "enqueued_ns": TIME,
    }
)  # fmt: skip


def table(name, rows):
    declared = schema.TABLES[name]
    columns = {k: [r[k] for r in rows] for k in (rows[0] if rows else {})}
    return pa.Table.from_batches([declared.batch(columns)])


def event(of_kind, name, start_ns, category):
    return {
        "rank": 0, "event_id": 0, "kind": of_kind, "name": name, "thread": "t",
        "start_ns": start_ns, "dur_ns": 0, "correlation": 0, "category": category,
    }  # fmt: skip


# An optimizer at the last moment that a table can hold.
AT_THE_END = [event("kernel", "a", t, "optimizer") for t in (0, I64)]
AT_THE_END += [event("kernel", "b", t, "gemm") for t in (0, *range(1, 9))]


@example(AT_THE_END, [], "")
@given(st.lists(EVENT, max_size=40), st.lists(CALL, max_size=10), st.sampled_from(["", "st*"]))
@settings(max_examples=150, deadline=None)
def test_arbitrary_events(tmp_path_factory, events, calls, pattern):
    path = tmp_path_factory.mktemp("any") / "events.parquet"
    pq.write_table(table("events", events), path)
    parts = [lambda columns: pq.ParquetFile(path).read(columns)]
    collectives = table("collectives", calls)
    marked = schema.STEPS.schema.empty_table()
    found = steps.find(marked, collectives, [(parts, [0, 1])], pattern)
    assert found.steps.schema.names == schema.STEPS.schema.names
    assert found.collectives.drop("step") == collectives.drop("step")
    of_rank = [(r["rank"], r["step"]) for r in found.steps.to_pylist()]
    assert len(set(of_rank)) == len(of_rank)
    start, end = (found.steps[c].to_numpy() for c in ("start_ns", "end_ns"))
    assert np.all(start <= end)
    in_steps = {
        (r["rank"], r["step"]) for r in found.collectives.to_pylist() if r["step"] is not None
    }
    assert in_steps <= set(of_rank)
