"""Texts of a report by their ids, and reports that are larger than what is held."""

from __future__ import annotations

import errno
import gc
import os
import sys
import tempfile
import weakref

import numpy as np
import pyarrow as pa
import pytest
from retime.ingest import scratch, sorting
from retime.ingest.nsys import strings


@pytest.mark.parametrize("held", [100, 1000, 1 << 30])
def test_texts_are_found_by_their_first_id(held: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(strings, "HELD_BYTES", held)
    monkeypatch.setattr(strings, "HELD_BLOCKS", 2)
    rng = np.random.default_rng(held)
    ids = [None if i % 20 == 0 else int(rng.integers(0, 300)) for i in range(400)]
    texts = [None if i % 30 == 1 else f"text {i}" for i in range(400)]
    batches = [
        pa.table({"id": pa.array(ids[a : a + 37], pa.int64()), "value": texts[a : a + 37]})
        for a in range(0, 400, 37)
    ]
    first: dict[int | None, str | None] = {None: None}
    for i, text in zip(ids, texts, strict=True):
        first.setdefault(i, text)
    found = strings.Strings(batches)
    for _ in range(2):
        wanted = [None if i % 9 == 0 else int(rng.integers(-5, 310)) for i in range(200)]
        assert found.of(pa.array(wanted, pa.int64())).to_pylist() == [first.get(w) for w in wanted]


@pytest.mark.parametrize("refused", ["pwrite", "TemporaryFile"])
def test_a_full_temporary_folder_is_named(refused: str, monkeypatch: pytest.MonkeyPatch):
    def full(*args, **how):
        raise OSError(errno.ENOSPC, "No space left on device")

    lost = []
    monkeypatch.setattr(strings, "HELD_BYTES", 10)
    monkeypatch.setattr(sys, "unraisablehook", lost.append)
    with monkeypatch.context() as patch:
        patch.setattr(os if refused == "pwrite" else tempfile, refused, full)
        with pytest.raises(scratch.ScratchError, match=r"No space left .*temporary folder.*TMPDIR"):
            strings.Strings([pa.table({"id": [1, 2], "value": ["some text", "another"]})])
        gc.collect()
    assert not lost


def test_a_report_without_strings_has_none():
    assert strings.Strings([]).of(pa.array([1, None])).to_pylist() == [None, None]


@pytest.fixture
def shuffled(nsys, tmp_path):
    """Two ranks whose work, launches, waits and records do not come in the order of time."""
    rng = np.random.default_rng(7)
    kernels, calls, waits, records = [], [], [], []
    for i in rng.permutation(3000).tolist():
        pid, start = 10 + i % 2, 1_000_000 + 700 * i
        name = int(rng.integers(1, 45))
        its, thread = nsys.gid(pid), nsys.gid(pid, 1)
        calls.append((start - 500, start - 400, 0, thread, i, 2))
        kernels.append((start, start + 600, 0, 1, 7, i, its, name, name, 2, 1, 1, 64, 1, 1))
        if i % 3 == 0:
            waits.append((start, start + 5, 0, 1, 9, i, its, i % 4, i % 50, i % 20))
            stream = i if i % 7 else None
            records.append((start, 0, 1, stream, i, its, i % 50, i % 20))
    ranges = [
        (1_000_000 + k * 420_000, 1_419_999 + k * 420_000, 59, f"step {k}", nsys.gid(pid, 1))
        for pid in (10, 11)
        for k in range(5)
    ]
    path = nsys.make(
        tmp_path / "r.sqlite",
        StringIds=[(i, f"kernel {i // 2}") for i in rng.permutation(40).tolist()],
        CUPTI_ACTIVITY_KIND_KERNEL=kernels, CUPTI_ACTIVITY_KIND_RUNTIME=calls,
        CUPTI_ACTIVITY_KIND_SYNCHRONIZATION=waits, CUPTI_ACTIVITY_KIND_CUDA_EVENT=records,
        NVTX_EVENTS=ranges, TARGET_INFO_SESSION_START_TIME=[(1_700_000_000_000_000_000, "")],
        MPI_RANKS=[(nsys.gid(10, 1), 0), (nsys.gid(11, 1), 1)],
    )  # fmt: skip
    return path, calls, records


def test_a_report_of_any_size_gives_the_same_rows(nsys, shuffled, monkeypatch):
    path, calls, records = shuffled
    whole = nsys.read(path)
    sizes = {"RUN_ROWS": 200, "LEAST_RUN_ROWS": 50, "MARK_ROWS": 16, "MERGED_ROWS": 64,
             "BLOCK_ROWS": 32}  # fmt: skip
    for name, rows in sizes.items():
        monkeypatch.setattr(sorting, name, rows)
    monkeypatch.setattr(strings, "HELD_BYTES", 10)
    assert nsys.read(path) == whole
    first = {}
    for _, _, _, stream, correlation, its, *event in records:
        old = first.setdefault((its, *event), [None, None])
        old[:] = (b if a is None else a for a, b in zip(old, (stream, correlation), strict=True))
    called = {c[4]: c[0] for c in calls}
    kernels = [r for r in whole["events"] if r["kind"] == "kernel"]
    assert len(kernels) == 3000
    for rank in (0, 1):
        starts = [r["start_ns"] for r in kernels if r["rank"] == rank]
        assert starts == sorted(starts)
    for r in kernels:
        at = called[r["correlation"]]
        assert r["step"] == ((at - 1_000_000) // 420_000 if at >= 1_000_000 else None)
    waits = [r for r in whole["events"] if r["name"] == "Stream Wait Event"]
    assert waits
    for r in waits:
        event = r["correlation"] % 50, r["correlation"] % 20
        told = first[nsys.gid(10 + r["rank"]), *event]
        assert [r["wait_stream"], r["wait_correlation"]] == told


def test_open_files_do_not_grow_with_the_ranks_of_a_report(nsys, tmp_path, monkeypatch):
    for name, rows in {"RUN_ROWS": 8, "LEAST_RUN_ROWS": 4}.items():
        monkeypatch.setattr(sorting, name, rows)
    now: list[weakref.ref] = []
    most = 0
    make = tempfile.TemporaryFile

    def made(*args, **how):
        nonlocal most
        file = make(*args, **how)
        now.append(weakref.ref(file))
        most = max(most, sum(one() is not None for one in now))
        return file

    monkeypatch.setattr(scratch.tempfile, "TemporaryFile", made)
    kernels, calls = [], []
    for pid in range(10, 60):
        for i in range(20):
            its, thread = nsys.gid(pid), nsys.gid(pid, 1)
            calls.append((1000 + i, 1001 + i, 0, thread, i, 2))
            kernels.append((2000 + i, 2001 + i, 0, 1, 7, i, its, 1, 1, 2, 1, 1, 64, 1, 1))
    path = nsys.make(
        tmp_path / "r.sqlite", StringIds=[(1, "kernel")], CUPTI_ACTIVITY_KIND_KERNEL=kernels,
        CUPTI_ACTIVITY_KIND_RUNTIME=calls,
        MPI_RANKS=[(nsys.gid(pid, 1), pid - 10) for pid in range(10, 60)],
    )  # fmt: skip
    found = [r for r in nsys.read(path)["events"] if r["kind"] == "kernel"]
    assert [r["rank"] for r in found] == [rank for rank in range(50) for _ in range(20)]
    assert most == 2  # launches, and work of one sort
