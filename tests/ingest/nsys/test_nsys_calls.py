"""NCCL calls of a report: blocks of them give the rows that all of them together give."""

import random
import struct

import pytest
from retime.ingest import collect, sorting
from retime.ingest.nsys import callranges, collectives

ZERO = 1_700_000_000_000_000_000
STRINGS = [(1, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)"), (2, "ncclDevKernel_SendRecv(x)"),
           (9, "cudaLaunchKernel")]  # fmt: skip
PIDS = (100, 101)


@pytest.fixture
def report(nsys, tmp_path):
    """Two processes of two threads that make calls, alone and in groups, at random times."""

    def make(seed: int, payloads: bool = True, ends: float = 1.0):
        begins = 0.95 if payloads else 1.0
        r = random.Random(seed)
        ranges, runtime, kernels = [], [], []
        for place, pid in enumerate(PIDS):
            g, correlation = nsys.gid(pid), 0
            threads = [nsys.gid(pid, pid), nsys.gid(pid, pid + 9)]
            ranges.append((5, 100_000, 59, "nccl_benchmark", threads[0], None, 1))
            for t in threads:
                join = struct.pack("<Qiiii", nsys.HASH, 2, place, 0, 0)
                ranges.append(_call(nsys, 10, t, "ncclCommInitRank", nsys.INIT, join, True))
                at = 100
                for _ in range(80):
                    at += r.choice((5, 40, 200))
                    grouped = not payloads or r.random() < 0.6
                    if grouped and r.random() < begins:
                        ranges.append(_call(nsys, at, t, "ncclGroupStart"))
                    n = 4 if not payloads else r.choice((1, 2, 3)) if grouped else 1
                    its = [_move(nsys, at + 9 * i + 1, t, r, payloads, i) for i in range(n)]
                    r.shuffle(its)  # the table need not be in the order of time
                    ranges += its
                    at += 45
                    if grouped and r.random() < ends:
                        ranges.append(_call(nsys, at, t, "ncclGroupEnd"))
                    for _ in range(r.choice((0, 1, 1, 2)) if grouped and payloads else 1):
                        correlation += 1
                        launch = at + r.randint(0, 4) if grouped else its[0][0] + 1
                        runtime.append((launch, launch + 1, 0, t, correlation, 9, 0))
                        start = 1000 * (at + r.randint(0, 3000)) + len(kernels)  # nor are kernels
                        name = r.choice((1, 2)) if payloads else 2
                        end = start + r.randint(1, 90)
                        kernels.append(_kernel(start, end, place, correlation, g, name))
            kernels.append(_kernel(50, 60, place, 0, g, 2))
        return nsys.make(
            tmp_path / f"r{seed}{payloads}.sqlite", StringIds=STRINGS, NVTX_EVENTS=ranges,
            CUPTI_ACTIVITY_KIND_RUNTIME=runtime, CUPTI_ACTIVITY_KIND_KERNEL=kernels,
            NVTX_PAYLOAD_SCHEMA_ENTRIES=nsys.SCHEMA_ENTRIES,
            TARGET_INFO_SESSION_START_TIME=[(ZERO, "2023")],
        )  # fmt: skip

    return make


def _kernel(start, end, device, correlation, pid, name):
    return (start, end, device, 1, 7, correlation, pid, name, name, 24, 1, 1, 512, 1, 1)


def _call(nsys, at, tid, name, schema=None, payload=b"", payloads=False):
    blob = nsys.blob(schema, payload) if payloads else None
    return (at, at + 5, 59, name, tid, None, 1, None, blob)


def _move(nsys, at, tid, r, payloads, i):
    if payloads and r.random() < 0.4:
        payload = struct.pack("<QQii", nsys.HASH, r.randint(1, 999), 0, 0)
        return _call(nsys, at, tid, "ncclAllReduce", nsys.ALL_REDUCE, payload, True)
    payload = struct.pack("<QQii", nsys.HASH, r.randint(1, 999), r.randint(0, 1), 0)
    return _call(nsys, at, tid, ("ncclSend", "ncclRecv")[i % 2], nsys.P2P, payload, payloads)


@pytest.fixture
def small(monkeypatch):
    """Blocks of a few calls, which wait on a disk; gives how many calls each had."""
    seen = []
    for name, rows in {"HELD_ROWS": 6, "BLOCK_ROWS": 3}.items():
        monkeypatch.setattr(callranges, name, rows)
    for name, rows in {"MARK_ROWS": 2, "MERGED_ROWS": 4}.items():
        monkeypatch.setattr(sorting, name, rows)
    of = callranges.Calls.of

    def counted(calls, key):
        for block in of(calls, key):
            seen.append(len(block.calls.row))
            yield block

    monkeypatch.setattr(callranges.Calls, "of", counted)
    return seen


@pytest.mark.parametrize("payloads", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_blocks_of_calls_give_the_rows_of_all(nsys, report, request, seed, payloads):
    path = report(seed, payloads)
    whole = nsys.read(path)
    seen = request.getfixturevalue("small")
    assert nsys.read(path) == whole
    assert len(seen) > 8
    if payloads:
        assert {c["op"] for c in whole["collectives"]} >= {"send_recv", "all_reduce"}
        assert any(c["in_bytes"] for c in whole["collectives"])
    else:
        assert {c["op"] for c in whole["collectives"]} == {"all_to_all", "send_recv"}
        assert {c["group_size"] for c in whole["collectives"]} == {2}
        assert nsys.problems(whole)["all_to_all_inferred"]["count"] == sum(
            c["op"] == "all_to_all" for c in whole["collectives"]
        )


def test_a_group_that_never_ends_is_cut_where_no_call_runs(nsys, report, small, monkeypatch):
    monkeypatch.setattr(callranges, "MOST_BLOCK_ROWS", 20)
    rows = nsys.read(report(1, ends=0.9))["collectives"]
    assert rows
    assert max(small) < 60


def test_rows_of_many_kernels_come_some_at_a_time(nsys, report, monkeypatch):
    path = report(2)
    whole = nsys.read(path)["collectives"]
    for module in (collect, collectives):
        monkeypatch.setattr(module, "BATCH_ROWS", 10)
    batches = [
        batch for table, batch in nsys.report.parse(nsys.source(path)) if table == "collectives"
    ]
    assert len(batches) > 10
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert sorted(rows, key=str) == sorted(whole, key=str)
