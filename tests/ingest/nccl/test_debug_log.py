"""NCCL debug logs: lines as `src/debug.cc`, `init.cc`, `enqueue.cc` and `transport/` print them."""

from pathlib import Path

import pyarrow as pa
import pytest
from retime.ingest.errors import RankUnknown, UnusableInput, UsageError
from retime.ingest.nccl import debug_log
from retime.ingest.nccl.debug_log_identity import child_hash
from retime.ingest.nccl.debug_log_lines import Writer, messages
from retime.ingest.schema import event_id
from retime.ingest.source import LocalFile, Source


def read(tmp_path: Path, text: str | bytes, rank: int | None = None) -> dict[str, list[dict]]:
    """Rows by table, without the null columns; problems by code under `odd`."""
    path = tmp_path / "job.log"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    source = Source(str(path), path.stat().st_size, LocalFile(str(path)), path)
    tables: dict[str, list[pa.RecordBatch]] = {}
    for table, batch in debug_log.parse(source, rank=rank):
        tables.setdefault(table, []).append(batch)
    rows = {
        table: [
            {k: v for k, v in row.items() if v is not None}
            for row in pa.Table.from_batches(batches).to_pylist()
        ]
        for table, batches in tables.items()
    }
    rows["odd"] = {row["code"]: row for row in rows.pop("problems", [])}  # type: ignore[assignment]
    return rows


def init(rank: int, size: int, *, pid: int, pointer: str, host: str = "n0", dev: int = 0,
         tid: int | None = None, more: str = "commId 0xabc") -> str:  # fmt: skip
    """The two lines of a communicator, as 2.21 and later print them."""
    line = (
        f"{host}:{pid}:{tid or pid + 1} [{dev}] NCCL INFO ncclCommInitRank comm {pointer} rank "
        f"{rank} nranks {size} cudaDev {dev} nvmlDev {dev} busId 41000 {more} - Init "
    )
    return f"{line}START\n{line}COMPLETE\n"


def call(name: str, count: int, pid: int, pointer: str, *, dtype: int = 7, root: int = 0,
         size: int = 2, host: str = "n0") -> str:  # fmt: skip
    """A line of the subsystem COLL."""
    return (
        f"{host}:{pid}:{pid} [0] NCCL INFO {name}: opCount 1f sendbuff 0x7f00 recvbuff 0x7f01 "
        f"count {count} datatype {dtype} op 0 root {root} comm {pointer} [nranks={size}] "
        "stream 0x55\n"
    )


PAIR = init(0, 2, pid=10, pointer="0xa") + init(1, 2, pid=20, pointer="0xb")


@pytest.mark.parametrize(
    ("line", "writer", "level", "text"),
    [
        (b"h-1.x:12:13 [4] NCCL INFO Using network IB", Writer("h-1.x", 12, 13, 4), "INFO",
         b"Using network IB"),
        (b" 5: h:1:2 [0] NCCL INFO a", Writer("h", 1, 2, 0), "INFO", b"a"),
        (b"[1,0]<stdout>:h:1:2 [0] NCCL INFO a", Writer("h", 1, 2, 0), "INFO", b"a"),
        (b"[default3]:h:1:2 [0] NCCL INFO a", Writer("h", 1, 2, 0), "INFO", b"a"),
        (b"[2025-06-12 16:57:52] h:1:2 [0] misc/nvml.cc:74 NCCL WARN bad",
         Writer("h", 1, 2, 0), "WARN", b"bad"),
        (b"h:1:2 [7] 12.5 ncclInit:88 NCCL TRACE deep", Writer("h", 1, 2, 7), "TRACE", b"deep"),
        (b"[3] h:1:2 NCCL CALL ncclAllReduce(0x1)", Writer("h", 1, 2, None), "CALL",
         b"ncclAllReduce(0x1)"),
    ],
)  # fmt: skip
def test_a_message_is_found_behind_any_prefix(line, writer, level, text):
    assert [m[1:] for m in messages(line)] == [(writer, level, text)]
    assert line[messages(line)[0].start :].startswith(writer.host.encode() + b":")


