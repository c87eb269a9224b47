"""Files of NCCL's example profiler plugin, of every form that its releases wrote.

There is no real one to test with: the lines are built here as the plugin prints them (nested in
the order of its print functions, times with six places, the tail `{}]`), each generation with its
own members: 2.23 to 2.26 (Send and Recv of the proxy with states, no clock of the kernel), 2.27
(schedule and progress, the kernel's clock), 2.28 to 2.29.2 (bare pointers and type names, API
events with times of 0), later ones.
"""

import json
import random

import pytest
from retime.ingest.errors import UnusableInput
from retime.ingest.kineto import parser as kineto
from retime.ingest.nccl import profiler
from retime.ingest.schema import event_id
from retime.ingest.sources import Source, find_sources

HASH = 673864846479792718
COMM = f"nccl-{HASH:016x}"
PID = 4157654


def event(name, cat, ph, id, ts, args=None) -> str:
    tail = f', "args": {args}' if args is not None else ""
    return (
        f'{{"name": "{name}", "cat": "{cat}", "ph": "{ph}", "id": {id}, "pid": {PID}, "tid": 1, '
        f'"ts": {ts:.6f}{tail}}},\n'
    )


def both(name, cat, id, start, stop, args=None, inside="") -> str:
    return event(name, cat, "b", id, start, args) + inside + event(name, cat, "e", id, stop)


def coll_args(seq=0, rank=1, hash=HASH, count=32768, channels="nChannels") -> str:
    return (
        f'{{"SeqNum": {seq}, "CommHash": {hash}, "Rank": {rank}, "Count": {count}, "Datatype": '
        f'"ncclFloat32", "Algorithm": "RING", "Protocol": "LL", "{channels}": 2}}'
    )


def proxy_args(channel=0, peer=0, size=229376) -> str:
    return (
        f'{{"Channel": {channel}, "Peer": {peer}, "Steps": 14, "ChunkSize": 32768, '
        f'"transSize": {size}}}'
    )


def kernel(channel, begin, stop, clocks=None, inside="") -> str:
    args = f'{{"Channel": {channel}'
    args += f', "StartGpuClk": {clocks[0]}, "StopGpuClk": {clocks[1]}}}' if clocks else "}"
    return both("KernelCh", "GPU", 0, begin, stop, args, inside)


def whole(*texts: str) -> str:
    return "[\n" + "".join(texts) + "{}]\n"


def group(inside: str, id=0) -> str:
    return both("Group", "GROUP", id, 764234.611328, 772209.418945, '{"groupId": 0}', inside)


@pytest.fixture
def read(tmp_path):
    """Rows by table (problems by code) of one file, or of several by name as a bundle."""

    def of(text, name: str = f"trace_{HASH}_1.json", rank=None):
        files = text if isinstance(text, dict) else {name: text}
        sources = []
        for n, t in files.items():
            path = tmp_path / n
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(t if isinstance(t, bytes) else t.encode())
            sources.append(next(iter(find_sources([str(path)], lambda *a, **k: None))))
        source = sources[0]
        if isinstance(text, dict):
            source = Source(str(tmp_path), 1, source.open_stored, members=tuple(sources))
        tables: dict = {"collectives": [], "transfers": [], "comms": [], "ranks": []}
        for table, batch in profiler.parse(source, rank=rank):
            tables.setdefault(table, []).extend(batch.to_pylist())
        tables["problems"] = {p["code"]: p for p in tables.get("problems", [])}
        return tables

    return of


FIRST = group(
    both(
        "AllReduce", "COLL", 0, 764237.294922, 772209.317383, coll_args(channels="nMaxChannels"),
        both(
            "Recv", "PROXY", 0, 768464.936523, 772201.538086,
            '{"Channel": 0, "Peer": 0, "Steps": 14, "ChunkSize": 32768, "transSize": 229376, '
            '"POSTED": {"step": 14, "ts": 772020.300781}, "DONE": {"step": 14, "ts": 1.5}}',
            both("RecvBufferWait", "NET", 0, 768465.158203, 768477.924805, '{"Step": 0}')
            + both("RecvWait", "NET", 0, 768477.924805, 768547.197266, '{"Step": 0}'),
        )
        + both(
            "Send", "PROXY", 1, 768482.878906, 772208.473633,
            '{"Channel": 3, "Peer": 2, "Steps": 14, "ChunkSize": 32768, "transSize": 100}',
        ),
    )
)  # fmt: skip


