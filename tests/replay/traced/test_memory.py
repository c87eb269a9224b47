"""Memory of large arrays can be got while others write to it."""

from __future__ import annotations

import numpy as np
import pytest
from retime.ingest.memory import resident_bytes
from retime.replay.traced import memory


@pytest.fixture(params=["the system's own", "none"])
def pages(request, monkeypatch):
    """With the system's ways to ask for pages, and on a system that has none."""
    if request.param == "none":
        monkeypatch.setattr(memory, "SMALL_PAGES", None)


@pytest.mark.parametrize("n", [0, 1, 1000, 300_001])
def test_arrays_have_their_types_and_lengths_and_can_be_written(pages, n):
    types = {"a": (np.int64, n), "b": (np.int8, n + 1), "c": (np.int32, 0)}
    made = memory.arrays(types)
    for name, (of, length) in types.items():
        assert made[name].dtype == of
        assert made[name].shape == (length,)
        assert made[name].flags.writeable
        assert made[name].flags.c_contiguous
        made[name][:] = np.arange(length).astype(of)
    memory.get(made.values())
    for name, (of, length) in types.items():
        assert np.array_equal(made[name], np.arange(length).astype(of))


def test_memory_that_was_got_is_there(pages, monkeypatch):
    monkeypatch.setattr(memory, "AT_ONCE", 1 << 16)
    one = memory.array((64 << 20) + 12_345, np.int8)
    before = resident_bytes()
    memory.get([one])
    knows_how = memory._madvise()(one.ctypes.data, 4096, memory._POPULATE_WRITE) == 0
    if memory.SMALL_PAGES is not None and knows_how:
        assert resident_bytes() - before > 60 << 20
        assert not one.any()  # the system's pages come empty, to the last of them
    one[:] = 7
    assert one.sum(dtype=np.int64) == 7 * len(one)
