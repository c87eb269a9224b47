"""NCCL Inspector's files of every generation.

There is no real one to test with: the lines are built here as the plugin's own writer prints them
(members and their order, no spaces, doubles with six places, NaN as "nan", ids cut to 14 digits).
"""

import json
import random

import pytest
from retime.ingest.errors import UnusableInput, UsageError
from retime.ingest.nccl import inspector
from retime.ingest.nccl.comm_places import buffers, comm_of_cut_hex, comm_of_hash
from retime.ingest.schema import event_id
from retime.ingest.sources import find_sources

WORLD, PAIR = "0x7a1b2c3d4e5f60", "0x335af42abcea1"


def header(id: str = WORLD, rank: int = 3, n: int = 8, name: str | None = None) -> dict:
    named = {} if name is None else {"comm_name": name}
    return {"id": id, **named, "rank": rank, "n_ranks": n, "nnodes": 1}


def metadata(version: str = "v4.0") -> dict:
    return {"inspector_output_format_version": version, "git_rev": "",
            "rec_mechanism": "nccl_profiler_interface", "dump_timestamp_us": 1780000000000000,
            "hostname": "h0", "pid": 77}  # fmt: skip


def coll(name: str, sn: int, size: int = 8192, micros: int = 61, **more) -> dict:
    return {"coll": name, "coll_sn": sn, "coll_msg_size_bytes": size, "coll_exec_time_us": micros,
            "coll_timing_source": "kernel_gpu", "coll_algobw_gbs": "nan",
            "coll_busbw_gbs": 0.235016, **more}  # fmt: skip


def p2p(name: str, sn: int, peer: int) -> dict:
    return {"p2p": name, "p2p_sn": sn, "p2p_peer": peer, "p2p_msg_size_bytes": 4096,
            "p2p_exec_time_us": 12, "p2p_timing_source": "kernel_cpu", "p2p_algobw_gbs": 0.34,
            "p2p_busbw_gbs": 0.34}  # fmt: skip


def text_of(*records: dict) -> str:
    return "".join(json.dumps(r, separators=(",", ":")) + "\n" for r in records)


def record(perf: dict, kind: str = "coll_perf", **of) -> dict:
    return {"header": header(**of), "metadata": metadata(), kind: perf}


VERBOSE = {
    "event_trace_sn": {"coll_start_sn": 1, "coll_stop_sn": 2, "kernel_events": []},
    "event_trace_ts": {
        "coll_start_ts": 1752867229235059,
        "coll_stop_ts": 1752867229235064,
        "kernel_events": [
            {"channel_id": 0, "kernel_start_ts": 1752867229235181,
             "kernel_stop_ts": 1752867229275811, "kernel_record_ts": 1752867229275811},
            {"channel_id": 1, "kernel_start_ts": 1752867229235180,
             "kernel_stop_ts": 1752867229275815, "kernel_record_ts": 1752867229275815},
        ],
    },
}  # fmt: skip


@pytest.fixture
def read(tmp_path):
    """Rows by table of a file with this text (problems by code)."""

    def of(text: str | bytes, rank: int | None = None, taken: bool = True):
        path = tmp_path / "h0-pid77.log"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        source = next(iter(find_sources([str(path)], lambda *a, **k: None)))
        assert inspector.looks_like(source.head(65536), source.name) or not taken
        tables: dict = {"collectives": [], "transfers": [], "comms": [], "ranks": []}
        for table, batch in inspector.parse(source, rank=rank):
            tables.setdefault(table, []).extend(batch.to_pylist())
        tables["problems"] = {p["code"]: p for p in tables.get("problems", [])}
        return tables

    return of


