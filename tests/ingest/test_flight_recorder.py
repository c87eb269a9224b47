"""Flight Recorder dumps to tables: the real 16-rank dumps, each version's form, odd input.

The small dumps are built from the writer's fields (PyTorch's FlightRecorder by version); what is
expected of the real ones is counted by Python's own unpickler, on files that we trust.
"""

import json
import os
import pickle
import pickletools
import random
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
import retime
from retime.ingest import flight_recorder, schema
from retime.ingest.detect import detect
from retime.ingest.errors import Damaged, RankUnknown, UnusableInput
from retime.ingest.kineto.comms import identity
from retime.ingest.source import LocalFile, Source


def source(path: Path) -> Source:
    return Source(str(path), path.stat().st_size, LocalFile(str(path)), path)


def tables(path: Path, **kwargs) -> dict[str, list[dict]]:
    found: dict[str, list[dict]] = {}
    for name, batch in flight_recorder.parse(source(path), **kwargs):
        assert batch.schema == schema.TABLES[name].schema
        found.setdefault(name, []).extend(pa.Table.from_batches([batch]).to_pylist())
    return found


def codes(found: dict[str, list[dict]]) -> dict[str, int]:
    return {p["code"]: p["count"] for p in found.get("problems", [])}


def written(folder: Path, dump: object, name: str = "trace_rank_1") -> Path:
    path = folder / name
    path.write_bytes(pickle.dumps(dump, 2))
    return path


GROUPS = {
    "0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"},
    "5": {"name": "5", "desc": "tp", "ranks": "[1, 3]"},
}


def entry(n: int, seq: int, name="nccl:all_reduce", group="5", **more) -> dict:
    about = GROUPS[group]
    return {
        "record_id": n,
        "pg_id": int(group),
        "process_group": (about["name"], about["desc"]),
        "collective_seq_id": seq,
        "p2p_seq_id": 0,
        "op_id": n,
        "profiling_name": name,
        "time_created_ns": 1_700_000_000_000_000_000 + n,
        "input_sizes": [[4, 2]],
        "input_dtypes": ["BFloat16"],
        "output_sizes": [[8, 2]],
        "output_dtypes": ["BFloat16"],
        "state": "scheduled",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None,
        "retired": False,
        "timeout_ms": 600000,
        "is_p2p": False,
        **more,
    }


def dump_of(*entries: dict, status: dict | None = None, version="2.10") -> dict:
    return {
        "version": version,
        "pg_config": GROUPS,
        "comm_lib_version": "2.27.3",
        "pg_status": status or {},
        "entries": list(entries),
    }


REAL = "flight_recorder/nvidia-resiliency-ext/fr_traces"


@pytest.mark.parametrize(("run", "total"), [("lock_gil_1st", 142), ("gpu_error_1st", 289)])
def test_the_real_dumps_hold_what_python_unpickles(retime_traces, run, total):
    counted = 0
    for rank in range(16):
        path = retime_traces / REAL / run / f"_dump_{rank}"
        plain = pickle.loads(path.read_bytes())
        assert detect(source(path)) == "flight-recorder"
        found = tables(path)
        rows = found.get("collectives", [])
        counted += len(rows)
        assert [(r["event_id"] & 0xFFFFFFFF, r["state"], r["enqueued_ns"]) for r in rows] == [
            (e["record_id"], e["state"], e["time_created_ns"]) for e in plain["entries"]
        ]
        assert [r["seq"] for r in rows] == [
            None if e["is_p2p"] else e["collective_seq_id"] for e in plain["entries"]
        ]
        assert {r["rank"] for r in rows} <= {rank}
        [own] = found["ranks"]
        assert (own["rank"], own["world_size"], own["clock"]) == (rank, 16, "none")
        assert {(c["name"], c["description"], str(c["ranks"])) for c in found["comms"]} == {
            (g["name"], g["desc"], g["ranks"]) for g in plain["pg_config"].values()
        }
        assert {p["group_id"]: p["last_completed"] for p in found["progress"]} == {
            int(k): v["last_completed_collective"] for k, v in plain["pg_status"].items()
        }
        assert not {p["severity"] for p in found["problems"]} & {"lost", "warning"}
    assert counted == total