def test_messages_that_ran_together_are_told_apart():
    line = b"x -1h:1:2 [0] NCCL INFO Launch mode Paralleln1:3:4 [1] NCCL INFO Trees [0]"
    found = messages(line)
    assert [(m.writer.host, m.start, m.text) for m in found] == [
        ("1h", 3, b"Launch mode "),  # what precedes a host without a blank cannot be told from it
        ("Paralleln1", 36, b"Trees [0]"),
    ]


@pytest.mark.parametrize(
    "line", [b"NCCL INFO a", b"no header NCCL INFO a", b"h:1:x [0] NCCL INFO a",
             b"h:1:2 [0] NCCL NOTE a", b" NCCL INFO ", b"::: [0] NCCL INFO a"]
)  # fmt: skip
def test_what_has_no_header_is_no_message(line):
    assert messages(line) == []


def test_ranks_and_communicator_of_two_processes(tmp_path):
    rows = read(tmp_path, "n0:10:10 [0] NCCL INFO NCCL version 2.21.5+cuda12.4\n" + PAIR)
    assert [(r["rank"], r["host"], r["pid"], r["world_size"], r["clock"]) for r in rows["ranks"]] \
        == [(0, "n0", 10, 2, "none"), (1, "n0", 20, 2, "none")]  # fmt: skip
    assert rows["comms"] == [
        {"comm": "nccl-0000000000000abc", "ranks": [0, 1], "size": 2, "dim": "unknown",
         "dim_source": "none", "backend": "nccl 2.21.5"}
    ]  # fmt: skip
    assert rows["odd"]["library_version"]["message"] == "the library is nccl 2.21.5"
    assert rows["odd"]["rank_from_communicator"]["count"] == 2


def test_each_operation_counts_per_communicator_and_has_its_own_sizes(tmp_path):
    text = PAIR
    for pid, pointer in ((10, "0xa"), (20, "0xb")):
        text += call("AllReduce", 1000, pid, pointer)
        text += call("AllGather", 10, pid, pointer, dtype=9)
        text += call("Send" if pid == 10 else "Recv", 3, pid, pointer, dtype=1,
                     root=1 if pid == 10 else 0)  # fmt: skip
        text += call("ReduceScatter", 10, pid, pointer, dtype=6)
        text += call("Reduce", 4, pid, pointer, root=1) * 2
        text += call("Broadcast", 4, pid, pointer, root=1) * 2
    rows = read(tmp_path, text)["collectives"]
    got = [
        (r["rank"], r["op"], r.get("seq"), r["dtype"], r.get("in_bytes"), r.get("out_bytes"),
         r.get("root"), r.get("peer"))
        for r in rows
    ]  # fmt: skip
    assert got == [
        (0, "all_reduce", 0, "float32", 4000, 4000, None, None),
        (0, "all_gather", 0, "bfloat16", 20, 40, None, None),
        (0, "send", None, "uint8", 3, None, None, 1),
        (0, "reduce_scatter", 0, "float16", 40, 20, None, None),
        (0, "reduce", 0, "float32", 16, 0, 1, None),
        (0, "reduce", 1, "float32", 16, 0, 1, None),
        (0, "broadcast", 0, "float32", 16, 16, 1, None),
        (0, "broadcast", 1, "float32", 16, 16, 1, None),
        (1, "all_reduce", 0, "float32", 4000, 4000, None, None),
        (1, "all_gather", 0, "bfloat16", 20, 40, None, None),
        (1, "recv", None, "uint8", None, 3, None, 0),
        (1, "reduce_scatter", 0, "float16", 40, 20, None, None),
        (1, "reduce", 0, "float32", 16, 16, 1, None),
        (1, "reduce", 1, "float32", 16, 16, 1, None),
        (1, "broadcast", 0, "float32", 16, 16, 1, None),
        (1, "broadcast", 1, "float32", 16, 16, 1, None),
    ]
    first = rows[0]
    assert first["event_id"] == event_id(0, "nccl-log", text.index("n0:10:10 [0] NCCL INFO AllR"))
    assert first["source"] == "nccl-log"
    assert first.keys().isdisjoint({"start_ns", "end_ns", "clock", "timing"})


