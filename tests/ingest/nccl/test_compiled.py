"""NCCL debug logs and Inspector's lines, whole and damaged: compiled code reads them as ever.

Rows, batches and problems must be the same through the compiled pass and line by line. Tables,
blocks and lines are made small, so that all of them end in the middle of things.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import random

import pyarrow as pa
import pytest
from retime.ingest import collect
from retime.ingest.nccl import (
    compiled_code,
    debug_log,
    debug_log_calls,
    debug_log_compiled,
    debug_log_links,
    debug_log_links_compiled,
    debug_log_nics,
    debug_log_reader,
    debug_log_readers,
    debug_log_rows,
    debug_log_scan,
    debug_log_survey,
    debug_log_survey_compiled,
    inspector,
    inspector_compiled,
    inspector_proxy,
    inspector_readers,
    inspector_records,
    inspector_scan,
    line_blocks,
)
from retime.ingest.sources import Source
from retime.ingest.texts import lines


class Held:
    """Opens bytes in memory, as a source's file."""

    def __init__(self, data: bytes):
        self._data = data

    def __call__(self) -> io.BytesIO:
        return io.BytesIO(self._data)


def source_of(data: bytes, name: str = "job.log") -> Source:
    """A source of these bytes."""
    return Source(name, len(data), Held(data))


NAMES = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce", "Send", "Recv",
         "AlltoAllv", "Scatter", "Gather", "x" * 41)  # fmt: skip

KINDS = (
    "Launch mode Parallel", "Setting affinity for GPU {n} to ff", "0x{n:x} 10x5 00x5 0x and {n}",
    "Using network Socket", "Connected all rings", "a \x1c b\tc  d e{n} f {n}", "", "{n}", "Ring",
    "NET/IB : Using [0]mlx5_{n}:1/RoCE [1]mlx5_1:2/IB [RO]; OOB eth0:10.0.0.1<0>",
    "NET/IB : Made virtual device [1] name=mlx5_0+mlx5_{n} speed=1", "NET/Socket : Using [0]eth{n}",
    "Init COMPLETE {n}", "NET/Plugin : No plugin",
    "Init START", "this nRanks {n}", "nothing COMPLETE", "größer {n}", "\x01\x02 {n}",
    "CCL version",
    "Channel 00/02 : 0 1", "Channel 00/0 : 0[0] -> 1[1] via P2P/IPC", "Channel 0{n} : cut",
    "Trees [0] 1/-1/-1->0->-1 [1] -1/-1/-1->1->0", "Tree 0 : 1 -> 0 -> 1/-1/-1",
    "Ring 00 : 1 -> 0 -> 1",
    "Channel 01/0 : 1[1] -> 0[0] [send] via NET/IB/0", "NCCL version 2.21.{n}+cuda12",
)  # fmt: skip


