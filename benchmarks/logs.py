"""How fast NCCL debug logs and Inspector's lines become Parquet, beside plain Python and the read.

    python benchmarks/logs.py [--size-mb 100] [--runs 3] [--json FILE]

Each format is written large first: the lines of a small log again and again, with other numbers.
Then, in a process of its own bound to one core: retime to finished Parquet, once warm; the obvious
way (`re` or `json` line by line into a Polars frame, to Parquet); and reading (and inflating) the
file once. The obvious way runs on the first `OBVIOUS_MB`, as it takes so long. Read the ratios.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

OBVIOUS_MB = 20
FORMATS = ("nccl-calls", "nccl-calls.gz", "nccl-tuning", "nccl-links", "nccl-start", "nccl-output",
           "inspector", "inspector-verbose", "inspector-4.3", "inspector-proxies")  # fmt: skip

_RANKS = 8
_OPS = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast")

OURS = """
import resource, sys, tempfile, time
from pathlib import Path
from retime.ingest.nccl import debug_log, inspector
from retime.ingest.sources import find_sources
from retime.ingest.writer import PartWriter

def ingest(path):
    source = next(iter(find_sources([path], lambda *a, **k: None)))
    parser = inspector if "inspector" in path else debug_log
    with tempfile.TemporaryDirectory() as folder:
        writer = PartWriter(Path(folder))
        for table, batch in parser.parse(source):
            writer.write(table, batch)
        return sum(w.rows for w in writer.close())

ingest(sys.argv[1])
t = time.perf_counter()
rows = ingest(sys.argv[1])
print(time.perf_counter() - t, rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3)
"""

OBVIOUS = r"""
import gzip, json, re, sys, tempfile, time
import polars as pl

t = time.perf_counter()
path, most = sys.argv[1], int(float(sys.argv[2]) * 1e6)
line_of = re.compile(
    r"(\S+):(\d+):(\d+) \[(\d+)\] NCCL INFO (?:(\w+): opCount (\w+) sendbuff \S+ recvbuff \S+ "
    r"count (\d+) datatype (\d+) op (\d+) root (-?\d+) comm (\w+) \[nranks=(\d+)\]|(.*))"
)
rows, n = [], 0
with (gzip.open if path.endswith(".gz") else open)(path, "rt") as f:
    for line in f:
        n += len(line)
        if n > most:
            break
        if "inspector" in path:
            record = json.loads(line)
            perf, header = record.get("coll_perf"), record.get("header", {})
            if perf:
                rows.append((header.get("id"), header.get("rank"), perf["coll"], perf["coll_sn"],
                             perf["coll_msg_size_bytes"], perf["coll_exec_time_us"]))
        elif m := line_of.match(line):
            rows.append(m.groups())
with tempfile.NamedTemporaryFile(suffix=".parquet") as out:
    pl.DataFrame(rows, orient="row", infer_schema_length=None).write_parquet(out.name)
print(time.perf_counter() - t, len(rows), n / 1e6)
"""

READ = """
import sys, time
from retime.ingest.sources import find_sources
t = time.perf_counter()
with next(iter(find_sources([sys.argv[1]], lambda *a, **k: None))).open() as f:
    n = 0
    while block := f.read(1 << 20):
        n += len(block)