def test_first_generation(read):
    tables = read(
        text_of(
            record(coll("AllReduce", 41)),
            record(coll("AllGather", 7, 4096)),
            record(coll("ReduceScatter", 5, 1024), id=PAIR, rank=1, n=2),
        )
    )
    rows = tables["collectives"]
    assert [
        (r["comm"], r["seq"], r["op"], r["in_bytes"], r["out_bytes"], r["group_size"]) for r in rows
    ] == [
        ("nccl-7a1b2c3d4e5f60*", 41, "all_reduce", 8192, 8192, 8),
        ("nccl-7a1b2c3d4e5f60*", 7, "all_gather", 4096, 32768, 8),
        ("nccl-000335af42abcea1", 5, "reduce_scatter", 2048, 1024, 2),
    ]
    assert {
        (r["rank"], r["exec_ns"], r["timing"], r["clock"], r["start_ns"], r["state"], r["source"])
        for r in rows
    } == {(3, 61000, "kernel", None, None, "completed", "inspector")}
    assert len({r["event_id"] for r in rows}) == 3
    assert all(event_id(3, "inspector", 0) <= r["event_id"] for r in rows)
    assert [(r["rank"], r["host"], r["pid"], r["clock"]) for r in tables["ranks"]] == [
        (3, "h0", 77, "none")
    ]
    assert [(c["comm"], c["size"], c["member"], c["member_place"]) for c in tables["comms"]] == [
        ("nccl-7a1b2c3d4e5f60*", 8, 3, 3),
        ("nccl-000335af42abcea1", 2, 3, 1),
    ]
    assert set(tables["problems"]) == {"rank_from_communicator"}


def test_the_gaps_of_sampling_are_counted_by_function(read):
    tables = read(
        text_of(
            *(record(coll("AllReduce", sn)) for sn in (41, 42, 45, 50)),
            record(coll("AllGather", 2)),
            record(coll("AllGather", 3)),
        )
    )
    assert tables["problems"]["sampled"]["count"] == 6
    assert tables["problems"]["sampled"]["rank"] == 3


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param({"name": "moe{ep}:3", "n": 4}, id="braces in the name"),
        pytest.param({"n": 0}, id="no size"),
        pytest.param({"n": 2, "rank": 3}, id="a rank beyond the size"),
        pytest.param({"n": 1 << 40}, id="an impossible size"),
        pytest.param({"name": "x" * 3000, "n": 4}, id="a long name"),
    ],
)
def test_each_communicator_of_a_record_has_a_row(read, odd):
    """What the first reading finds is what the second one does."""
    tables = read(text_of(record(coll("AllReduce", 1)), record(coll("AllReduce", 1), id=PAIR,
                                                                **odd)))  # fmt: skip
    named = {r["comm"] for r in tables["comms"]}
    assert len(named) == 2
    assert {r["comm"] for r in tables["collectives"]} == named
    size = odd["n"] if odd["n"] == 4 else None
    assert tables["collectives"][1]["group_size"] == size
    assert tables["collectives"][1]["rank"] == 3
    assert ("size_unknown" in tables["problems"]) is (size is None)


def test_a_rank_that_is_none_names_no_communicator(read):
    tables = read(text_of(record(coll("AllReduce", 1)), record(coll("AllReduce", 1), id=PAIR,
                                                                rank=-1)))  # fmt: skip
    assert len(tables["collectives"]) == len(tables["comms"]) == 1
    assert "no_communicator" in tables["problems"]


def test_verbose_records_have_starts(read):
    tables = read(text_of(record(coll("AllReduce", 1, **VERBOSE))))
    (row,) = tables["collectives"]
    assert (row["start_ns"], row["end_ns"], row["enqueued_ns"], row["exec_ns"]) == (
        1752867229235180000,
        1752867229275815000,
        1752867229235059000,
        61000,
    )
    assert (row["clock"], row["channels"], row["timing"]) == ("host", 2, "host")
    (rank,) = tables["ranks"]
    assert (rank["clock"], rank["start_ns"], rank["end_ns"]) == (
        "host",
        1752867229235180000,
        1752867229275815000,
    )