def made_log(seed: int, n_lines: int = 300) -> bytes:
    """A log of a few processes whose communicators come and go, with all sorts of lines in it."""
    r = random.Random(seed)
    hosts = r.sample(["n0", "node-1.x", "7", "-a", "h_2", "123"], 2)
    processes = [(h, 10 + i, i) for i, h in enumerate(r.choice(hosts) for _ in range(3))]
    if r.random() < 0.3:  # one whose header ends as another's does
        host, pid, dev = processes[0]
        processes.append((f"x{host}", pid, dev))
    pointers = ["0xa", "0xb", "0xc0ffee", "0xffffffffffffffff", "0x0a", "(nil)"]
    out: list[str] = []
    n_links = r.choice((4, 40))

    def header(level: str = "INFO") -> str:
        host, pid, dev = r.choice(processes)
        tid = pid + r.choice((0, 0, 0, 1))
        label = r.choice(("", "", "", f"{dev}: ", f"[1,{dev}]<stdout>:", "[2025-06-12 16:57:52] "))
        device = r.choice((f" [{dev}]",) * 9 + ("", f" [{dev}] misc/x.cc:7", " [123456]", " []"))
        return f"{label}{host}:{pid}:{tid}{device} NCCL {level} "

    def init(start: bool) -> str:
        host, pid, dev = r.choice(processes)
        size = r.choice((2, 3, 3))
        more = r.choice(("commId 0xabc", "commId 0xdef", "parent 0xa splitCount 1 color 2"))
        return (
            f"{host}:{pid}:{pid} [{dev}] NCCL INFO ncclCommInitRank comm {r.choice(pointers[:4])} "
            f"rank {r.randrange(size)} nranks {size} cudaDev {dev} nvmlDev {dev} busId 41000 "
            f"{more} - Init {'START' if start else 'COMPLETE'}"
        )

    def call() -> str:
        count = r.choice((1, 77, 4096, 1 << 40, 1 << 62, 10**19))
        acc = r.choice(("", "", " acc 0x5"))
        size = r.choice((2, 3, 3, 0, 10**9, 10**10 - 1))
        return header() + (
            f"{r.choice(NAMES)}: opCount {r.randrange(99):x} sendbuff 0x7f{r.randrange(99)} "
            f"recvbuff {r.choice(('0x7f01', '(nil)'))}{acc} count {count} "
            f"datatype {r.choice((7, 7, 9, 1, 99))} "
            f"op {r.randrange(3)} root {r.choice((0, 1, 1, 2, -1, 7))} comm {r.choice(pointers)} "
            f"[nranks={size}] stream 0x55"
        )

    def choice() -> str:
        tail = r.choice(("", "", f" comm {r.choice(pointers)}"))
        name = r.choice(("AllReduce: ", "AllGather: ", ""))
        return header() + (
            f"{name}{r.choice((8, 1024, 65536))} Bytes -> Algo {r.choice(('RING', 'Tree', '1'))} "
            f"proto {r.choice(('LL', 'SIMPLE', '2'))}"
            + r.choice((" channel{Lo..Hi}={0..3}", " time 12.5", "")) + tail
        )  # fmt: skip

    def strange(text: str) -> str:
        """The text, now and then with something else in it."""
        if r.random() < 0.9:
            return text
        at = r.randrange(len(text))
        other = r.choice(
            ("", "x", " ", "  ", "-", "0", "é", "\t", "[1] ", " comm 0x0a", "->", "9" * 9)
        )
        return text[:at] + other + text[at + r.randrange(3) :]

    def links() -> str:
        tail = r.choice(("",) * 5 + (f" comm {r.choice(pointers)} nRanks 02", " ", " comm 0xg"))
        a, b, c = (r.choice((-1, 0, 1, 1, 2)) for _ in range(3))
        device = r.choice(("[0]", "[1c000]", "", "[-2]", "[]"))
        way = r.choice(("", "[send] ", "[receive] ", "[both] "))
        via = r.choice(("P2P/IPC", "P2P/CUMEM/read", "SHM/direct/direct", "NET/IB/0", "NET",
                        "NET/IB/1/GDRDMA", "NET/Socket/0(2)", "NET/AWS Libfabric/1", "",
                        "x" * 170))  # fmt: skip
        channel = f"{r.randrange(3):02d}{r.choice(('', '/0', '/02', '/'))}"
        word = r.choice(("Channel", "Channel", "Ring"))
        ring = r.choice((" ", "   ")).join(
            str(max(n, 0)) for n in r.sample((a, b, c), r.randrange(1, 4))
        )
        trees = " ".join(
            f"[{k}] {a}/{b}/{r.choice((-1, 2))}->{max(c, 0)}->{r.choice((-1, 1))}"
            + r.choice(("", "", f"|{c}->{a}->{b}/-1/-1")) for k in range(r.randrange(1, 7))
        )  # fmt: skip
        text = r.choice((
            f"{word} {channel} : {max(a, 0)}{device} -> {max(b, 0)}{device} {way}via {via}",
            f"{word} {channel} : {max(a, 0)}{device} -> {max(b, 0)}{device} {way}via {via}",
            f"{word} {channel} : {ring}", f"Trees {trees}",
            f"Ring 0{max(a, 0)} : {a} -> {b} -> {c}", f"Tree 0 : {a} -> {b} -> {c}/-1/-1",
        ))  # fmt: skip
        return header() + strange(text + tail)

    if seed % 6:  # else nothing says who has which rank
        out += [
            f"{host}:{pid}:{pid} [{dev}] NCCL INFO ncclCommInitRank comm 0xfeed rank {dev} "
            f"nranks 5 cudaDev {dev} nvmlDev {dev} busId 41000 commId 0x77 - Init COMPLETE\n"
            for host, pid, dev in processes
        ]
    out += [init(True) + "\n" for _ in range(3)]
    for _ in range(n_lines):
        line = r.choice((call,) * 12 + (links,) * n_links + (choice,) * 5 + (
            lambda: init(True), lambda: init(False),
            lambda: header() + r.choice(KINDS).format(n=r.randrange(20)),
            lambda: header() + r.choice(KINDS).format(n=r.randrange(20)),
            lambda: header(r.choice(("WARN", "CALL", "TRACE", "NOTE"))) + "x" * r.randrange(9),
            lambda: f"loss {r.random():.3f} at 10.0:20:30",
            lambda: header() + "comm 0xa rank 0 nranks 2 cudaDev 0 busId 41000 - Destroy COMPLETE",
            lambda: call() + r.choice(("", " ")) + call(),
            lambda: call() + header() + r.choice(KINDS).format(n=1),
            lambda: "y" * r.choice((500, 590, 600, 601, 602, 700, 1300)) + r.choice(("", call())),
            lambda: " NCCL INFO AllReduce: opCount 1",
        ))()  # fmt: skip
        end = r.choice(("\n",) * 12 + ("\r\n", "\n\n", "\r\r\n", ""))
        out.append(line + end)
    data = bytearray("".join(out).encode())
    for _ in range(r.choice((0, 0, 5, 60))):
        at = r.randrange(len(data))
        what = r.randrange(4)
        if what == 0:
            data[at] = r.choice((0, 10, 13, 32, 48, 58, 91, 255))
        elif what == 1:
            del data[at : at + r.randrange(30)]
        elif what == 2:
            data[at:at] = data[max(0, at - 40) : at]
        else:
            data[at:at] = b" NCCL "
    return bytes(data)