print(time.perf_counter() - t, 0, n)
"""


def _init() -> str:
    return "".join(
        f"node-001:{5000 + r}:{6000 + r} [{r}] NCCL INFO ncclCommInitRank comm "
        f"0x55d0c0ffee{r:02x} rank {r} nranks {_RANKS} cudaDev {r} nvmlDev {r} busId "
        f"41000 commId 0xabcdef0123 - Init {end}\n"
        for r in range(_RANKS)
        for end in ("START", "COMPLETE")
    )


def _log(kind: str) -> Iterator[str]:
    """Pieces of a debug log without end."""
    yield _init()
    n = 0
    while True:
        piece = []
        for _ in range(10_000):
            rank, k = n % _RANKS, n // _RANKS
            head = f"node-001:{5000 + rank}:{5000 + rank} [{rank}] NCCL INFO "
            if kind == "nccl-calls":
                op = _OPS[k % 4]
                piece.append(
                    f"{head}{op}: opCount {k:x} sendbuff 0x7f4e{k * 4096 & 0xFFFFFFFF:08x} "
                    f"recvbuff 0x7f4f{k * 8192 & 0xFFFFFFFF:08x} count {1024 * (1 + k % 37)} "
                    f"datatype 9 op 0 root {k % _RANKS if op == 'Broadcast' else 0} comm "
                    f"0x55d0c0ffee{rank:02x} [nranks={_RANKS}] stream 0x5581e2c0{rank:04x}\n"
                )
            elif kind == "nccl-tuning":
                piece.append(
                    f"{head}AllReduce: {1024 << k % 16} Bytes -> Algo RING proto SIMPLE "
                    "channel{Lo..Hi}={0..15}\n"
                )
            elif kind == "nccl-links":
                piece.append(
                    f"{head}Channel {k % 32:02d}/0 : {rank}[{rank}] -> {(rank + 1) % _RANKS}"
                    f"[{(rank + 1) % _RANKS}] via P2P/CUMEM\n"
                )
            else:
                piece.append(
                    f" [default{rank}]: iteration {n:8d}/ 500000 | consumed samples: {512 * n:12d} "
                    f"| elapsed time per iteration (ms): {9000 + n % 100} | lm loss: 3.1E+00\n"
                )
            n += 1
        yield "".join(piece)


_START_RANKS, _HOST_RANKS, _CHANNELS = 1024, 8, 16


def _start() -> Iterator[str]:
    """A large job's start-up without end: communicator after communicator sets up its channels.

    What a member prints has the kinds and shares of lines of a real job's output, with as many
    channels as large machines have; members print side by side, so that their lines mix.
    """
    n = 0
    while True:
        size = (_START_RANKS, 8, 128, 8, 16, 64)[n % 6]
        groups = min(_START_RANKS // size, 16)
        for group in range(groups):
            stride = 1 if n % 2 == 0 else _START_RANKS // size
            first = group * size if stride == 1 else group
            members = [first + stride * k for k in range(size)]
            each = [list(_member(n, group, members, k)) for k in range(size)]
            for start in range(0, size, 32):  # as many processes as write at once
                some = each[start : start + 32]
                mixed = [some[j][i] for i in range(max(map(len, some)))
                         for j in range(len(some)) if i < len(some[j])]  # fmt: skip
                yield "".join(mixed)
        n += 1


def _member(n: int, group: int, members: list[int], k: int) -> Iterator[str]:
    """The lines of a member of a communicator while it is made."""
    size, rank = len(members), members[k]
    host, device = divmod(rank, _HOST_RANKS)
    pid = 40_000 + rank
    head = f"node-{host:04d}:{pid}:{pid + 900 + n} [{device}] NCCL INFO "
    pointer = f"0x7f{n:04x}{group:02x}{rank:04x}0"
    said = (f"comm {pointer} rank {k} nranks {size} cudaDev {device} nvmlDev {device} busId "
            f"{device + 1}9000 commId 0x{n + 1:06x}{group:04x}")  # fmt: skip
    if n == 0:
        nics = " ".join(f"[{i}]mlx5_{i}:1/RoCE" for i in range(8))
        yield f"{head}Bootstrap : Using eth0:10.0.{host}.1<0>\n"
        yield f"{head}NET/IB : Using {nics} [RO]; OOB eth0:10.0.{host}.1<0>\n"
        yield f"{head}Using network IB\n"
    yield f"{head}ncclCommInitRank {said} - Init START\n"
    yield f"{head}Setting affinity for GPU {device} to ffff,ffffffff,00000000,0000ffff\n"
    yield (f"{head}comm {pointer} rank {k} nRanks {size} nNodes {size // _HOST_RANKS or 1} "
           f"localRanks {min(size, 8)} localRank {device} MNNVL 0\n")  # fmt: skip
    if k == 0:
        for c in range(_CHANNELS):
            order = " ".join(f"{i:3d}" for i in range(min(size, 20)))
            yield f"{head}Channel {c:02d}/{_CHANNELS:02d} : {order}\n"
    up, down = (k - 1) // 2 if k else -1, [c if c < size else -1 for c in (2 * k + 1, 2 * k + 2)]
    trees = " ".join(f"[{c}] {down[0]}/{down[1]}/-1->{k}->{up}" for c in range(_CHANNELS))
    yield f"{head}Trees {trees}\n"
    yield f"{head}P2P Chunksize set to 131072\n"
    near = [p for p in (up, *down) if p >= 0]
    for peers, done in (((k + 1, k - 1), "rings"), ((*near,), "trees")):
        for peer in (p % size for p in peers):
            far = members[peer] // _HOST_RANKS != host
            mine, other = f"{k}[{device}]", f"{peer}[{members[peer] % _HOST_RANKS}]"
            for c in range(_CHANNELS):
                if not far:
                    yield f"{head}Channel {c:02d}/0 : {mine} -> {other} via P2P/CUMEM\n"
                    continue
                nic = f"via NET/IB/{(device + c) % 8}/GDRDMA"
                yield f"{head}Channel {c:02d}/0 : {other} -> {mine} [receive] {nic}\n"
                yield f"{head}Channel {c:02d}/0 : {mine} -> {other} [send] {nic}\n"
        yield f"{head}Connected all {done}\n"
    yield f"{head}threadThresholds 8/8/64 | {8 * size}/8/64 | 512 | 512\n"
    yield f"{head}{_CHANNELS} coll channels, 16 collnet channels, 0 nvls channels\n"
    yield f"{head}ncclCommInitRank {said} - Init COMPLETE\n"


def _inspector(kind: str) -> Iterator[str]:
    """Pieces of Inspector's lines without end."""
    n, at = 0, 1752867229235059
    version = "v4.0" if kind in ("inspector", "inspector-verbose") else "v4.3"
    while True:
        piece = []
        for _ in range(5_000):
            at += 300
            header: dict[str, Any] = {
                "id": "0x7a1b2c3d4e5f60", "comm_name": "default_pg:0", "rank": 3, "n_ranks": 8,
                "nnodes": 1,
            }  # fmt: skip
            metadata = {
                "inspector_output_format_version": version,
                "git_rev": "", "rec_mechanism": "nccl_profiler_interface",
                "dump_timestamp_us": at, "hostname": "node-001", "pid": 77,
            }  # fmt: skip
            perf: dict[str, Any] = {
                "coll": _OPS[n % 3], "coll_sn": n // 3, "coll_msg_size_bytes": 4096 * (1 + n % 50),
                "coll_exec_time_us": 50 + n % 500, "coll_timing_source": "kernel_gpu",
                "coll_algobw_gbs": 94.782749, "coll_busbw_gbs": 5.655137,
            }  # fmt: skip
            if kind == "inspector-verbose":
                kernels = [
                    {"channel_id": k, "kernel_start_ts": at + 100 + k,
                     "kernel_stop_ts": at + 400 + k, "kernel_record_ts": at + 401}
                    for k in range(4)
                ]  # fmt: skip
                perf["event_trace_ts"] = {"coll_start_ts": at, "coll_stop_ts": at + 5,
                                          "kernel_events": kernels}  # fmt: skip
            record = {"header": header, "metadata": metadata, "coll_perf": perf}
            if kind in ("inspector-4.3", "inspector-proxies"):
                if n % 1000 == 0:
                    stats = {"coll_records": 1000, "p2p_records": 0, "proxy_records": 4000}
                    first = {"header": header, "metadata": metadata, "dump_stats": stats}
                    piece.append(json.dumps(first, separators=(",", ":")) + "\n")
                record = {"coll_perf": perf}
            piece.append(json.dumps(record, separators=(",", ":")) + "\n")
            if kind == "inspector-proxies":
                piece += [_proxy(n, k, at) for k in range(4)]
            n += 1
        yield "".join(piece)


