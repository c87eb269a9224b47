"""Two jobs in one connection give what each gives alone: no view mixes their rows.

The jobs are made of the same ids (ranks, collectives, communicators, events, experts), hosts and
names, and of other times and sizes, so that a join or a group that forgets the job shows.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import duckdb
import pytest
from retime.queries import loader, manual

from .conftest import Rows, write

STEP_NS = 10_000
STEPS = 6
RANKS = 4


def made(seed: int) -> dict[str, Rows]:
    """A job of four ranks on two hosts with something of every table, its figures from `seed`."""
    rnd = random.Random(seed)
    near: Callable[[int], int] = lambda n: n + rnd.randrange(n // 2)  # noqa: E731
    tables: dict[str, Rows] = {name: [] for name in TABLES}
    tables["jobs"].append({"world_size": RANKS, "ranks_seen": RANKS, "created_at_ns": near(10**9)})
    tables["comms"] = [
        {"comm": name, "name": name, "ranks": members, "size": len(members), "dim": dim}
        for name, members, dim in (("w", [0, 1, 2, 3], "dp"), ("e", [0, 1, 2, 3], "ep"))
    ]
    for rank in range(RANKS):
        tables["ranks"].append({
            "rank": rank, "host": f"h{rank // 2}", "host_source": "recorded",
            "local_rank": rank % 2, "device": rank % 2, "n_sms": 132, "rail": rank % 2,
            "device_name": "H100", "start_ns": 0, "end_ns": STEPS * STEP_NS,
            "clock_offset_ns": 0, "clock_error_ns": rnd.randrange(3), "clock": "host",
        })  # fmt: skip
        tables["replay_scores"].append({"rank": rank, "score_ns": near(100), "how": "replay"})
        tables["progress"].append(
            {"rank": rank, "comm": "w", "last_enqueued": 9, "last_started": 8,
             "last_completed": 7 + (rank != seed % RANKS), "source": "flight-recorder"}
        )  # fmt: skip
        tables["collectives"].append(  # a send that is under way, or its recv
            {"rank": rank, "comm": "w", "op": "recv" if rank % 2 else "send",
             "peer": rank + 1 - 2 * (rank % 2), "state": "scheduled", "enqueued_ns": near(1000),
             "event_id": 910_000 + rank, "source": "flight-recorder"}
        )  # fmt: skip
        tables["collectives"].append(  # under way, untimed: seq 9, rank `seed` has not entered it
            {"rank": rank, "comm": "w", "seq": 9 - (rank == seed % RANKS), "op": "all_reduce",
             "state": "scheduled", "enqueued_ns": near(1000), "event_id": 900_000 + rank,
             "source": "flight-recorder"}
        )  # fmt: skip
    for step in range(STEPS):
        for rank in range(RANKS):
            one_step(tables, rnd, near, step, rank)
    for size in (1 << 10, 1 << 16, 1 << 20, 1 << 24):
        tables["cost_curves"].append(
            {"op": "all_reduce", "bytes": size, "n_ranks": 8, "n_hosts": 1, "tool": "nccl-tests",
             "time_ns": near(10_000 + size // 100), "run": "1"}
        )  # fmt: skip
    for rank, peer in ((0, 2), (2, 0), (1, 3), (3, 1)):
        tables["topology"].append(
            {"kind": "ring", "comm": "w", "channel": 0, "rank": rank, "peer_rank": peer,
             "host": f"h{rank // 2}"}
        )  # fmt: skip
    return tables


def one_step(tables: dict[str, Rows], rnd: random.Random, near, step: int, rank: int) -> None:
    start, id = step * STEP_NS, step * 100 + rank * 10_000
    tables["steps"].append(
        {"rank": rank, "step": step, "start_ns": start, "end_ns": start + STEP_NS,
         "host_start_ns": start, "host_end_ns": start + STEP_NS}
    )  # fmt: skip
    compute, late = near(1000) + 400 * rank, near(200)
    t = start + 100
    kernels = (("gemm", "gemm", compute), ("what", "unknown", 50), ("copy", "copy", 40))
    for i, (name, category, dur) in enumerate(kernels):
        kind = "memcpy" if name == "copy" else "kernel"
        at = {"rank": rank, "start_ns": t, "dur_ns": dur, "step": step}
        tables["events"].append(
            {**at, "event_id": id + i, "kind": kind, "name": name, "stream": 7, "device": rank % 2,
             "category": category, "correlation": id + i, "grid_blocks": 32}
        )  # fmt: skip
        tables["events"].append(
            {**at, "event_id": id + 50 + i, "kind": "runtime", "name": "cudaLaunchKernel",
             "start_ns": t - 60, "dur_ns": 10, "thread": "main", "correlation": id + i}
        )  # fmt: skip
        t += dur + 100
    size = 1 << (12 + 2 * (step % 3))
    for n, (comm, op) in enumerate((("w", "all_reduce"), ("e", "all_to_all"))):
        begun, end = start + 3000 + n * 3000 + late * (1 + rank), start + 5500 + n * 3000
        end += rnd.randrange(300) + size // 1000
        tables["events"].append(
            {"rank": rank, "event_id": id + 70 + n, "kind": "kernel", "name": f"nccl_{op}",
             "start_ns": begun, "dur_ns": end - begun, "stream": 20 + n, "category": "comm",
             "step": step, "grid_blocks": 8, "block_threads": 512}
        )  # fmt: skip
        # compute beside the communication, and the same kernel again without any
        for beside, at in ((True, begun + 10), (False, start + 9400 + 200 * n)):
            tables["events"].append(
                {"rank": rank, "event_id": id + 80 + 2 * n + beside, "kind": "kernel",
                 "name": "gemm", "start_ns": at, "dur_ns": near(90 if beside else 60),
                 "stream": 7, "category": "gemm", "step": step, "grid_blocks": 32}
            )  # fmt: skip
        tables["collectives"].append(
            {"rank": rank, "comm": comm, "collective_id": 2 * step + n, "op": op, "seq": step,
             "match": "exact", "in_bytes": size, "out_bytes": size, "group_size": RANKS,
             "start_ns": begun, "end_ns": end, "step": step, "event_id": id + 70 + n,
             "stream": 20 + n, "algo": "ring", "channels": 1, "source": "kineto",
             "clock": "host", "in_splits": None}
        )  # fmt: skip
        tables["transfers"].append(
            {"rank": rank, "host": f"h{rank // 2}", "nic": f"mlx{rank % 2}", "rail": rank % 2,
             "channel": 0, "peer_rank": (rank + 2) % 4, "bytes": near(size), "start_ns": begun,
             "end_ns": end, "collective_id": 2 * step + n, "event_id": id + 70 + n,
             "direction": "send", "traffic_class": "collective", "measured": True,
             "via": "NET/IB", "clock": "host", "source": "profiler"}
        )  # fmt: skip
    tables["transfers"].append(
        {"rank": rank, "host": f"h{rank // 2}", "nic": "mlx0", "rail": 0, "bytes": near(100),
         "start_ns": start + 3000, "end_ns": start + 3000 + 1500 * (step % 2) + near(100),
         "traffic_class": "storage", "measured": True, "clock": "host", "source": "nsys"}
    )  # fmt: skip
    for layer in (0, 1):
        for expert in range(RANKS):
            tables["routing"].append(
                {"step": step, "layer": layer, "rank": rank, "expert": expert,
                 "expert_rank": expert, "tokens": near(10 * (1 + expert)), "token_class": "real",
                 "source": "s"}
            )  # fmt: skip


TABLES = ("jobs", "comms", "ranks", "replay_scores", "progress", "collectives", "steps", "events",
          "cost_curves", "topology", "transfers", "routing")  # fmt: skip

OF_ONE_JOB = [e.name for e in manual.dictionary() if e.kind == "view" and e.fields[0].name == "job"]
FLEET = {"fleet_hosts", "fleet_fabric", "fleet_kernels"}
"""Views over jobs: what they say of several is not what they say of each."""


@pytest.fixture(scope="module")
def connections(tmp_path_factory: pytest.TempPathFactory):
    """The two jobs together and each alone."""
    folder = tmp_path_factory.mktemp("jobs")
    files = {job: write(folder / job, made(seed)) for job, seed in (("a", 1), ("b", 2))}
    return (
        loader.connect(files, threads=1),
        [loader.connect({job: of}, threads=1) for job, of in files.items()],
    )


def rows(con: duckdb.DuckDBPyConnection, view: str) -> Counter:
    """The rows of a view, however they are ordered; fractions to nine digits."""
    return Counter(tuple(_value(v) for v in row) for row in con.execute(f"FROM {view}").fetchall())


def _value(v: Any) -> Any:
    return f"{v:.9g}" if isinstance(v, float) else str(v) if isinstance(v, list | dict) else v


@pytest.mark.parametrize("view", OF_ONE_JOB)
def test_two_jobs_give_what_each_gives_alone(connections, view: str) -> None:
    together, (a, b) = connections
    of_a, of_b = rows(a, view), rows(b, view)
    assert rows(together, view) == of_a + of_b
    assert of_a
    assert of_b
    assert {row[0] for row in of_a} <= {"a"}
    assert {row[0] for row in of_b} <= {"b"}


def test_only_views_over_jobs_have_no_job() -> None:
    views = {e.name for e in manual.dictionary() if e.kind == "view"}
    assert views - set(OF_ONE_JOB) == FLEET