def test_rows_of_a_real_dump(retime_traces):
    found = tables(retime_traces / REAL / "gpu_error_1st" / "_dump_12")
    rows = found["collectives"]
    pipeline = [(r["op"], r["peer"], r["in_bytes"]) for r in rows if r["peer"] is not None]
    # Places 3<-0, 3->2, 3<-2 and 3->0 of the group [0, 4, 8, 12]; 4096 x 1 x 5120 bfloat16.
    n = 4096 * 5120 * 2
    assert pipeline == [("recv", 0, n), ("send", 8, n), ("recv", 8, n), ("send", 0, n)]
    experts = [r for r in rows if r["op"] == "all_to_all"]
    assert [r["seq"] for r in experts] == [20530, 20531, 20532, 20533, 20534, 20535, 20536]
    assert {r["comm"] for r in experts} == {identity("74", (12, 13, 14, 15), 4)}
    assert {(r["group_size"], r["timing"], r["start_ns"], r["clock"]) for r in rows} >= {
        (4, None, None, None)
    }
    assert experts[3]["in_bytes"] == 4096 * 5120 * 2
    [progress] = [p for p in found["progress"] if p["group_id"] == 11]
    assert progress == {
        "rank": 12,
        "comm": identity("74", (12, 13, 14, 15), 4),
        "group_id": 11,
        "last_enqueued": 20536,
        "last_started": None,
        "last_completed": 20529,
        "source": "flight-recorder",
    }
    told = codes(found)
    # Numbers 90083 to 90109 are all there; seven groups have a status but no entry.
    assert told == {"window": 1, "groups_without_entry": 7}


def test_a_rank_without_entries_still_says_how_far_it_came(retime_traces):
    found = tables(retime_traces / REAL / "lock_gil_1st" / "_dump_9")
    assert "collectives" not in found
    assert len(found["comms"]) == len(found["progress"]) == 13
    assert codes(found) == {"no_entries": 1, "groups_without_entry": 13}


def test_one_entry_row_by_row(tmp_path):
    e = entry(7, 3, "nccl:_all_gather_base")
    found = tables(written(tmp_path, dump_of(e)))
    comm = identity("5", (1, 3), 2)
    [row] = found["collectives"]
    assert {k: v for k, v in row.items() if v is not None} == {
        "comm": comm, "seq": 3, "rank": 1, "op": "all_gather", "dtype": "bfloat16",
        "in_bytes": 16, "out_bytes": 32, "group_size": 2,
        "event_id": schema.event_id(1, "flight-recorder", 7),
        "enqueued_ns": 1_700_000_000_000_000_007, "state": "scheduled",
        "source": "flight-recorder",
    }  # fmt: skip
    assert [(c["comm"], c["dim"], c["backend"], c["member"], c["member_place"])
            for c in found["comms"]] == [
        (identity("0", (0, 1, 2, 3), 4), "world", None, 1, 1), (comm, "tp", "nccl", 1, 0),
    ]  # fmt: skip
    assert codes(found) == {"window": 1}


def test_times_are_the_watchdogs_and_the_duration_stands_apart(tmp_path):
    polled = {"state": "completed", "time_discovered_started_ns": 1000,
              "time_discovered_completed_ns": 5000}  # fmt: skip
    found = tables(
        written(
            tmp_path,
            dump_of(
                entry(0, 1, **polled),
                entry(1, 2, **polled, duration_ms=0.0015),
                entry(2, 3, state="started", time_discovered_started_ns=6000),
                entry(3, 4, state="completed", duration_ms=2.5),
            ),
        )
    )
    keys = ("state", "start_ns", "end_ns", "exec_ns", "timing", "clock")
    assert [tuple(r[k] for k in keys) for r in sorted(found["collectives"],
            key=lambda r: r["seq"])] == [
        ("completed", 1000, 5000, None, "watchdog", "host"),
        ("completed", 1000, 5000, 1500, "watchdog", "host"),
        ("started", None, None, None, None, None),
        ("completed", None, None, 2_500_000, None, None),
    ]  # fmt: skip
    assert found["ranks"][0]["clock"] == "host"
    assert codes(found) == {}