def test_second_generation_with_names_algorithms_and_p2p(read):
    more = {"coll_algo": "NVLS_TREE", "coll_proto": "SIMPLE"}
    of = {"id": PAIR, "rank": 1, "n": 2, "name": "tp:4"}
    tables = read(
        text_of(
            record(coll("AllReduce", 41, **more), name="default_pg:0"),
            record(p2p("Send", 9, 6), "p2p_perf", name="default_pg:0"),
            record(p2p("Recv", 9, 0), "p2p_perf", **of),
        )
    )
    rows = tables["collectives"]
    assert [
        (r["op"], r["algo"], r["proto"], r["seq"], r["peer"], r["in_bytes"], r["out_bytes"],
         r["exec_ns"])
        for r in rows
    ] == [
        ("all_reduce", "nvls_tree", "Simple", 41, None, 8192, 8192, 61000),
        ("send", None, None, None, 6, 4096, None, 12000),
        # The peer is a rank of the small communicator: no global rank.
        ("recv", None, None, None, None, None, 4096, 12000),
    ]  # fmt: skip
    assert [(c["name"], c["description"], c["dim"]) for c in tables["comms"]] == [
        ("default_pg:0", "default_pg", "world"),
        ("tp:4", "tp", "tp"),
    ]


def marker(colls: int, p2ps: int, proxies: int = 0, **more) -> dict:
    return {
        "header": header(name="default_pg:0"),
        "metadata": metadata("v4.3"),
        "dump_stats": {
            "coll_records": colls, "coll_dropped_total": 0, "coll_dropped_since_last_dump": 0,
            "p2p_records": p2ps, "p2p_dropped_total": 0, "p2p_dropped_since_last_dump": 0,
            "proxy_records": proxies, **more,
        },
    }  # fmt: skip


def test_third_generation_takes_the_communicator_from_the_dumps_first_line(read):
    tables = read(
        text_of(
            marker(2, 1, coll_dropped_since_last_dump=5),
            {"coll_perf": coll("AllReduce", 1)},
            {"coll_perf": coll("AllReduce", 2)},
            {"p2p_perf": p2p("Send", 1, 4)},
            {"coll_perf": coll("AllReduce", 3)},
            marker(2, 0),
            {"coll_perf": coll("AllReduce", 4)},
        )
    )
    assert [(r["op"], r["seq"], r["rank"]) for r in tables["collectives"]] == [
        ("all_reduce", 1, 3),
        ("all_reduce", 2, 3),
        ("send", None, 3),
        ("all_reduce", 4, 3),
    ]
    problems = tables["problems"]
    assert problems["dropped_by_writer"]["count"] == 5
    assert (problems["no_communicator"]["count"], problems["no_communicator"]["severity"]) == (
        1,
        "lost",
    )
    assert problems["dump_incomplete"]["severity"] == "lost"


def step(sn: int, **more) -> dict:
    return {"proxy_step_sn": sn, "step": sn, "trans_size_bytes": 100, "wire_us": 40,
            "event_trace_ts": {"proxy_step_start_ts": 1000100, "send_gpu_wait_ts": 1000110,
                               "send_peer_wait_ts": 1000130, "send_wait_ts": 1000160,
                               "proxy_step_stop_ts": 1000200}, **more}  # fmt: skip


def proxy(kind: str, **more) -> dict:
    return {"proxy_trace": {"record_type": kind, "record_sn": 1, "parent_type": "coll",
                            "parent_sn": 1, "proxy_op_sn": 12, "rank": 3, "channel_id": 5,
                            "peer": 4, "direction": "send", **more}}  # fmt: skip


OP = {"n_steps": 2, "n_steps_completed": 2, "n_steps_dropped": 0, "trans_size_bytes": 200,
      "event_trace_ts": {"proxy_op_start_ts": 1000080, "proxy_op_in_progress_ts": 1000090,
                         "proxy_op_stop_ts": 1000250}}  # fmt: skip