def test_a_pointer_that_is_used_again_is_the_newest_communicator(tmp_path):
    end = (
        "n0:10:10 [0] NCCL INFO comm 0xa rank 0 nranks 2 cudaDev 0 busId 41000 - Destroy COMPLETE\n"
    )
    text = PAIR + call("AllReduce", 1, 10, "0xa") + end
    text += init(0, 1, pid=10, pointer="0xa", more="commId 0xdef")
    text += call("AllReduce", 2, 10, "0xa", size=1)
    rows = read(tmp_path, text)["collectives"]
    assert [(r["comm"], r["seq"], r["in_bytes"]) for r in rows] == [
        ("nccl-0000000000000abc", 0, 4), ("nccl-0000000000000def", 0, 8)
    ]  # fmt: skip


def test_a_split_has_the_identity_that_the_library_hashes():
    """Expected values: the library's own functions (utils.h), compiled with a C compiler."""
    assert child_hash(0x5A4C6E5DB9B19A5F, 1, 0) == 0xBA7F1B2091740CD4
    assert child_hash(0x5A4C6E5DB9B19A5F, 1, 1) == 0x1A5F1ACC9510B67D
    assert child_hash(0x94343F5A50E0FC8E, 2, -1) == 0x03FBAF450E1162F8


def test_splits_are_one_communicator_by_parent_count_and_color(tmp_path):
    text = ""
    for rank in range(4):
        text += init(rank, 4, pid=10 + rank, dev=rank, pointer=f"0x{rank + 1}",
                     more="commId 0x5a4c6e5db9b19a5f")  # fmt: skip
    for rank in range(4):
        text += init(rank // 2, 2, pid=10 + rank, dev=rank, pointer=f"0x{rank + 11}",
                     more=f"parent 0x{rank + 1} splitCount 1 color {rank % 2} key 0")  # fmt: skip
    comms = {r["comm"]: r for r in read(tmp_path, text)["comms"]}
    assert comms["nccl-ba7f1b2091740cd4"]["ranks"] == [0, 2]
    assert comms["nccl-1a5f1acc9510b67d"]["ranks"] == [1, 3]
    assert comms["nccl-1a5f1acc9510b67d"]["description"] == "split, color 1"
    assert len(comms) == 3


def test_the_space_that_a_split_line_lacks_before_its_dash(tmp_path):
    text = PAIR + (
        "n0:10:11 [0] NCCL INFO ncclCommSplit comm 0xc rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId "
        "41000 parent 0xa childCount 1 color 3 key 0- Init START\n"
    )
    names = {r["comm"] for r in read(tmp_path, text)["comms"]}
    assert names == {"nccl-0000000000000abc", f"nccl-{child_hash(0xABC, 1, 3):016x}"}


def test_links_with_the_nics_names_and_the_derived_transfers(tmp_path):
    text = init(0, 2, pid=10, pointer="0xa") + init(1, 2, pid=20, pointer="0xb", host="n1")
    text += (
        "n0:10:11 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_3:2/IB [RO]; OOB "
        "eth0:10.0.0.1<0>\n"
        "n0:10:11 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IB/1/GDRDMA\n"
        "n0:10:11 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/1/GDRDMA\n"
        "n0:10:11 [0] NCCL INFO Channel 00/1 : 0[0] -> 1[0] [send] via NET/IB/1/GDRDMA\n"
        "n0:10:11 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[0] [send] via NET/IB/0(3)/GDRDMA(PCI)\n"
        "n1:20:21 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [send] via NET/AWS Libfabric/2\n"
        "n1:20:21 [0] NCCL INFO Channel 01/0 : 1[0] -> 0[0] via SHM/direct/direct\n"
    )
    rows = read(tmp_path, text)
    topology = rows["topology"]
    assert [(r["host"], r["device"], r["via"]) for r in topology if r["kind"] == "nic"] == [
        ("n0", "mlx5_0", "NET/IB"), ("n0", "mlx5_3:2", "NET/IB")
    ]  # fmt: skip
    links = [(r["rank"], r["peer_rank"], r["peer"], r["channel"], r.get("device"), r["via"])
             for r in topology if r["kind"] == "link"]  # fmt: skip
    assert links == [
        (0, 1, "n1", 0, "mlx5_3:2", "NET/IB/GDRDMA"),
        (0, 1, "n1", 1, "mlx5_0", "NET/IB/GDRDMA(PCI)"),
        (1, 0, "n0", 0, "AWS Libfabric/2", "NET/AWS Libfabric"),
        (1, 0, "n0", 1, None, "SHM/direct/direct"),
    ]
    assert {r["comm"] for r in topology if r["kind"] == "link"} == {"nccl-0000000000000abc"}
    transfers = [(r["rank"], r["nic"], r["channel"], r["peer_rank"], r["direction"], r["measured"],
                  "bytes" in r) for r in rows["transfers"]]  # fmt: skip
    assert transfers == [
        (0, "mlx5_3:2", 0, 1, "recv", False, False),
        (0, "mlx5_3:2", 0, 1, "send", False, False),
        (0, "mlx5_0", 1, 1, "send", False, False),
        (1, "AWS Libfabric/2", 0, 0, "send", False, False),
    ]