OPERATIONS = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce", "größer", "", "x")


def made_records(seed: int, n_lines: int = 250) -> bytes:
    """Inspector's lines of all its formats, mixed, with values and bytes that do not belong."""
    r = random.Random(seed)
    ids = ("0x7a1b2c3d4e5f60", "0x335af42abcea1", "0x1")
    rank = r.randrange(2)
    hosts = r.random() < 0.8
    several = r.random() < 0.2
    numbers = {"c": 0, "p": 0}

    def header() -> dict:
        at = r.choice((0, 0, 0, 1, 2))
        odd = r.random() < 0.02
        return {
            "id": ids[at] if not odd else r.choice(("x", 7, None)),
            **({"comm_name": r.choice(("a:1", "moe{ep}:2", "unknown", "é"))} if r.random() < 0.5
               else {}),
            "rank": r.randrange(2) if several else rank,
            "n_ranks": (8, 2, 4)[at] if r.random() < 0.98 else r.choice((0, 1 << 40, "8")),
            "nnodes": 1,
        }  # fmt: skip

    def metadata(version: str = "v4.0") -> dict:
        return {"inspector_output_format_version": version, "git_rev": "",
                "dump_timestamp_us": r.randrange(1 << 50),
                **({"hostname": "h0"} if hosts else {}), "pid": 77}  # fmt: skip

    def times(prefix: str) -> dict:
        base = 1752867229235000 + r.randrange(10**6)
        kernels = [
            {"channel_id": k, "kernel_start_ts": base + r.randrange(50),
             "kernel_stop_ts": r.choice((base + 90 + r.randrange(50), 0, base - 1)),
             "kernel_record_ts": 1}
            for k in range(r.randrange(4))
        ]  # fmt: skip
        return {f"{prefix}_start_ts": base, f"{prefix}_stop_ts": base, "kernel_events": kernels}

    def strange(value: object) -> object:
        if r.random() < 0.99:
            return value
        return r.choice((None, "x", True, -1, 1 << 70, 1.5, [], {}, [[[]]], -(1 << 63), 0, 10**18))

    def coll() -> dict:
        numbers["c"] += r.choice((1, 1, 1, 1, 1, 1, 1, 2, 0, -1))
        return {
            "coll": strange(r.choice(OPERATIONS)), "coll_sn": strange(numbers["c"]),
            "coll_msg_size_bytes": strange(r.choice((8, 8192, 1 << 41))),
            "coll_exec_time_us": strange(r.randrange(1000)),
            **({"coll_timing_source": strange(r.choice(("kernel_gpu", "collective_cpu", "new")))}
               if r.random() < 0.8 else {}),
            "coll_algobw_gbs": r.choice(("nan", 0.25, 1e-7, 12)),
            **({"coll_algo": r.choice(("RING", "NVLS_TREE", "unknown")), "coll_proto": "SIMPLE"}
               if r.random() < 0.3 else {}),
            **({"event_trace_ts": strange(times("coll")), "event_trace_sn": {"coll_start_sn": 1}}
               if r.random() < 0.3 else {}),
        }  # fmt: skip

    def p2p() -> dict:
        numbers["p"] += 1
        return {"p2p": strange(r.choice(("Send", "Recv"))), "p2p_sn": strange(numbers["p"]),
                "p2p_peer": strange(r.randrange(8)), "p2p_msg_size_bytes": strange(4096),
                "p2p_exec_time_us": strange(12),
                **({"event_trace_ts": times("p2p")} if r.random() < 0.2 else {})}  # fmt: skip

    def marker() -> dict:
        return {"header": header(), "metadata": metadata("v4.3"),
                "dump_stats": {"coll_records": r.randrange(40), "p2p_records": r.randrange(9),
                               "coll_dropped_since_last_dump": r.choice((0, 0, 3)),
                               "proxy_records": r.choice((3, 9, 90)),
                               **({"proxy_steps_enabled": r.choice((0, 1, True, "x"))}
                                  if r.random() < 0.5 else {})}}  # fmt: skip

    def moved(kinds: tuple[str, ...]) -> dict:
        names = r.sample(kinds, r.randrange(len(kinds) + 1))
        return {
            **({"trans_size_bytes": strange(r.randrange(1 << 20))} if r.random() < 0.9 else {}),
            **({"event_trace_ts": {f"{k}_ts": strange(r.choice((0, 80, 90, 250, 1 << 40)))
                                   for k in names}} if r.random() < 0.9 else {}),
        }  # fmt: skip

    def proxy() -> dict:
        kind = r.choice(("proxy_op",) * 5 + ("proxy_step",) * 3
                        + ("proxy_op_start", "proxy_op_segment", "proxy_new"))  # fmt: skip
        op = ("proxy_op_start", "proxy_op_in_progress", "proxy_op_stop", "proxy_op_else")
        step = ("proxy_step_start", "send_wait", "recv_wait", "recv_flush_wait", "recv_gpu_wait",
                "send_gpu_wait", "proxy_step_stop")  # fmt: skip
        steps = [moved(step) for _ in range(r.randrange(5))]
        return {"proxy_trace": {"record_type": strange(kind), "record_sn": 1,
                                "parent_type": strange(r.choice(("coll", "p2p", "coll", "other"))),
                                "parent_sn": strange(r.randrange(60)),
                                "proxy_op_sn": strange(r.randrange(30)),
                                "channel_id": strange(r.randrange(9)),
                "peer": strange(r.randrange(8)),
                                "direction": strange(r.choice(("send", "recv"))),
                                **({"n_steps_dropped": r.choice((0, 0, 0, 2))}
                                   if r.random() < 0.7 else {}),
                                **({"steps": strange(steps)} if r.random() < 0.2 else {}),
                                **moved(step if kind == "proxy_step" else op)}}  # fmt: skip

    makers = (
        (lambda: {"header": header(), "metadata": metadata(), "coll_perf": coll()},) * 6
        + (lambda: {"header": header(), "metadata": metadata(), "p2p_perf": p2p()},) * 2
        + (lambda: {"coll_perf": coll()},) * 8
        + (lambda: {"p2p_perf": p2p()},) * 3
        + (marker,) * 2
        + (proxy,) * r.choice((0, 3, 12))
        + (lambda: {"header": header(), "metadata": metadata(), **proxy()},) * r.choice((0, 2))
        + (
            lambda: {"header": header(), "coll_perf": coll(), "p2p_perf": p2p()},
            lambda: {"coll_perf": coll(), "header": header()},
            lambda: {"else": [1, {"a": [True, None]}], "coll_perf": coll(), "header": header()},
            lambda: {"header": {}, "coll_perf": coll()},
            lambda: r.choice(([], {}, 7, "x", {"n": {"header": 1}})),
        )
    )
    out = [json.dumps({"header": header(), "metadata": metadata(), "coll_perf": coll()},
                      separators=(",", ":")) + "\n"]  # fmt: skip
    for _ in range(n_lines):
        line = json.dumps(
            r.choice(makers)(),
            separators=(",", ":") if r.random() < 0.97 else None,
            ensure_ascii=r.random() < 0.5,
        )
        if r.random() < 0.02:
            line = line[:-1] + r.choice((',"header":{"id":"0x9","rank":0}}', ',"\\u0068eader":{}}',
                                         "}}", ",}", ',"a":01}', ',"a":NaN}', ',"a":"\t"}',
                                         "}" + " " * 700, ' }'))  # fmt: skip
        out.append(line + r.choice(("\n",) * 20 + ("\r\n", "\n\n", "\n \n", "")))
    data = bytearray("".join(out).encode())
    for _ in range(r.choice((0, 0, 0, 3, 40))):
        at = r.randrange(len(data))
        what = r.randrange(3)
        if what == 0:
            data[at] = r.choice((0, 10, 13, 32, 34, 44, 58, 92, 123, 125, 255))
        elif what == 1:
            del data[at : at + r.randrange(30)]
        else:
            data[at:at] = data[max(0, at - 40) : at]
    return bytes(data)