def _proxy(n: int, k: int, at: int) -> str:
    """A record of what a proxy sent or got for the n-th operation of its file."""
    trace = {
        "record_type": "proxy_op", "record_sn": 4 * n + k, "parent_type": "coll",
        "parent_sn": n // 3, "proxy_op_sn": 4 * n + k, "rank": 3, "channel_id": k // 2,
        "peer": 4 - 2 * (k % 2), "direction": ("send", "recv")[k % 2], "n_steps": 8,
        "n_steps_completed": 8, "n_steps_dropped": 0, "trans_size_bytes": 1 << 20,
        "event_trace_ts": {"proxy_op_start_ts": at, "proxy_op_in_progress_ts": at + 3,
                           "proxy_op_stop_ts": at + 90},
    }  # fmt: skip
    return json.dumps({"proxy_trace": trace}, separators=(",", ":")) + "\n"


def write(path: Path, kind: str, size_mb: float) -> int:
    """Writes a log of a kind of `FORMATS`; its bytes before they were packed."""
    plain = kind.removesuffix(".gz")
    if plain == "nccl-start":
        pieces = _start()
    else:
        pieces = _inspector(plain) if plain.startswith("inspector") else _log(plain)
    n = 0
    with gzip.open(path, "wt", 6) if kind.endswith(".gz") else open(path, "w") as f:
        while n < size_mb * 1e6:
            n += f.write(next(pieces))
    return n