def test_rings_and_trees_become_edges_once(tmp_path):
    text = "".join(init(r, 4, pid=10 + r, dev=r, pointer=f"0x{r + 1}") for r in range(4))
    text += (
        "n0:10:11 [0] NCCL INFO Channel 00/02 :    0   2   1   3\n"
        "n0:10:11 [0] NCCL INFO Trees [0] 1/2/-1->0->-1 [1] -1/-1/-1->0->3\n"
        "n0:11:12 [1] NCCL INFO Trees [0] -1/-1/-1->1->0|0->1->-1/-1/-1 [1] -1/-1/-1->1->-1\n"
        "n0:11:12 [1] NCCL INFO Ring 00 : 2 -> 1 -> 3\n"
    )
    topology = read(tmp_path, text)["topology"]
    edges = [(r["kind"], r["channel"], r["rank"], r["peer_rank"]) for r in topology]
    assert edges == [
        ("ring", 0, 0, 2), ("ring", 0, 2, 1), ("ring", 0, 1, 3), ("ring", 0, 3, 0),
        ("tree", 0, 1, 0), ("tree", 0, 2, 0), ("tree", 1, 0, 3),
    ]  # fmt: skip


def test_choices_of_both_generations_are_counted(tmp_path):
    head = "n0:10:10 [0] NCCL INFO "
    text = PAIR + (
        f"{head}AllReduce: 4096 Bytes -> Algo NVLSTREE proto SIMPLE channel{{Lo..Hi}}={{0..15}}\n"
        f"{head}AllReduce: 4096 Bytes -> Algo NVLSTREE proto SIMPLE channel{{Lo..Hi}}={{0..15}}\n"
        f"{head}AllGather: 37756928 Bytes -> Algo 1 proto 2 time 2860.208008\n"
        f"{head}8 Bytes -> Algo 0 proto 0 time 7.200057\n"
    )
    rows = [
        {k: v for k, v in row.items() if k not in ("comm", "source")}
        for row in read(tmp_path, text)["tuning"]
    ]
    assert rows == [
        {"rank": 0, "op": "all_reduce", "bytes": 4096, "algo": "nvls_tree", "proto": "Simple",
         "channels": 16, "n_ranks": 2, "count": 2},
        {"rank": 0, "op": "all_gather", "bytes": 37756928, "algo": "ring", "proto": "Simple",
         "n_ranks": 2, "predicted_ns": 2860208, "count": 1},
        {"rank": 0, "bytes": 8, "algo": "tree", "proto": "LL", "n_ranks": 2,
         "predicted_ns": 7200, "count": 1},
    ]  # fmt: skip