@pytest.mark.parametrize(
    ("records", "wanted"),
    [
        # Flat steps, then their operation, which repeats their bytes.
        (
            [
                proxy("proxy_step", **step(0)),
                proxy("proxy_step", **step(1)),
                proxy("proxy_op", **OP),
            ],
            [(100, 1000160000, 1000200000)] * 2,
        ),
        # Steps within the operation's records.
        (
            [
                proxy("proxy_op_start", is_final=False),
                proxy("proxy_op_segment", is_final=False, steps=[step(0)]),
                proxy("proxy_op", is_final=True, steps=[step(1)], **OP),
            ],
            [(100, 1000160000, 1000200000)] * 2,
        ),
        # Only the operation (NCCL_INSPECTOR_DUMP_PROXY_STEPS=0).
        ([proxy("proxy_op", **OP)], [(200, 1000090000, 1000250000)]),
    ],
)
def test_proxy_records_are_transfers(read, records, wanted):
    tables = read(
        text_of(marker(1, 0, len(records)), {"coll_perf": coll("AllReduce", 1)}, *records)
    )
    rows = tables["transfers"]
    assert [(t["bytes"], t["start_ns"], t["end_ns"]) for t in rows] == wanted
    parent = tables["collectives"][0]["event_id"]
    assert {
        (t["rank"], t["peer_rank"], t["channel"], t["direction"], t["measured"], t["event_id"],
         t["clock"], t["source"])
        for t in rows
    } == {(3, 4, 5, "send", True, parent, "host", "inspector")}  # fmt: skip
    assert tables["problems"]["no_nic"]["severity"] == "info"


def test_a_received_step_ends_where_its_data_is_there(read):
    times = {"proxy_step_start_ts": 100, "recv_wait_ts": 110, "recv_flush_wait_ts": 130,
             "recv_gpu_wait_ts": 160, "proxy_step_stop_ts": 200}  # fmt: skip
    made = proxy("proxy_step", **{**step(0), "event_trace_ts": times, "direction": "recv"})
    (row,) = read(text_of(marker(0, 0, 1), made))["transfers"]
    assert (row["direction"], row["start_ns"], row["end_ns"]) == ("recv", 110000, 130000)


def test_a_process_of_several_devices(read):
    text = text_of(
        record(coll("AllReduce", 1), rank=0),
        record(coll("AllReduce", 1), rank=1),
        record(coll("AllReduce", 1), id=PAIR, rank=0, n=2),
    )
    tables = read(text)
    assert [(r["rank"], r["comm"]) for r in tables["collectives"]] == [
        (0, "nccl-7a1b2c3d4e5f60*"),
        (1, "nccl-7a1b2c3d4e5f60*"),
    ]
    assert [r["rank"] for r in tables["ranks"]] == [0, 1]
    assert tables["problems"]["rank_unknown"]["severity"] == "lost"
    with pytest.raises(UsageError):
        read(text, rank=5)


def test_a_rank_that_is_given_counts_and_takes_the_peers_away(read):
    tables = read(text_of(record(p2p("Send", 1, 4), "p2p_perf")), rank=99)
    assert [(r["rank"], r["peer"]) for r in tables["collectives"]] == [(99, None)]
    assert [r["rank"] for r in tables["ranks"]] == [99]
    assert not tables["problems"]