def _run(code: str, *arguments: str) -> list[float]:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}),
    )
    return [float(x) for x in done.stdout.split()]


def measure(sizes_mb: list[float], runs: int) -> list[dict[str, Any]]:
    """A row for each format and size: MB/s on one core, ratios and peak memory in MB.

    MB are of the text, before it was packed. `spread` is the fastest run over the slowest.
    """
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for kind in FORMATS:
            for size_mb in sizes_mb:
                path = Path(folder) / kind
                mb = write(path, kind, size_mb) / 1e6
                ours = [_run(OURS, str(path)) for _ in range(runs)]
                speeds = [mb / seconds for seconds, _, _ in ours]
                read = statistics.median(mb / _run(READ, str(path))[0] for _ in range(runs))
                seconds, _, said_mb = _run(OBVIOUS, str(path), str(min(OBVIOUS_MB, size_mb)))
                speed, obvious = statistics.median(speeds), said_mb / seconds
                found.append({
                    "format": kind, "size_mb": mb, "rows": int(ours[0][1]), "mb_per_s": speed,
                    "spread": max(speeds) / min(speeds), "peak_mb": max(p for _, _, p in ours),
                    "obvious_mb_per_s": obvious, "read_mb_per_s": read,
                    "times_obvious": speed / obvious, "of_read": speed / read,
                })  # fmt: skip
                path.unlink()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="NCCL logs to Parquet, on one core")
    parser.add_argument("--size-mb", type=float, nargs="+", default=[100.0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", metavar="FILE", help="write the rows as JSON")
    args = parser.parse_args()
    rows = measure(args.size_mb, args.runs)
    print(f"{'format':18} {'MB':>6} {'MB/s':>7} {'peak MB':>8} {'x obvious':>10} {'of read':>8}")
    for r in rows:
        print(f"{r['format']:18} {r['size_mb']:6.0f} {r['mb_per_s']:7.1f} {r['peak_mb']:8.0f} "
              f"{r['times_obvious']:10.1f} {r['of_read']:8.2f}")  # fmt: skip
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