def test_first_generation_with_the_proxys_times(read):
    tables = read(whole(FIRST), "dump-host7-4157699.txt")
    (row,) = tables["collectives"]
    assert row | {"collective_id": None} == row
    wanted = {
        "comm": COMM, "seq": 0, "rank": 1, "op": "all_reduce", "dtype": "float32",
        "in_bytes": 131072, "out_bytes": 131072, "algo": "ring", "proto": "LL", "channels": 2,
        # The proxy's first begin and last end.
        "start_ns": 768464937, "end_ns": 772208474, "timing": "proxy", "clock": "process",
        "enqueued_ns": 764237295, "state": "completed", "source": "profiler",
        "event_id": event_id(1, "profiler", 0), "group_size": None, "peer": None,
    }  # fmt: skip
    assert {k: row[k] for k in wanted} == wanted
    assert [
        (t["direction"], t["channel"], t["peer_rank"], t["bytes"], t["start_ns"], t["end_ns"])
        for t in tables["transfers"]
    ] == [
        ("recv", 0, 0, 229376, 768464937, 772201538),
        # A step's time on the wire; its bytes are the operation's.
        ("recv", 0, 0, None, 768477925, 768547197),
        ("send", 3, 2, 100, 768482879, 772208474),
    ]
    assert {(t["rank"], t["event_id"], t["measured"], t["via"], t["nic"], t["clock"])
            for t in tables["transfers"]} == {
        (1, event_id(1, "profiler", 0), True, "NET", None, "process")
    }  # fmt: skip
    assert [(r["rank"], r["host"], r["pid"], r["clock"]) for r in tables["ranks"]] == [
        (1, "host7", PID, "process")
    ]
    assert [(c["comm"], c["size"], c["member"], c["member_place"]) for c in tables["comms"]] == [
        (COMM, None, 1, 1)
    ]
    assert {p["severity"] for p in tables["problems"].values()} == {"info"}


def test_the_kernels_clock_gives_the_duration(read):
    # The host learns of the starts 900 and 700 us late, of the stops 400 and 500 us late.
    kernels = kernel(0, 1000.9, 1600.4, (5_000_000, 5_600_000)) + kernel(
        1, 1001.7, 1700.5, (5_001_000, 5_700_000)
    )
    (row,) = read(whole(both("AllGather", "COLL", 0, 990.0, 995.5, coll_args(7), kernels)))[
        "collectives"
    ]
    # The smallest of b - start and e - stop: -3,999,100, -3,999,300, -3,999,600, -3,999,500.
    assert (row["start_ns"], row["end_ns"]) == (5_000_000 - 3_999_600, 5_700_000 - 3_999_600)
    assert (row["timing"], row["seq"], row["op"]) == ("kernel", 7, "all_gather")
    assert (row["in_bytes"], row["out_bytes"]) == (131072, None)


def test_channels_without_the_clock_give_the_hosts_view_of_the_kernel(read):
    kernels = kernel(0, 1000.9, 1600.4) + kernel(1, 1001.7, 1700.5)
    (row,) = read(whole(both("AllReduce", "COLL", 0, 990.0, 995.5, coll_args(), kernels)))[
        "collectives"
    ]
    assert (row["start_ns"], row["end_ns"], row["timing"]) == (1000900, 1700500, "kernel")


def test_an_operation_alone_has_its_launch(read):
    tables = read(whole(both("AllReduce", "COLL", 0, 990.0, 995.5, coll_args())))
    (row,) = tables["collectives"]
    assert (row["start_ns"], row["end_ns"], row["timing"]) == (990000, 995500, "host")
    assert tables["problems"]["host_times_only"]["severity"] == "info"


