"""Whatever rows sources give, a job's derived tables are made, and no row is lost in silence."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from retime.ingest import dims, joining, matching, transfers
from retime.ingest.joining import ranks as joining_ranks
from retime.ingest.joining.comms import sizes_of
from retime.ingest.run import ingest
from retime.ingest.schema import TABLES
from retime.ingest.settings import Settings
from retime.ingest.warehouse import Warehouse

spec = importlib.util.spec_from_file_location("joined", Path(__file__).with_name("joined.py"))
see = importlib.util.module_from_spec(spec)
spec.loader.exec_module(see)

I64, I32 = (1 << 63) - 1, (1 << 31) - 1
KINDS = ("kineto", "nsys", "rocprof", "recorded", "profiler", "inspector", "flight-recorder",
         "execution-trace", "nccl-log", "chakra", "", "other")  # fmt: skip
FORMATS = ("kineto", "nsys", "recorded", "nccl-profiler", "nccl-inspector", "flight-recorder",
           "another")  # fmt: skip


def mostly(values, *odd):
    """One of the values, now and then null or one at the edges."""
    usual = st.sampled_from(values)
    return st.one_of(usual, usual, usual, st.sampled_from([None, *odd]))


MOMENT = mostly([10, 20, 3_000_000, see.EPOCH_NS, see.EPOCH_NS + 5_000_000], 0, -1, I64,
                -I64 - 1)  # fmt: skip
SMALL = mostly([0, 1, 2, 3], -1, -2, I64, -I64 - 1)
RANK = mostly([0, 1, 2], -1, -9, 7, I32, -I32 - 1)
SIZE = mostly([2, 3, 4], 0, 1, -5, I32, -I32 - 1)
BYTES = mostly([8, 64, 4096], 0, -3, I64, -I64 - 1)
COMM = mostly(["0@ab", "1@cd", "nccl-0a1b2c3d4e5f6071", "nccl-a1b2c3d4e5f607*"], "", "nccl-",
              "nccl-*", "unnamed/stream 7", "é")  # fmt: skip
CLOCK = mostly(["host", "process", "boot"], "", "none", "recorded", "other")
LIST = st.none() | st.lists(RANK, max_size=4)


def of(first, **columns):
    """Rows; the first column stands always, if only as null."""
    return st.fixed_dictionaries({first: columns.pop(first)}, optional=columns)


COLLECTIVES = of(
    "rank", comm=COMM, seq=SMALL, rank=RANK,
    op=mostly(["all_reduce", "all_gather", "send", "recv", "send_recv", "barrier"], "", "unknown",
              "other"),
    dtype=mostly(["bfloat16", "int8"], "", "unknown", "x"), in_bytes=BYTES, out_bytes=BYTES,
    group_size=SIZE, root=RANK, peer=RANK, start_ns=MOMENT, end_ns=MOMENT, enqueued_ns=MOMENT,
    exec_ns=MOMENT, stream=SMALL, step=SMALL, event_id=SMALL, coalesced=SIZE,
    record_function=SMALL, timing=mostly(["kernel", "watchdog", "host"], ""), clock=CLOCK,
    state=mostly(["completed"], ""), source=mostly(KINDS),
    in_splits=st.none() | st.lists(BYTES, max_size=3),
)  # fmt: skip
RANKS = of(
    "rank", rank=RANK, host=mostly(["h", "g"], ""), device=RANK, n_devices=SIZE, local_rank=RANK,
    world_size=SIZE, start_ns=MOMENT, end_ns=MOMENT, clock=CLOCK, pid=SMALL,
    source=mostly(["a", "b"], ""),
)  # fmt: skip
COMMS = of(
    "comm", comm=COMM, name=mostly(["0"], ""), ranks=LIST, size=SIZE,
    dim=mostly(["dp", "unknown"], ""), dim_source=mostly(["none"]), backend=mostly(["nccl"]),
    member=RANK, member_place=RANK,
)  # fmt: skip
STEPS = of("rank", rank=RANK, step=SMALL, start_ns=MOMENT, end_ns=MOMENT)
TRANSFERS = of(
    "rank", rank=RANK, bytes=BYTES, start_ns=MOMENT, end_ns=MOMENT, collective_id=SMALL,
    event_id=SMALL, clock=CLOCK, source=mostly(KINDS),
)  # fmt: skip


def derived(rows, formats):
    """The derived tables of these rows, as `derive` makes them."""
    view = {name: see.table(name, rows.get(name, [])) for name in
            ("collectives", "ranks", "comms", "steps", "transfers")}  # fmt: skip
    ranks, _ = joining_ranks.one_a_rank(
        view["ranks"], formats, joining_ranks.ranks_with_times(view["collectives"])
    )
    joined = joining.join(view["collectives"], ranks, view["comms"])
    resolved = matching.resolve(joined.collectives, joined.ranks, joined.comms, view["steps"])
    moved, _ = transfers.derived(view["transfers"], joined, resolved.collectives)
    return ranks, joined, resolved, moved


def check_dims(resolved, rows):
    """Names of the communicators once their dimensions are found, whatever the user says."""
    steps = see.table("steps", rows.get("steps", []))
    for degrees in ({}, {"tp": 2, "dp": 1}):
        found, _ = dims.decide(
            resolved.comms, resolved.collectives, resolved.ranks, steps, 2, Settings([], degrees)
        )
    assert found["dim"].null_count == 0
    return found["comm"].to_pylist()


def check(rows, formats):
    ranks, joined, resolved, moved = derived(rows, formats)
    known = {r.get("rank") for r in rows["ranks"]} - {None}
    assert ranks["rank"].to_pylist() == sorted(known)
    assert resolved.ranks["rank"].to_pylist() == sorted(known)
    out = resolved.collectives
    merged = sum((s or "").count("+") for s in out["source"].to_pylist())
    assert out.num_rows + merged == len(rows["collectives"])
    assert joined.collectives.num_rows == out.num_rows
    assert out["collective_id"].null_count == 0
    assert moved.num_rows == len(rows["transfers"])
    for name, table in (
        ("ranks", resolved.ranks), ("comms", resolved.comms), ("collectives", out),
        ("transfers", moved),
    ):  # fmt: skip
        assert table.schema.names == TABLES[name].schema.names
    assert check_dims(resolved, rows) == resolved.comms["comm"].to_pylist()
    named = set(resolved.comms["comm"].to_pylist())
    assert {c for c in out["comm"].to_pylist() if c is not None} <= named


@st.composite
def jobs(draw):
    ranks = draw(st.lists(RANKS, max_size=5))
    return {
        "collectives": draw(st.lists(COLLECTIVES, max_size=14)), "ranks": ranks,
        "comms": draw(st.lists(COMMS, max_size=5)), "steps": draw(st.lists(STEPS, max_size=2)),
        "transfers": draw(st.lists(TRANSFERS, max_size=4)),
    }, [draw(st.sampled_from(FORMATS)) for _ in ranks]  # fmt: skip


@given(jobs())
@settings(max_examples=settings.default.max_examples, deadline=None)
def test_arbitrary_rows_are_derived(job):
    check(*job)


@st.composite
def mangled(draw):
    """Sensible rows of several sources, some of whose values are not."""
    ops = [see.operations(rank=r, steps=2, ops=("all_reduce", "all_gather")) for r in (0, 1)]
    rows = []
    for some in ops:
        rows += see.kineto(some, numbered=draw(st.booleans()))
        for view in (see.profiler, see.inspector, see.flight_recorder, see.nccl_log):
            if draw(st.booleans()):
                rows += view(some)
    rows = [{k: v for k, v in r.items() if k != "truth"} for r in rows]
    for _ in range(draw(st.integers(1, 12))):
        rows[draw(st.integers(0, len(rows) - 1))].update(draw(COLLECTIVES))
    clock = draw(st.sampled_from(["host", "process", "boot"]))
    ranks = [{"rank": r, "host": "h", "clock": clock, "world_size": 2} for r in (0, 1)]
    return {"collectives": rows, "ranks": ranks, "comms": draw(st.lists(COMMS, max_size=3)),
            "steps": [], "transfers": []}, ["kineto"] * 2  # fmt: skip


@given(mangled())
@settings(max_examples=settings.default.max_examples // 2, deadline=None)
def test_odd_values_between_sensible_ones_are_derived(job):
    check(*job)


@pytest.mark.parametrize("world", [I32, 0, -1])
def test_a_world_of_any_size_takes_no_memory_of_its_size(world):
    rows = [{"rank": r, "comm": "0@ab", "op": "all_reduce", "source": "kineto"} for r in (0, 1)]
    ranks = [{"rank": r, "world_size": world, "clock": "none"} for r in (0, 1)]
    comms = [{"comm": "0@ab", "ranks": [0, 1], "size": 2}]
    *_, resolved, _ = derived({"collectives": rows, "ranks": ranks, "comms": comms}, ["kineto"] * 2)
    assert resolved.comms["dim"].to_pylist() == ["unknown"]


def test_rows_of_a_rank_that_no_source_describes_are_on_no_clock():
    """Their times could be on any: they do not tell when another rank waited."""
    ops = [see.operations(rank=r) for r in (0, 1)]
    rows = {"collectives": see.kineto(ops[0]) + see.kineto(ops[1]),
            "ranks": [{"rank": 0, "clock": "host"}], "comms": []}  # fmt: skip
    *_, resolved, _ = derived(rows, ["kineto"])
    assert set(resolved.collectives["match"].to_pylist()) == {"partial"}


def test_members_of_whom_one_is_twice_or_unknown_are_not_known():
    ranks = [{"rank": r, "world_size": 2, "clock": "none"} for r in (0, 1)]
    comms = [{"comm": "twice", "ranks": [0, 0]}, {"comm": "none", "ranks": [0, None]},
             {"comm": "both", "ranks": [1, 0]}]  # fmt: skip
    *_, resolved, _ = derived({"ranks": ranks, "comms": comms}, ["kineto"] * 2)
    assert {r["comm"]: r["dim"] for r in resolved.comms.to_pylist()} == {
        "twice": "unknown", "none": "unknown", "both": "world",
    }  # fmt: skip


def test_an_odd_record_of_inspector_keeps_its_job(tmp_path, rows):
    """A communicator that only operations name has a row, and its rank's others are matched."""

    def record(id, n, name):
        header = {"id": id, "rank": 0, "n_ranks": n, "nnodes": 1, "comm_name": name}
        perf = {"coll": "AllReduce", "coll_sn": 1, "coll_msg_size_bytes": 64,
                "coll_exec_time_us": 6}  # fmt: skip
        return json.dumps({"header": header, "metadata": {"hostname": "h", "pid": 7},
                           "coll_perf": perf}) + "\n"  # fmt: skip

    path = tmp_path / "h-pid7.log"
    path.write_text(
        record("0x7a1b2c3d4e5f60", 8, "default_pg:0")
        + record("0x6a1b2c3d4e5f61", 4, "moe{ep}:3")
        + record("0x5a1b2c3d4e5f62", 0, "none")
    )
    warehouse = Warehouse(tmp_path / "w")
    ingest(warehouse, path, job="j")
    snapshot = warehouse.snapshot("j")
    sizes = {r["comm"]: r["size"] for r in rows(snapshot, "comms")}
    assert sizes == {"nccl-7a1b2c3d4e5f60*": 8, "nccl-6a1b2c3d4e5f61*": 4,
                     "nccl-5a1b2c3d4e5f62*": None}  # fmt: skip
    assert {r["comm"] for r in rows(snapshot, "collectives")} == set(sizes)