def test_rccl_lines_name_their_communicator(tmp_path):
    """As ROCm/rccl 2.21.5 prints them: `acc`, ` task T globalrank G`, ` comm 0x.. nRanks NN`."""
    text = "RCCL version : 2.21.5-HEAD:bf7a2f8\n" + PAIR
    text += init(0, 1, pid=10, pointer="0xc", more="commId 0x77 localSize 0 used 1 bytes on core 3")
    text += (
        "n0:10:99 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC comm 0xa nRanks 02\n"
        "n0:10:10 [0] NCCL INFO AllGather: opCount c97 sendbuff 0x7 recvbuff 0x8 acc (nil) count "
        "5 datatype 9 op 0 root 0 comm 0xa [nranks=2] stream 0x9 task 0 globalrank 0\n"
    )
    rows = read(tmp_path, text)
    link = rows["topology"][0]
    assert (link["comm"], link["via"], link["peer_rank"]) == ("nccl-0000000000000abc", "P2P/IPC", 1)
    assert rows["comms"][0]["backend"] == "rccl 2.21.5"
    assert (rows["collectives"][0]["in_bytes"], rows["collectives"][0]["out_bytes"]) == (10, 20)


def test_a_link_that_may_be_of_two_communicators_is_of_none(tmp_path):
    text = PAIR + init(0, 2, pid=10, pointer="0xc", more="commId 0x77", tid=12)
    text += "n0:10:99 [0] NCCL INFO Channel 00/1 : 0[0] -> 1[1] via P2P/IPC\n"
    rows = read(tmp_path, text)
    assert [(r["kind"], r["rank"], r.get("peer_rank"), r.get("comm")) for r in rows["topology"]] \
        == [("link", 0, None, None)]  # fmt: skip
    assert rows["odd"]["link_of_unknown_comm"]["severity"] == "info"


def test_a_host_with_a_benchmarks_cell_before_it_is_that_host(tmp_path):
    """A table's row without its end: `-1` and the host run together (nccl-tests prints so)."""
    text = PAIR + "  8  2  float  sum  -1n0:10:10 [0] NCCL INFO AllReduce: 8 Bytes -> Algo RING " \
        "proto LL channel{Lo..Hi}={0..0}\n"  # fmt: skip
    assert [(r["rank"], r["count"]) for r in read(tmp_path, text)["tuning"]] == [(0, 1)]


def test_hosts_whose_processes_share_a_number_stay_apart(tmp_path):
    """In containers every process may be number 1."""
    text = init(0, 2, pid=1, host="pod-a", pointer="0xa") + init(
        1, 2, pid=1, host="pod-b", pointer="0xa"
    )
    rows = read(tmp_path, text + call("AllReduce", 1, 1, "0xa", host="pod-b"))
    assert [(r["rank"], r["host"]) for r in rows["ranks"]] == [(0, "pod-a"), (1, "pod-b")]
    assert [r["rank"] for r in rows["collectives"]] == [1]


def test_before_2_17_communicators_are_told_apart_by_size_order_and_host(tmp_path):
    """Two hosts of two: one pair inside each host, and two pairs across that nothing names."""

    def done(host: str, pid: int, dev: int, rank: int, size: int, pointer: str) -> str:
        return (f"{host}:{pid}:{pid + size} [{dev}] NCCL INFO comm {pointer} rank {rank} nranks "
                f"{size} cudaDev {dev} busId 1a000 - Init COMPLETE\n")  # fmt: skip

    who = [("h0", 1, 0), ("h0", 2, 1), ("h1", 1, 0), ("h1", 2, 1)]
    text = "".join(done(h, p, d, r, 4, "0xa") for r, (h, p, d) in enumerate(who))
    text += "".join(done(h, p, d, d, 2, "0xb") for h, p, d in who)
    text += "".join(done(h, p, d, int(h == "h1"), 2, "0xc") for h, p, d in who)
    rows = read(tmp_path, text)
    got = {(r["comm"], *r.get("ranks", ()), *((r["member"], r["member_place"])
            if "member" in r else ())) for r in rows["comms"]}  # fmt: skip
    assert got == {
        ("nccl-log-4-0", 0, 1, 2, 3), ("nccl-log-2-0-h0", 0, 1), ("nccl-log-2-0-h1", 2, 3),
        ("nccl-log-2-1-r0", 0, 0), ("nccl-log-2-1-r1", 1, 0), ("nccl-log-2-1-r2", 2, 1),
        ("nccl-log-2-1-r3", 3, 1),
    }  # fmt: skip
    assert rows["odd"]["comm_by_order"]["count"] == 3
    assert rows["odd"]["comm_unmatched"]["count"] == 4