def test_polls_apart_do_not_part_what_is_numbered_alike(tmp_path):
    # The watchdog of rank 1 looks 80 ms after that of rank 0; each collective takes 2 ms.
    job = tmp_path / "job"
    job.mkdir()
    for rank, lag in ((0, 5_000_000), (1, 85_000_000)):
        entries = []
        for n in range(12):
            e = entry(n, n + 1, group="0", state="completed", duration_ms=2.0)
            seen = e["time_created_ns"] + n * 1_000_000_000 + lag
            entries.append(
                e | {"time_discovered_started_ns": seen, "time_discovered_completed_ns": seen}
            )
        pair = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
        written(job, dump_of(*entries) | {"pg_config": pair}, f"trace_rank_{rank}")
    warehouse = retime.open(tmp_path / "warehouse")
    assert warehouse.ingest(str(job), job="j", workers=1).exit_code == 0
    con = warehouse.connect("j")
    rows = con.execute(
        "SELECT seq, min(match), count(DISTINCT collective_id), count(*), min(exec_ns) "
        "FROM collectives GROUP BY seq ORDER BY seq"
    ).fetchall()
    assert rows == [(n, "exact", 1, 2, 2_000_000) for n in range(1, 13)]
    # Nobody says when they ran, so nobody can be said to have waited.
    assert con.execute("SELECT count(wait_ns), count(transfer_ns) FROM waits").fetchall() == [
        (0, 0)
    ]


def test_versions_before_2_name_groups_by_number(tmp_path):
    old = {
        "version": "1.4",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
        "entries": [
            {"record_id": 0, "pg_id": 0, "seq_id": 4, "profiling_name": "nccl:broadcast",
             "time_created_ns": 5, "input_sizes": [[3]], "output_sizes": [[3]],
             "state": "scheduled"},
            {"record_id": 1, "pg_id": 0, "seq_id": 5, "profiling_name": "nccl:send 1->0",
             "time_created_ns": 6, "input_sizes": [[3]], "output_sizes": [[3]],
             "state": "scheduled"},
        ],
    }  # fmt: skip
    found = tables(written(tmp_path, old))
    comm = identity("0", (0, 1), 2)
    # Element types came with version 2.1.
    assert [(r["comm"], r["op"], r["seq"], r["peer"], r["in_bytes"])
            for r in found["collectives"]] == [
        (comm, "broadcast", 4, None, None), (comm, "send", None, 0, None),
    ]  # fmt: skip
    assert codes(found) == {"size_unknown": 2}


def test_json_is_the_same_dump(tmp_path):
    entries = [entry(0, 1), entry(1, 2, state="completed", time_discovered_started_ns=10,
                                  time_discovered_completed_ns=20)]  # fmt: skip
    status = {"last_enqueued_collective": 2, "last_started_collective": -1,
              "last_completed_collective": 2}  # fmt: skip
    plain = dump_of(*entries, status={"5": status})
    # The JSON writer has texts in pg_status, 0 for no time, lists for pairs, keys in order.
    told = json.loads(json.dumps(plain))
    told["pg_status"] = {"5": {k: str(v) for k, v in status.items()}}
    for e in told["entries"]:
        for key in ("time_discovered_started_ns", "time_discovered_completed_ns"):
            e[key] = e[key] or 0
    path = tmp_path / "rank_1.json"
    path.write_text(json.dumps(told, sort_keys=True, separators=(",", ":")))
    assert detect(source(path)) == "flight-recorder"
    found, same = tables(path), tables(written(tmp_path, plain, "rank_1"))
    for name in ("collectives", "comms", "progress"):
        assert found[name] == same[name]
    # Entry 0 is behind what the group's status says is complete.
    assert [r["state"] for r in found["collectives"]] == ["completed", "completed"]
    assert found["progress"][0]["last_started"] is None
    del told["entries"]  # JSON leaves it out where there is none
    path.write_text(json.dumps(told))
    assert codes(tables(path)) == {"no_entries": 1, "groups_without_entry": 1}