def test_sizes_that_any_row_says():
    rows = [("a", 4), ("a", 4), ("a", None), ("b", -I32 - 1), (None, 3), ("b", I32), ("c", None)]
    table = see.table("comms", [{"comm": c, "size": s} for c, s in rows])
    assert sizes_of((table, "size"), (see.table("comms", [{"comm": "a", "size": 2}]), "size")) == {
        "a": {2, 4}, "b": {-I32 - 1, I32},
    }  # fmt: skip


def test_deriving_does_not_load_arrows_query_engine():
    """It would cost half a second of each job's first ingest."""
    script = (
        "import sys\n"
        "from retime.ingest import joining, matching\n"
        "from retime.ingest.schema import TABLES\n"
        "import pyarrow as pa\n"
        "rows = lambda t, **c: pa.Table.from_batches([TABLES[t].batch(c)])\n"
        "c = rows('collectives', rank=[0, 0], comm=['nccl-' + '1' * 14 + '*'] * 2, "
        "source=['kineto', 'inspector'], group_size=[2, 2])\n"
        "joined = joining.join(c, rows('ranks', rank=[0]), rows('comms', comm=['x']))\n"
        "matching.resolve(joined.collectives, joined.ranks, joined.comms, rows('steps'))\n"
        "print([m for m in sys.modules if m.startswith(('pyarrow.acero', 'pyarrow.dataset'))])\n"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (told.stdout.strip(), told.stderr) == ("[]", "")