SCHEDULED = (
    both("ScheduleSend", "PROXY", 4, 10.0, 12.0, proxy_args(5, 2, 1000))
    + event("ProgressSend", "PROXY", "b", 4, 12.0, proxy_args(5, 2, 1000))
    + both("SendGpuWait", "NET", 9, 12.5, 13.0, '{"Step": 0}')
    + both("SendPeerWait", "NET", 9, 13.0, 13.5, '{"Step": 0}')
    + event("SendWait", "NET", "b", 9, 13.5, '{"Step": 0}')
    + both("Qp", "NET_IB", 3, 13.75, 15.0,
           '{"device": 1, "qp_num": 77, "opcode": 0, "wr_id": 1, "size": 400}')
    + both("Qp", "NET_IB", 4, 13.8, 15.5,
           '{"device": 2, "qp_num": 78, "opcode": 0, "wr_id": 1, "size": 300}')
    + event("SendWait", "NET", "e", 9, 16.0)
    + event("ProgressSend", "PROXY", "e", 4, 20.0)
)  # fmt: skip


def test_bytes_of_devices_and_of_the_rest_count_once(read):
    tables = read(whole(both("AllReduce", "COLL", 0, 1.0, 30.0, coll_args(), SCHEDULED)))
    rows = tables["transfers"]
    assert [(t["via"], t["nic"], t["bytes"], t["start_ns"], t["end_ns"]) for t in rows] == [
        ("NET", None, 300, 12000, 20000),
        ("NET", None, None, 13500, 16000),
        ("NET/IB", "ib1", 400, 13750, 15000),
        ("NET/IB", "ib2", 300, 13800, 15500),
    ]
    assert sum(t["bytes"] or 0 for t in rows) == 1000
    assert {(t["channel"], t["peer_rank"], t["direction"]) for t in rows} == {(5, 2, "send")}
    (row,) = tables["collectives"]
    assert (row["start_ns"], row["end_ns"], row["timing"]) == (12000, 20000, "proxy")


def test_sockets(read):
    sock = both("Sock", "NET_SOCK", 0, 3.0, 4.0, '{"sock": 9, "op": 1, "size": 1000}')
    inside = both("ProgressRecv", "PROXY", 0, 2.0, 5.0, proxy_args(0, 0, 1000), sock)
    (row,) = read(whole(both("AllReduce", "COLL", 0, 1.0, 30.0, coll_args(), inside)))["transfers"]
    assert (row["via"], row["bytes"], row["direction"], row["nic"]) == (
        "NET/Socket",
        1000,
        "recv",
        None,
    )


def invalid(stream="0x7f3c5c000b70", dtype="ncclFloat32") -> str:
    """The API events of 2.28 to 2.29.2, whose line is no JSON and whose times are 0."""
    api = (
        f'{{"count": 32768, "datatype": {dtype}, "root": 2, "GraphCaptured": 0, '
        f'"Stream": {stream}}}'
    )
    launch = both("KernelLaunch", "KERNEL_LAUNCH", 0, 0.0, 0.0,
                  f'{{"groupId": 0, "Stream": {stream}}}')  # fmt: skip
    inside = both("Broadcast", "COLL", 0, 990.0, 995.5, coll_args(1), kernel(0, 1000.0, 1010.0))
    return both(
        "Group API", "GROUP_API", 0, 980.0, 1020.0, '{"groupApiId": 0, "groupDepth": 1}',
        launch + both("Broadcast", "COLL_API", 0, 0.0, 0.0, api, inside),
    )  # fmt: skip


@pytest.mark.parametrize("stream", ["0x7f3c5c000b70", "(nil)", '"0x7f3c5c000b70"'])
@pytest.mark.parametrize("dtype", ["ncclFloat32", '"ncclFloat32"'])
def test_lines_that_are_no_json(read, stream, dtype):
    tables = read(whole(invalid(stream, dtype)))
    (row,) = tables["collectives"]
    assert (row["op"], row["start_ns"], row["end_ns"]) == ("broadcast", 1000000, 1010000)
    # The API event's time was never taken: the operation's own is when it was enqueued.
    assert row["enqueued_ns"] == 990000
    # The root is a rank of the largest communicator that is known, rank 2 of at least 2 here.
    assert row["root"] is None
    mended = tables["problems"].get("invalid_json")
    bare = stream[0] != '"' or dtype[0] != '"'
    assert (mended["severity"] if mended else None) == ("info" if bare else None)