def test_coalesced_blocks_count_once(tmp_path):
    times = {"state": "completed", "time_discovered_started_ns": 100,
             "time_discovered_completed_ns": 300}  # fmt: skip
    p2p = {"group": "0", "is_p2p": True, "p2p_seq_id": 9}
    found = tables(
        written(
            tmp_path,
            dump_of(
                entry(0, 1, "nccl:_reduce_scatter_base"),
                entry(1, 1, "nccl:_reduce_scatter_base"),
                entry(2, 1, "nccl:coalesced", input_sizes=[], output_sizes=[], input_dtypes=[],
                      output_dtypes=[], **times),
                entry(3, 2),
                entry(4, 6, "nccl:send 1->2", **p2p),
                entry(5, 6, "nccl:recv 1<-0", **p2p),
                entry(6, 6, "nccl:coalesced", **p2p, **times),
                entry(7, 3, "nccl:allreduce_coalesced"),
                entry(8, 7, "nccl:coalesced", input_sizes=[], output_sizes=[], input_dtypes=[],
                      output_dtypes=[]),
            ),
        )
    )  # fmt: skip
    rows = sorted(found["collectives"], key=lambda r: r["event_id"])
    keys = ("op", "seq", "peer", "coalesced", "in_bytes", "state", "start_ns", "end_ns")
    assert [tuple(r[k] for k in keys) for r in rows] == [
        ("reduce_scatter", 1, None, 2, 32, "completed", 100, 300),
        ("all_reduce", 2, None, None, 16, "scheduled", None, None),
        ("send", None, 2, 2, 16, "completed", 100, 300),
        ("recv", None, 0, 2, 16, "completed", 100, 300),
        ("all_reduce", 3, None, None, 16, "scheduled", None, None),
        # Before PyTorch 2.7 a block of collectives has its closing entry only.
        ("unknown", 7, None, None, None, "scheduled", None, None),
    ]


def test_what_is_not_in_the_dump_is_said(tmp_path):
    active = tables(written(tmp_path, dump_of(entry(90, 5), entry(95, 9))))
    assert codes(active) == {"only_active": 4, "window": 1}
    holes = tables(written(tmp_path, dump_of(entry(90, 5, state="completed"), entry(92, 9))))
    assert codes(holes) == {"entries_missing": 1, "window": 1}
    stacks = entry(0, 1, frames=[{"name": "f", "filename": "x.py", "line": 3}])
    newer = dump_of(stacks, version="3.0") | {"nccl_comm_state": {"a": {}}}
    assert codes(tables(written(tmp_path, newer))) == {
        "frames_not_stored": 1, "new_version": 1, "nccl_state_not_stored": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "rank"),
    [("nccl_trace_rank_7", 7), ("_dump_12", 12), ("a.zip!b/fr_3.json.gz", 3), ("/x/7", 7),
     ("dump_20251231", None), ("rank", None), ("dump_7.pickle", 7), ("x7y", None)],
)  # fmt: skip
def test_rank_of_a_name(name, rank):
    assert flight_recorder.rank_of_name(name) == rank


def test_the_rank_comes_from_the_user_the_name_or_the_groups(tmp_path):
    path = written(tmp_path, dump_of(entry(0, 1)), "dump_3")
    assert tables(path)["ranks"][0]["rank"] == 3
    assert tables(path, rank=1)["ranks"][0]["rank"] == 1
    # Neither 2 nor 9 is a member of all of its groups.
    for strange, code in ((2, "rank_not_in_groups"), (9, "rank_beyond_world")):
        found = tables(path, rank=strange)
        assert found["ranks"][0]["rank"] == strange
        assert codes(found)[code] == 1
    nameless = written(tmp_path, dump_of(entry(0, 1)), "dump")
    with pytest.raises(RankUnknown, match="--rank"):
        tables(nameless)
    only = dump_of(entry(0, 1)) | {"pg_config": {**GROUPS, "8": {"name": "8", "ranks": "[3, 2]"}}}
    found = tables(written(tmp_path, only, "dump"))
    assert found["ranks"][0]["rank"] == 3
    assert codes(found) == {"rank_from_groups": 1}


def test_hostile_and_broken_dumps_are_refused(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path / 'ran'}",)

    with pytest.raises(UnusableInput, match=r"(posix|nt)\.system"):
        tables(written(tmp_path, dump_of(entry(0, 1, profiling_name=Evil()))))
    assert not (tmp_path / "ran").exists()
    path = written(tmp_path, dump_of(entry(0, 1)))
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(Damaged, match="cut"):
        tables(path)
    path.write_text('{"pg_config": ' + '{"a":' * 200_000)
    with pytest.raises(UnusableInput, match="nested too deep"):
        tables(path)
    for nothing in ([], {"a": 1}, 7):
        with pytest.raises(UnusableInput, match="no Flight Recorder dump"):
            tables(written(tmp_path, nothing))