@pytest.fixture
def small(monkeypatch):
    """Rooms that are full after a few lines."""
    for module in (debug_log_compiled, debug_log_survey, debug_log_rows):
        monkeypatch.setattr(module, "MAX_LINE_BYTES", 600)
    for module in (inspector_records, inspector_compiled):
        monkeypatch.setattr(module, "MAX_LINE", 1200)
        monkeypatch.setattr(module, "BATCH", 4)
    for module, sizes in (
        (line_blocks, {"BLOCK_BYTES": 900}),
        (collect, {"BATCH_ROWS": 8}),
        (debug_log_calls, {"_MOST_CHOICES": 9}),
        (debug_log_links, {"MOST_SEEN": 25, "MOST_NICS": 6}),
        (debug_log_nics, {"MOST_NAMED": 3}),
        (debug_log_links_compiled, {"_MOST_CODES": 16, "_MOST_SAID": 30}),
        (debug_log_reader, {"_MOST_KINDS": 12}),
        (debug_log_compiled, {"_MOST_KINDS": 8, "_MOST_TEXTS": 32, "_MOST_CODES": 16,
                              "_SLOW_LINES": 16}),
        (inspector_compiled, {"_MOST_HEADERS": 8, "_MOST_TEXTS": 16, "_MOST_CODES": 16,
                              "_SLOW_LINES": 5, "_MOST_STEPS": 4, "MOST_KEPT": 16}),
        (inspector_proxy, {"MOST_KEPT": 16}),
    ):  # fmt: skip
        for name, size in sizes.items():
            monkeypatch.setattr(module, name, size)