def test_p2p(read):
    args = (
        f'{{"CommHash": {HASH}, "Rank": 1, "Peer": %d, "Count": 256, "Datatype": "ncclBfloat16", '
        '"nChannels": 1}'
    )
    text = both("Send", "P2P", 0, 1.0, 2.0, args % 3, kernel(0, 1.5, 2.5))
    text += both("Recv", "P2P", 1, 1.0, 2.0, args % 0, kernel(0, 1.6, 2.6))
    tables = read(whole(text))
    assert [
        (r["op"], r["peer"], r["seq"], r["in_bytes"], r["out_bytes"], r["dtype"], r["channels"])
        for r in tables["collectives"]
    ] == [
        ("send", 3, None, 512, None, "bfloat16", 1),
        ("recv", 0, None, None, 512, "bfloat16", 1),
    ]


def test_a_file_cut_by_a_crash(read):
    text = whole(FIRST)
    for at in range(10, len(text) - 2, 97):
        tables = read(text[:at]) if text[:at].count("\n") > 1 else None
        if tables is not None:
            assert tables["problems"]["truncated"]["severity"] == "lost"
            assert len(tables["collectives"]) == ('"nMaxChannels": 2}}' in text[:at])
    tables = read(text[: text.index('"RecvWait"')])
    assert [(r["state"], r["end_ns"]) for r in tables["collectives"]] == [("started", None)]
    assert tables["problems"]["unclosed_operation"]["count"] == 1