def test_a_restart_keeps_the_last_runs_processes(tmp_path):
    again = init(0, 2, pid=30, pointer="0xa", more="commId 0x5") + init(
        1, 2, pid=40, pointer="0xb", more="commId 0x5"
    )
    rows = read(tmp_path, PAIR + call("AllReduce", 1, 10, "0xa") + again)
    assert [(r["rank"], r["pid"]) for r in rows["ranks"]] == [(0, 30), (1, 40)]
    assert [r["rank"] for r in rows["collectives"]] == [0]
    assert rows["odd"]["restarted"]["severity"] == "warning"


def test_groups_side_by_side_tell_no_global_rank(tmp_path):
    """Two groups of two and none of four: rank 0 of each cannot be rank 0 of the job."""
    lines = [init(r, 2, pid=10 + 2 * g + r, dev=2 * g + r, pointer="0xa", more=f"commId 0x{g + 5}")
             for r in range(2) for g in range(2)]  # fmt: skip
    rows = read(tmp_path, "".join(lines))
    assert "ranks" not in rows
    assert [(r["size"], r.get("ranks")) for r in rows["comms"]] == [(2, None), (2, None)]
    assert rows["odd"]["rank_unknown"]["count"] == 4


@pytest.mark.parametrize("label", [" {}: ", "[1,{}]<stdout>:", "[rank{}]: "])
def test_groups_side_by_side_take_the_launchers_task_numbers(tmp_path, label):
    text = ""
    for r in range(2):
        for g in range(2):
            both = init(r, 2, pid=10 + 2 * g + r, dev=2 * g + r, pointer="0xa",
                        more=f"commId 0x{g + 5}")  # fmt: skip
            text += "".join(label.format(2 * r + g) + line + "\n" for line in both.splitlines())
    rows = read(tmp_path, text)
    assert [(r["rank"], r["pid"]) for r in rows["ranks"]] == [(0, 10), (1, 12), (2, 11), (3, 13)]
    assert [(r["comm"], r["ranks"]) for r in rows["comms"]] == [
        ("nccl-0000000000000005", [0, 2]), ("nccl-0000000000000006", [1, 3])
    ]  # fmt: skip
    assert rows["odd"]["rank_from_launcher"]["count"] == 4


def test_the_rank_given_is_that_of_the_only_process(tmp_path):
    text = init(1, 2, pid=10, pointer="0xa") + call("AllReduce", 1, 10, "0xa")
    assert [r["rank"] for r in read(tmp_path, text, rank=7)["collectives"]] == [7]
    with pytest.raises(UsageError, match="2 processes"):
        read(tmp_path, PAIR, rank=7)


def test_collectives_of_nobody_ask_for_a_rank(tmp_path):
    text = call("AllReduce", 1, 10, "0xa")
    with pytest.raises(RankUnknown, match="--rank"):
        read(tmp_path, text)
    rows = read(tmp_path, text, rank=3)
    assert [(r["rank"], r["op"], r.get("comm")) for r in rows["collectives"]] == [
        (3, "all_reduce", None)
    ]
    assert [r["rank"] for r in rows["ranks"]] == [3]
    assert rows["odd"]["comm_unknown"]["count"] == 1


def test_a_log_of_one_process_knows_the_world_and_its_place_in_others(tmp_path):
    text = init(5, 8, pid=10, pointer="0xa") + init(1, 2, pid=10, pointer="0xb", more="commId 0x7")
    comms = read(tmp_path, text)["comms"]
    assert [(r["comm"], r.get("ranks"), r.get("member"), r.get("member_place")) for r in comms] == [
        ("nccl-0000000000000abc", [0, 1, 2, 3, 4, 5, 6, 7], None, None),
        ("nccl-0000000000000007", None, 5, 1),
    ]