def read(parser, data: bytes, rank: int | None):
    """Batches by table, or the error."""
    found: dict = {}
    try:
        for table, batch in parser.parse(source_of(data), rank=rank):
            found.setdefault(table, []).append(batch)
    except Exception as e:
        found["error"] = type(e).__name__, str(e)
    return found


def read_twice(monkeypatch, parser, data: bytes, rank: int | None):
    """What is read line by line, once it is the same through compiled code."""
    readers, scan = {
        debug_log: (debug_log_readers, debug_log_scan),
        inspector: (inspector_readers, inspector_scan),
    }[parser]
    monkeypatch.setattr(compiled_code, "functions", lambda *_: None)
    plain = read(parser, data, rank)
    functions = {f.name: getattr(scan, f.name) for f in readers.CODE.functions}
    monkeypatch.setattr(compiled_code, "functions", lambda *_: functions)
    compiled = read(parser, data, rank)
    assert plain.pop("error", None) == compiled.pop("error", None)
    assert plain.keys() == compiled.keys()
    for table, batches in plain.items():
        assert [b.to_pylist() for b in compiled[table]] == [b.to_pylist() for b in batches], table
        assert all(a.equals(b) for a, b in zip(batches, compiled[table], strict=True)), table
    return plain


@pytest.mark.parametrize("seed", range(12))
def test_debug_logs(monkeypatch, small, seed):
    data = made_log(seed)
    found = read_twice(monkeypatch, debug_log, data, None)
    read_twice(monkeypatch, debug_log, data, 5)
    assert not seed % 6 or sum(b.num_rows for b in found["collectives"]) > 20


@pytest.mark.parametrize("seed", range(6))
def test_nics_are_called_as_their_process_and_host_call_them_then(monkeypatch, seed):
    r = random.Random(seed)
    processes = [(host, pid, pid % 2) for host in ("n0", "n1") for pid in (8, 9, 10)]
    out = []
    for i in range(400):
        host, pid, device = r.choice(processes)
        head = f"{host}:{pid}:{pid + r.randrange(2)} [{device}] NCCL INFO "
        me, peer = r.sample(range(6), 2)
        out.append(head + r.choice((
            f"comm 0xa{pid} rank {processes.index((host, pid, device))} nranks 6 cudaDev {device} "
            "busId 1 - Init COMPLETE",
            f"NET/IB : Using [0]mlx5_{r.randrange(1 + i // 100)}:1/RoCE [1]mlx5_9:1/IB [RO]",
            *[f"Channel 0{r.randrange(3)}/0 : {me}[0] -> {peer}[1] [send] via NET/IB/"
              f"{r.randrange(3)}"] * 6,
        )))  # fmt: skip
    found = read_twice(monkeypatch, debug_log, "\n".join(out).encode(), None)
    links = pa.Table.from_batches(found["topology"]).to_pylist()
    devices = {(row["host"], row["device"]) for row in links if row["kind"] == "link"}
    assert len(devices) > 6