def test_a_folder_of_ranks_and_communicators(read):
    pair, files = 12345678901234567, {}
    for rank in range(4):
        own = str(1000 + rank)
        text = both("AllReduce", "COLL", 0, 1.0, 2.0, coll_args(0, rank))
        files[f"t_{HASH}_{rank}.json"] = whole(text).replace(str(PID), own)
        text = both("ReduceScatter", "COLL", 0, 1.0, 2.0, coll_args(0, rank % 2, pair + rank // 2))
        files[f"t_{pair + rank // 2}_{rank % 2}.json"] = whole(text).replace(str(PID), own)
    tables = read(files)
    assert sorted(
        (r["comm"], r["rank"], r["group_size"], r["in_bytes"]) for r in tables["collectives"]
    ) == sorted(
        [(COMM, rank, 4, 131072) for rank in range(4)]
        + [(f"nccl-{pair + rank // 2:016x}", rank, 2, 262144) for rank in range(4)]
    )
    assert [r["rank"] for r in tables["ranks"]] == [0, 1, 2, 3]
    assert sorted((c["comm"], c["size"], c["member"], c["member_place"]) for c in tables["comms"]
                  if c["size"] == 2) == sorted(
        (f"nccl-{pair + rank // 2:016x}", 2, rank, rank % 2) for rank in range(4)
    )  # fmt: skip
    assert len({r["event_id"] for r in tables["collectives"]}) == 8
    # All files: nothing about sizes is unknown.
    assert "size_unknown" not in tables["problems"]


def test_processes_of_several_hosts_with_one_pid_are_not_mixed_up(read):
    pair = 12345678901234567
    files = {
        f"t_{HASH}_{rank}.json": whole(both("AllReduce", "COLL", 0, 1.0, 2.0, coll_args(0, rank)))
        for rank in range(2)
    }
    files[f"t_{pair}_0.json"] = whole(both("AllReduce", "COLL", 0, 1.0, 2.0, coll_args(0, 0, pair)))
    tables = read(files)
    assert sorted(r["rank"] for r in tables["collectives"]) == [0, 1]
    assert tables["problems"]["rank_unknown"]["severity"] == "lost"


def test_copy_engine_collectives_and_what_has_no_place(read):
    args = (
        '{"eventId": 3, "count": 1024, "datatype": "ncclFloat16", "strategy": "x", '
        '"start_ts_cpu": 1.0, "stop_ts_cpu": 2.0, "duration_cpu_us": 1.0, "duration_gpu_us": 55}'
    )
    sync = both("CeSync", "CE_SYNC", 0, 11.0, 12.0, '{"eventId": 1}')
    text = both("AllGather", "CE_COLL", 0, 10.0, 70.0, args, sync)
    text += both("Idle", "PROXY", 0, 1.0, 2.0) + both("KernelStep", "GPU", 0, 1.0, 2.0, "{}")
    tables = read(whole(text))
    (row,) = tables["collectives"]
    assert (row["op"], row["rank"], row["comm"], row["exec_ns"], row["algo"], row["timing"]) == (
        "all_gather",
        1,
        COMM,
        55000,
        "copy_engine",
        "kernel",
    )
    assert (row["start_ns"], row["end_ns"], row["in_bytes"]) == (10000, 70000, 2048)
    assert {c for c in tables["problems"] if c.startswith("not_read")} == {
        "not_read_ce_sync",
        "not_read_proxy_control",
        "not_read_kernelstep",
    }


def test_detached_proxy_operations_belong_to_no_collective(read):
    tables = read(whole(both("ProgressSend", "PROXY", 0, 2.0, 5.0, proxy_args())))
    (row,) = tables["transfers"]
    assert (row["rank"], row["event_id"], row["peer_rank"], row["bytes"]) == (1, None, None, 229376)
    assert tables["problems"]["detached_proxy_operations"]["count"] == 1


def test_detection():
    for text in (whole(FIRST), whole(invalid())):
        head = text.encode()
        assert profiler.looks_like(head, "x.txt")
        # Kineto's reader takes arrays of events too, and is asked before.
        assert not kineto.looks_like(head, "x.txt")
    assert profiler.looks_like(b"[\n{}]\n", f"t_{HASH}_0.json")
    for head in (b"[\n{}]\n", b"[]", b"", b'[{"name": "x", "ph": "X", "ts": 1}]', b"[" * 65536,
                 b'[{"name": "x", "cat": "COLL", "ph": "X"}]'):  # fmt: skip
        assert not profiler.looks_like(head, "trace.json")


def test_bundles(tmp_path):
    inside = tmp_path / f"t_{HASH}_0.json"
    inside.write_text(whole(FIRST))
    other = tmp_path / "trace_1764500000000000000_0.json"
    other.write_text('{"traceEvents": []}')
    assert profiler.bundle_of(str(inside)) == str(tmp_path)
    assert profiler.bundle_of(str(other)) is None
    assert profiler.bundle_of(f"/no/where.tar!job/t_{HASH}_0.json") == "/no/where.tar!job"
    assert profiler.bundle_of("/no/where.tar!job/t_1764500000000000000_0.json") is None
    assert profiler.bundle_of("/no/where.tar!job/t_17_0.json") is None
    assert profiler.bundle_of("/no/where/rank0.json") is None


def test_no_real_file_of_another_kind_is_taken(retime_traces):
    for path in retime_traces.rglob("*"):
        if path.is_file():
            with path.open("rb") as f:
                assert not profiler.looks_like(f.read(65536), str(path)), path
            assert profiler.bundle_of(str(path)) is None


@pytest.mark.parametrize("text", ["[\n{}]\n", "[\n", "[\nx\n", '[{"a": 1}]', "[" * 100000])
def test_files_without_an_event_are_refused(read, text):
    with pytest.raises(UnusableInput):
        read(text)


WRONG = ["null", '"x"', "true", "-1", "1" + "0" * 30, "1e400", "1e" + "9" * 20, "[]", "{}", "nan",
         "-nan", "0x", "", str((1 << 63) - 1), str(-(1 << 63)), "-0.5", "[" * 2000]  # fmt: skip


def test_any_value_may_be_anything(read):
    """Each value of each line in turn becomes what does not belong there."""
    base = whole(both("AllReduce", "COLL", 0, 1.0, 30.0, coll_args(), SCHEDULED), invalid())
    rng = random.Random(7)
    lines = base.split("\n")
    n = 0
    for at, line in enumerate(lines):
        if '"ph"' not in line:
            continue
        parts = line.split(": ")
        for i in range(1, len(parts)):
            value, tail = parts[i], ""
            for stop in (",", "}"):
                if stop in value:
                    value, tail = value[: value.index(stop)], value[value.index(stop) :]
            wrong = rng.choice(WRONG)
            changed = [*parts[:i], wrong + tail, *parts[i + 1 :]]
            text = "\n".join([*lines[:at], ": ".join(changed), *lines[at + 1 :]])
            assert read(text)["collectives"] is not None
            n += 1
    assert n > 200


def test_events_of_a_valid_json_file_on_one_line(read):
    events = json.loads(whole(FIRST))
    tables = read(json.dumps(events[:-1]))
    assert len(tables["collectives"]) == 1
    assert len(tables["transfers"]) == 3
    assert "truncated" not in tables["problems"]