def test_of_a_cut_dump_the_whole_entries_are_kept(tmp_path, retime_traces):
    data = (retime_traces / REAL / "gpu_error_1st" / "_dump_14").read_bytes()
    path = tmp_path / "_dump_14"
    path.write_bytes(data)
    whole = tables(path)
    # A dictionary ends in SETITEMS: 13 groups and pg_config, 13 states and pg_status, 43 entries.
    ends = [at for op, _, at in pickletools.genops(data) if op.name == "SETITEMS"][28:]
    assert len(ends) == 43 + 1
    half = sum(at < len(data) // 2 for at in ends)
    for cut, kept in ((len(data) - 1, 43), (ends[41] + 40, 42), (len(data) // 2, half)):
        path.write_bytes(data[:cut])
        found = tables(path)
        assert found["collectives"] == whole["collectives"][:kept]
        assert len(found["progress"]) == 13
        assert [p["severity"] for p in found["problems"] if p["code"] == "truncated"] == ["lost"]
    path.write_bytes(data[:500])  # in pg_config
    with pytest.raises(Damaged, match="cut"):
        tables(path)


def test_values_of_any_type_in_any_place_end_in_rows_and_problems(tmp_path):
    values = [None, -1, 1 << 80, "x", "\ud800", [], {}, [None], 1e400, (1,), b"\xff", True,
              {"ranks": "[0, 99999999999]"}, [[1 << 70]], "[1, 1]", [[-1]]]  # fmt: skip
    rng = random.Random(7)
    for _ in range(600):
        status = {"last_enqueued_collective": 2, "last_completed_collective": 1}
        d = dump_of(entry(0, 1), entry(1, 2, "nccl:send 0->1", is_p2p=True), status={"5": status})
        d["pg_config"] = {k: dict(v) for k, v in GROUPS.items()}
        for _ in range(3):
            into = rng.choice([d, *d["entries"], d["pg_config"], d["pg_config"].get("5"), status]
                              if type(d["pg_config"]) is dict and type(d["entries"]) is list
                              else [d])  # fmt: skip
            if type(into) is dict and into:
                into[rng.choice(list(into))] = rng.choice(values)
        found = tables(written(tmp_path, d))
        assert [r["rank"] for r in found["ranks"]] == [1]


def test_what_is_no_dump_is_not_taken(retime_traces):
    heads = [
        pickle.dumps({"version": 1}), b"{}", b"", b"\x80", b'{"schemaVersion": 1, "traceEvents": [',
        b'{"distributedInfo": {"pg_config": [{"pg_name": "0"}]}, "traceEvents": [',
        (retime_traces / "moe/OLMoE/olmoe/expert_counts/c4.pkl").read_bytes(),
    ]  # fmt: skip
    assert not any(flight_recorder.looks_like(h, "dump_rank_3") for h in heads)


JOB = """
import sys, time, torch, torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace, _dump_fr_trace_json
store = "file://" + sys.argv[1] + "/store"
dist.init_process_group("gloo", init_method=store, rank=0, world_size=1)
for n in (3, 4):
    dist.all_reduce(torch.ones(n))
dist.barrier()
for _ in range(20):  # a thread of torch's own still notes what ended
    dump, text = _dump_fr_trace(), _dump_fr_trace_json()
    if dump == _dump_fr_trace():
        break
    time.sleep(0.05)
open(sys.argv[1] + "/fr_0", "wb").write(dump)
open(sys.argv[1] + "/fr_0.json", "wb").write(text if isinstance(text, bytes) else text.encode())
dist.destroy_process_group()
"""


def test_a_dump_that_pytorch_writes_now(tmp_path):
    pytest.importorskip("torch")
    env = {**os.environ, "TORCH_FR_BUFFER_SIZE": "10"}
    ran = subprocess.run([sys.executable, "-c", JOB, str(tmp_path)], env=env, capture_output=True,
                         text=True, timeout=120)  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    found, same = tables(tmp_path / "fr_0"), tables(tmp_path / "fr_0.json")
    comm = identity("0", (0,), 1)
    assert [(r["comm"], r["seq"], r["op"], r["dtype"], r["in_bytes"], r["state"])
            for r in found["collectives"]] == [
        (comm, 1, "all_reduce", "float32", 12, "completed"),
        (comm, 2, "all_reduce", "float32", 16, "completed"),
        (comm, 3, "barrier", None, None, "completed"),
    ]  # fmt: skip
    assert found["collectives"] == same["collectives"]
    assert [(c["backend"], c["dim"]) for c in found["comms"]] == [("gloo", "world")]
    assert codes(found) == {"frames_not_stored": 3}