def test_a_file_cut_in_a_line_and_lines_of_no_sense(read):
    good = text_of(record(coll("AllReduce", 1)))
    tables = read(good + "nonsense\n[]\n{}\n" + good[: len(good) // 2])
    assert len(tables["collectives"]) == 1
    assert tables["problems"]["not_a_record"]["count"] == 3
    assert tables["problems"]["unknown_record"]["count"] == 1


WRONG = [None, "x", True, -1, 1 << 70, 1e400, [], {}, [[[]]], "nan", -(1 << 63), (1 << 63) - 1]


def test_any_value_may_be_of_any_type(read):
    """Each member of each record in turn gets values that do not belong there."""
    base = [
        record(coll("AllReduce", 1, **VERBOSE), name="a:1"),
        marker(1, 1, 2),
        {"coll_perf": coll("AllReduce", 2)},
        {"p2p_perf": p2p("Send", 1, 4)},
        proxy("proxy_step", **step(0)),
        proxy("proxy_op", **OP),
    ]
    good = json.dumps(base[0]).replace(" ", "") + "\n"

    def places(node, path=()):
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            yield (*path, key)
            if isinstance(value, dict | list):
                yield from places(value, (*path, key))

    n = 0
    for at, whole in enumerate(base):
        for path in places(whole):
            for wrong in random.Random(n).sample(WRONG, 2):
                changed = json.loads(json.dumps(base))
                node = changed[at]
                for key in path[:-1]:
                    node = node[key]
                node[path[-1]] = wrong
                tables = read(good + text_of(*changed), taken=False)
                assert tables["collectives"]
                n += 1
    assert n > 200


def test_prometheus_text_of_the_first_generation(read):
    labels = (
        'comm_id="0xd152c00f111816",hostname="pool0-0002",rank="4",slurm_job="unknown",'
        'slurm_job_id="unknown",nranks="8",n_nodes="1",gpu_device_id="GPU4",'
        'collective="AllReduce",coll_sn="228924",timestamp="2025-10-17T03:31:47Z",'
        'message_size="2.00GB"'
    )
    tables = read(
        f"nccl_algorithm_bandwidth_gbs{{{labels}}} 277.211\n"
        f"nccl_bus_bandwidth_gbs{{{labels}}} 485.119\n"
        f"nccl_collective_exec_time_microseconds{{{labels}}} 61974\n"
    )
    rows = tables["counters"]
    assert [(r["rank"], r["host"], r["device"], r["value"]) for r in rows] == [
        (4, "pool0-0002", "GPU4", 277.211),
        (4, "pool0-0002", "GPU4", 485.119),
        (4, "pool0-0002", "GPU4", 61974.0),
    ]
    assert {r["time_ns"] for r in rows} == {1760671907000000000}
    assert rows[1]["name"] == (
        "nccl_bus_bandwidth_gbs{comm_id=0xd152c00f111816,nranks=8,n_nodes=1,"
        "collective=AllReduce,message_size=2.00GB}"
    )
    assert [r["rank"] for r in tables["ranks"]] == [4]
    assert tables["problems"]["averages"]["severity"] == "info"


def test_prometheus_text_of_the_second_generation(read):
    labels = (
        'version="v5.1",slurm_job_id="unknown",node="nvl72004-T01",gpu="GPU0",'
        'comm_name="DP Group 0",n_nodes="1",nranks="4",collective="AllReduce",'
        'message_size="4-5GB",algo_proto="Ring_ll"'
    )
    tables = read(f"nccl_bus_bandwidth_gbs{{{labels}}} 678.263\nnccl_p2p_total{{}} 1-\nx\n")
    assert next((r["rank"], r["host"], r["device"], r["time_ns"]) for r in tables["counters"]) == (
        None,
        "nvl72004-T01",
        "GPU0",
        None,
    )
    assert not tables["ranks"]
    assert tables["problems"]["not_a_metric"]["count"] == 1


def test_what_is_not_taken(read):
    for head in (b"", b"{", b'{"header":{"id":7', b'{"schemaVersion":1}', b" " * 65536,
                 b"nccl_bus_bandwidth_gbs 3\n", b"a" * 65536, b'{"coll_perf":[]}'):  # fmt: skip
        assert not inspector.looks_like(head, "h0-pid77.log")
    with pytest.raises(UnusableInput):
        read('{"coll_perf":{"coll":"AllReduce"}}\n')
    with pytest.raises(UnusableInput):
        read('{"header":{"id":"0x1","rank":"x"}}\n')


def test_no_real_file_of_another_kind_is_taken(retime_traces):
    for path in retime_traces.rglob("*"):
        if path.is_file():
            with path.open("rb") as f:
                assert not inspector.looks_like(f.read(65536), str(path)), path


def test_names_of_communicators():
    assert comm_of_hash(0x94343F5A50E0FC8E) == "nccl-94343f5a50e0fc8e"
    assert comm_of_hash(0x94343F5A50E0FC8E - (1 << 64)) == "nccl-94343f5a50e0fc8e"
    assert comm_of_cut_hex("0x94343f5a50e0fc") == "nccl-94343f5a50e0fc*"
    assert comm_of_cut_hex("0x335af42abcea1") == "nccl-000335af42abcea1"
    assert [comm_of_cut_hex(t) for t in ("", "0x", "12", "0xg", "0x" + "1" * 17)] == [None] * 5


def test_buffers_of_a_call():
    assert buffers("all_to_all", 4, 8) == (32, 32)
    assert buffers("reduce", 4, 8) == (4, None)
    assert buffers("scatter", 4, 8) == (None, 4)
    assert buffers("all_gather", 4, None) == (4, None)
    assert buffers("broadcast", 4, 8) == (4, 4)