def test_lines_of_a_communicators_making_are_read_as_ever(monkeypatch):
    """As printed by versions, with labels, cut, run together and with numbers that are too long."""
    said = "comm {p} rank {r} nranks {n} cudaDev {r} {more}- Init {end}"
    heads = (
        "",
        "3: ",
        "[1,2]<stdout>:",
        "NCCL version 2.7.8+",
        "NCCL version 2.7.8+cuda10.2",
        "x" * 30,
    )
    mores = ("", "busId 41000 ", "nvmlDev 1 busId 41000 commId 0xab12 ", "busId 1 commId 0x0 ",
             "commId 0x1 commId 0x2 ", "busId 1 localSize 3 ", "busId zz ", "busId  1 ",
             "commId 0xab parent 0x2 splitCount 1 color 4 key 0 ", "commId 0x" + "f" * 17 + " ",
             "nvmlDev 12345678901 ", "busId 1 " * 40)  # fmt: skip
    r = random.Random(7)
    out = []
    for i in range(1200):
        rank, n = r.randrange(5), r.choice((1, 4, 4, 12345678901))
        line = said.format(
            p=r.choice((f"0x7f{rank}", "0x0a", "0x" + "f" * 16, "0x" + "1" * 17, f"0x{i:x}")),
            r=r.choice((rank, rank, rank, 123456)), n=n,
            more=r.choice(mores), end=r.choice(("START", "COMPLETE", "COMPLETE", "COMPLETE x")),
        )  # fmt: skip
        name = r.choice(("", "ncclCommInitRank ", "ncclCommSplit ", "init.cc:12 ", "a" * 42 + " "))
        device = r.choice((f" [{rank}]", f" [{rank}]", "", " [123456]"))
        line = (f"{r.choice(heads)}n{rank % 2}:{40 + rank}:{50 + rank}{device} NCCL INFO {name}"
                f"{line}")  # fmt: skip
        line = r.choice((line, line, line, line[: r.randrange(len(line))], line + "\r"))
        out.append(line + r.choice(("\n",) * 9 + ("",)))
        if r.random() < 0.2:
            out.append(
                f"n{rank % 2}:{40 + rank}:{50 + rank} [{rank}] NCCL INFO Channel 00/02 : 0\n"
            )
    read_twice(monkeypatch, debug_log, "".join(out).encode(), None)
    by_hand = []
    take_rest = debug_log_survey_compiled.take_rest
    monkeypatch.setattr(debug_log_survey_compiled, "take_rest",
                        lambda *a: (by_hand.append(a[1]), take_rest(*a))[1])  # fmt: skip
    plain = [
        f"n0:1:{i} [0] NCCL INFO ncclCommInitRank comm 0x{i + 1:x} rank 0 nranks 1 cudaDev 0 "
        f"nvmlDev 0 busId 1b000 commId 0x{i + 5:x} - Init COMPLETE\n"
        for i in range(100)
    ]
    found = read_twice(monkeypatch, debug_log, "".join(plain).encode(), None)
    assert [row["comm"] for row in found["comms"][0].to_pylist()] == [
        f"nccl-{i + 5:016x}" for i in range(100)
    ]
    assert by_hand == []