def test_warnings_cut_lines_and_the_rest_are_told(tmp_path):
    text = PAIR + (
        "\n[2025-06-12 16:57:52] n0:10:11 [0] misc/ib.cc:9 NCCL WARN Call to ibv failed\n"
        "n0:10:11 [0] NCCL WARN again\n"
        "n0:10:11 [0] NCCL INFO AllReduce: opCount 1f sendbuff 0x7f\n"
        "n0:10:11 [0] NCCL INFO Channel 00/0 : 0[0] ->\n"
        "n0:10:11 [0] NCCL INFO cudaDriverVersion 12020\n"
        "n0:10:11 [0] NCCL INFO Connected all rings\n"
        "n0:20:21 [0] NCCL INFO Connected all rings\n"
        "who was it? NCCL INFO Connected all trees\n"
    )
    odd = read(tmp_path, text)["odd"]
    assert (odd["nccl_warning"]["count"], odd["nccl_warning"]["severity"]) == (2, "warning")
    assert "Call to ibv failed" in odd["nccl_warning"]["message"]
    assert (odd["cut_line"]["count"], odd["cut_line"]["severity"]) == (2, "lost")
    assert odd["other_lines"]["count"] == 3
    assert odd["no_header"]["count"] == 1
    assert "'Connected all rings' 2, 'cudaDriverVersion N' 1" in odd["other_lines"]["message"]


def test_impossible_numbers_are_told_and_nulled(tmp_path):
    text = PAIR + init(9, 2, pid=50, pointer="0xd") + call("AllReduce", 10**19, 10, "0xa")
    rows = read(tmp_path, text + call("AllReduce", 1, 10, "0xa", dtype=99))
    assert [(r["seq"], "in_bytes" in r) for r in rows["collectives"]] == [(0, False), (1, False)]
    assert rows["odd"]["impossible_rank"]["severity"] == "lost"
    assert rows["odd"]["value_out_of_range"]["count"] == 2
    assert rows["odd"]["dtype_unknown"]["count"] == 1
    assert [r["rank"] for r in rows["ranks"]] == [0, 1]


def test_lines_without_an_end_and_without_letters_are_bounded(tmp_path):
    hostile = PAIR.encode() + b"n0:10:11 [0] NCCL INFO comm 0xa rank 0 nranks 2 cudaDev 0 " * 50_000
    hostile += (
        b"\n" + b" NCCL INFO " * 200_000 + b"\n" + b"a" * 3_000_000 + b"\n\xff\xfe\x00 NCCL INFO"
    )
    rows = read(tmp_path, hostile)
    assert [r["rank"] for r in rows["ranks"]] == [0, 1]
    assert rows["odd"]["long_line"]["count"] == 3
    assert rows["odd"]["long_line"]["severity"] == "lost"


MESSAGE = b"n0:10:11 [0] NCCL INFO Using network IB\n"


@pytest.mark.parametrize(
    ("head", "name", "expected"),
    [
        (MESSAGE, "a.log", True),
        (b"+ srun train\n 3: " + MESSAGE, "job.out", True),
        (b"# How to\n```\n" + MESSAGE, "README.md", False),
        (b"LOG = '''" + MESSAGE, "parse.py", False),
        (b'{"cell": "' + MESSAGE, "a.log", False),
        (b"grep 'NCCL INFO' out.log\n", "a.log", False),
        (b"\x00\x01" + MESSAGE, "a.bin", False),
        (b"", "empty.log", False),
    ],
)
def test_only_logs_look_like_one(head, name, expected):
    assert debug_log.looks_like(head, name) is expected


def test_messages_further_on_are_found(tmp_path):
    path = tmp_path / "train.out"
    for text, expected in ((b"x = 1\n" * 400_000 + MESSAGE, True), (b"x = 1\n" * 40_000, False)):
        path.write_bytes(text)
        source = Source(str(path), len(text), LocalFile(str(path)), path)
        assert not debug_log.looks_like(source.head(), str(path))
        assert debug_log.looks_like_further(source) is expected


def test_a_text_without_messages_is_refused(tmp_path):
    with pytest.raises(UnusableInput, match="no message"):
        read(tmp_path, "nothing here\n")