def lines_of_making(seed: int, plain: bool) -> str:
    """Communicators that processes make, as versions before splits print it, or not so."""
    r = random.Random(seed)
    processes = [(f"n{k % 3}", 40 + k // 2, k % 4) for k in range(9)]
    out, offered = [], [f"0x7f{k}0" for k in range(40)] + ["0x" + "f" * 16]
    for i in range(500):
        host, pid, device = r.choice(processes[: 2 + i // 40])
        host = r.choice((host,) * 30 + (f"x{host}", "other"))
        pointer = r.choice(offered[: 3 + i // 20])
        size = r.choice((1, 4, 4, 4, 12345678901 if i > 50 else 4))
        place, tid = r.choice((device % size, device % size, 7)), pid + r.randrange(2)
        named = "" if plain else r.choice(("", f"commId 0x{r.randrange(9):x} "))
        text = (
            f"comm {pointer} rank {place} nranks {size} cudaDev {device} busId 1b000 {named}- Init "
        )
        text += r.choice(("START", "COMPLETE", "COMPLETE"))
        if not plain and r.random() < 0.02:
            text = r.choice((
                f"comm {pointer} rank {place} nRanks {size} nNodes 1 localRanks 4 localRank 1",
                f"comm {pointer} rank {place} nranks {size} cudaDev {device} busId 1 - Destroy "
                "COMPLETE",
                text.replace("commId", "parent 0x7f00 splitCount 1 color 3 commId"),
            ))  # fmt: skip
        label = r.choice(("",) * 8 + (f"{device}: ", "[1,3]<stdout>:", "a b "))
        out.append(f"{label}{host}:{pid}:{tid} [{device}] NCCL INFO {text}")
        if r.random() < 0.3:
            a, b = r.sample(range(4), 2)
            out.append(f"{host}:{pid}:{tid} [{device}] NCCL INFO " + r.choice((
                f"Channel 00/0 : {a}[0] -> {b}[1] via P2P/IPC", f"Channel 00/02 : {a} {b}",
                f"Trees [0] {b}/-1/-1->{a}->-1", f"Channel 00/0 : {a}[0] -> {b}[1] via P2P comm "
                f"{pointer} nRanks 04", *[f"AllReduce: opCount 1 sendbuff 0x1 recvbuff 0x2 count 9 "
                f"datatype 7 op 0 root 0 comm {pointer} [nranks=4] stream 0x5"] * (seed % 2),
            )))  # fmt: skip
    return "\n".join(out)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("rooms", [{}, {"_MOST_POINTERS": 16, "_MOST_DEVICES": 16}])
def test_communicators_are_noted_as_line_by_line(monkeypatch, seed, plain, rooms):
    """Pointers used again, hosts behind other texts, impossible ranks, threads and labels."""
    for name, most in rooms.items():
        monkeypatch.setattr(debug_log_survey_compiled, name, most)
    monkeypatch.setattr(debug_log_survey, "MOST_COMMS", 60)
    monkeypatch.setattr(debug_log_survey_compiled, "MOST_COMMS", 60)
    data = lines_of_making(seed, plain).encode()
    found = read_twice(monkeypatch, debug_log, data, None)
    if seed % 2 == 0:  # whose calls these are nobody says
        assert found["comms"][0].num_rows > 20
        codes = {row["code"] for b in found["problems"] for row in b.to_pylist()}
        assert {"impossible_rank", "too_many_comms"} <= codes


def test_versions_and_devices_count_in_the_order_of_lines(monkeypatch):
    """Of two versions that as many lines tell the first counts, of two names of a device the last:
    whether the line says something of a communicator, too, or not."""
    made = "comm 0x{} rank 0 nranks 1 cudaDev 0 busId 1 - Init COMPLETE"
    device = "#  Rank  0 Group  0 Pid      1 on         n0 device  0 [0x1b] {}"
    lines = [
        "NCCL version 2.18.3+cuda12.2 n0:1:1 [0] NCCL INFO " + made.format("1"),
        "n1:2:2 [0] NCCL INFO NCCL version 2.21.5",
        device.format("First " + made.format("2")),
        device.format("Second"),
        *["n0:1:1 [0] NCCL INFO " + made.format(k) for k in range(3, 9)],
    ]
    found = read_twice(monkeypatch, debug_log, "\n".join(lines).encode(), None)
    said = {row["backend"] for b in found["comms"] for row in b.to_pylist()}
    assert said == {"nccl 2.18.3"}
    ranks = [row for b in found["ranks"] for row in b.to_pylist()]
    assert "Second" in {row.get("device_name") for row in ranks}


def test_a_dumps_first_line_is_read_by_compiled_code(monkeypatch):
    """But where it says that something is gone, or the dump before it is not at its end."""

    def first(records, **more):
        stats = {"coll_records": records, "p2p_records": 0, "proxy_records": 0, **more}
        return {"header": {"id": "0x7", "rank": 0, "n_ranks": 2}, "dump_stats": stats,
                "metadata": {"inspector_output_format_version": "v4.3", "hostname": "n0",
                             "pid": 7}}  # fmt: skip

    def operation(n):
        return {"coll_perf": {"coll": "AllReduce", "coll_sn": n, "coll_msg_size_bytes": 8,
                              "coll_exec_time_us": 5}}  # fmt: skip

    dumps = [[first(3), *map(operation, range(3 * k, 3 * k + 3))] for k in range(40)]
    dumps[20][0] = first(3, coll_dropped_since_last_dump=4)
    del dumps[30][2:]
    text = "".join(json.dumps(x, separators=(",", ":")) + "\n" for d in dumps for x in d)
    taken = []
    take = inspector_records.Reader.take
    monkeypatch.setattr(inspector_records.Reader, "take",
                        lambda *a: (taken.append(a[2]), take(*a)))  # fmt: skip
    found = read_twice(monkeypatch, inspector, text.encode(), None)
    assert sum(b.num_rows for b in found["collectives"]) == 118
    n_lines = sum(map(len, dumps))
    by_hand = [text.encode()[:at].count(b"\n") for at in taken[n_lines:]]
    assert by_hand == [0, 80, 122, 123]  # of the last the number is not the next


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("parser", [debug_log, inspector])
def test_one_thread_hashes_what_it_reads(monkeypatch, parser, packed):
    """As it is stored; with more somebody does beside it."""
    readers, scan = (
        (debug_log_readers, debug_log_scan) if parser is debug_log
        else (inspector_readers, inspector_scan)
    )  # fmt: skip
    functions = {f.name: getattr(scan, f.name) for f in readers.CODE.functions}
    monkeypatch.setattr(compiled_code, "functions", lambda *_: functions)
    data = lines_of_making(0, True).encode() if parser is debug_log else made_records(1)
    stored = gzip.compress(data) if packed else data
    for threads in (1, 2):
        source = Source("job.log", len(stored), Held(stored), compressed=packed)
        assert list(parser.parse(source, threads=threads))
        source.open_stored = Held(b"")  # what is known already is not read again
        known = hashlib.sha256(stored if threads == 1 else b"").hexdigest()
        assert source.sha256 == known


def test_nics_that_are_named_again_say_nothing_new_until_others_are(monkeypatch):
    def line(pid, text):
        return f"n0:{pid}:{pid} [{pid}] NCCL INFO {text}"

    def link(pid, channel):
        return line(pid, f"Channel 0{channel}/0 : {pid}[0] -> {1 - pid}[0] [send] via NET/IB/0")

    def nic(name):
        return f"NET/IB : Using [0]{name}:1/IB [RO]"

    out = [line(p, f"comm 0xa{p} rank {p} nranks 2 cudaDev {p} busId 1 - Init COMPLETE")
           for p in (0, 1)]  # fmt: skip
    for channel, names in enumerate(("aa", "aa", "ab", "aa", "bb", "aa")):
        for pid, name in enumerate(names):
            out += [line(pid, nic(f"mlx5_{name}")), line(pid, nic(f"mlx5_{name}"))]
        out += [link(0, channel), link(1, channel)]
    found = read_twice(monkeypatch, debug_log, "\n".join(out).encode(), None)
    rows = pa.Table.from_batches(found["topology"]).to_pylist()
    assert [(r["channel"], r["rank"], r["device"]) for r in rows if r["kind"] == "link"] == [
        (c, p, f"mlx5_{names[p]}") for c, names in enumerate(("aa", "aa", "ab", "aa", "bb", "aa"))
        for p in (0, 1)
    ]  # fmt: skip
    assert [r["device"] for r in rows if r["kind"] == "nic"] == ["mlx5_a", "mlx5_b"]


@pytest.mark.parametrize("seed", range(12))
def test_inspectors_lines(monkeypatch, small, seed):
    data = made_records(seed)
    found = read_twice(monkeypatch, inspector, data, None)
    read_twice(monkeypatch, inspector, data, 5)
    assert sum(b.num_rows for b in found["collectives"]) > 8


def test_rooms_of_their_usual_size(monkeypatch):
    assert read_twice(monkeypatch, debug_log, made_log(1, 1500), None)["collectives"]
    records = b"".join(made_records(seed) for seed in range(20, 24))
    assert read_twice(monkeypatch, inspector, records, None)["collectives"]


def test_a_log_that_ends_anywhere(monkeypatch):
    """Each cut of a call, a choice and a record: nothing goes on into what stood there before."""
    log = made_log(3)
    at = log.index(b": opCount ")
    begin, end = log.rindex(b"\n", 0, at) + 1, log.index(b"\n", at)
    for cut in range(begin, end + 2, 3):
        read_twice(monkeypatch, debug_log, log[:cut], 5)
    record = made_records(3).split(b"\n")[0] + b"\n"
    for cut in range(len(record) // 2, len(record) + 1, 5):
        read_twice(monkeypatch, inspector, record + record[:cut], None)


def test_real_logs(monkeypatch, retime_traces):
    paths = [p for p in (retime_traces / "nccl_logs").rglob("*") if p.suffix in (".out", ".log")]
    assert len(paths) > 5
    for path in paths:
        read_twice(monkeypatch, debug_log, path.read_bytes(), None)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"a",
        b"a\r",
        b"a\r\n\nb",
        b"x" * 50,
        b"x" * 50 + b"\n",
        b"a\n" + b"x" * 30 + b"\nb",
        b"abc\n" * 20,
    ],
)
@pytest.mark.parametrize("most", [1, 5, 8, 29, 30, 31, 49, 50])
@pytest.mark.parametrize("room", [7, 32])
@pytest.mark.parametrize("packed", [False, True])
def test_blocks_hold_the_same_lines(monkeypatch, data, most, room, packed):
    monkeypatch.setattr(line_blocks, "BLOCK_BYTES", room)
    source = source_of(data)
    if packed:
        source = source_of(gzip.compress(data)[: -9 if len(data) > 60 else None])
        source.compressed = True
    told: list = []

    def odd(*said, offset):
        told.append((*said, offset))

    wanted = list(lines(source, odd, most))
    wanted_told, told = [t for t in told if t[0] != "long_line"], []
    found = []
    for block in line_blocks.blocks(source, odd, most):
        at = 0
        for text in block.data[: block.n].tobytes().split(b"\n")[: -1 if block.whole else None]:
            line, long = line_blocks.line_of(block, at, at + len(text), most)
            assert long == (len(text) > most)
            found.append((block.base + at, line, block.whole))
            at += len(text) + 1
    assert (found, told) == (wanted, wanted_told)
