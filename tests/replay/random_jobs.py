"""Random small jobs for property tests: hosts, communicators, work, collectives, several steps."""

from __future__ import annotations

import numpy as np
import polars as pl
from hypothesis import strategies as st
from retime.ingest.schema import TABLES
from retime.replay import engine, graph
from retime.replay.graph import NULL, Kind
from retime.replay.policy import ReplayJob

OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send")
NAMES = ("forward", "backward", *OPS, "recv")


@st.composite
def jobs(draw, *, shuffled: bool = False):
    """A ReplayJob; with `shuffled` two of them, the tasks of the second given in another order."""
    seed = draw(st.integers(0, 2**32 - 1))
    hosts, each = draw(st.sampled_from([(1, 2), (1, 4), (2, 2), (2, 4), (4, 1)]))
    steps, layers = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    made = _tasks(np.random.default_rng(seed), hosts, each, steps, layers)
    plain = job(*made, hosts, each)
    if not shuffled:
        return plain
    return plain, job(*_in_another_order(np.random.default_rng(seed + 1), *made), hosts, each)


def job(tasks, edges, comms, hosts, each) -> ReplayJob:
    """The job of tasks (dicts) and edges between them, replayed once to be its own measurement."""

    def column(name, none):
        return np.array([t.get(name, none) for t in tasks])

    src, dst = np.array(edges, np.int64).reshape(-1, 2).T
    built, _ = graph.build(
        len(tasks), src, dst, order_ns=column("order", 0),
        kind=column("kind", 6), rank=column("rank", -1), step=column("step", -1),
        dur_ns=column("dur", 0), gap_ns=column("gap", 0), release_ns=column("release", 0),
        op=column("op", -1), comm=column("comm", -1), collective=column("collective", -1),
        bytes=column("bytes", 0), op_names=NAMES, comm_names=tuple(c["comm"] for c in comms),
        extra={
            "group_size": column("n", -1),
            "event_id": column("event", -1),
            "stage": np.full(len(tasks), -1),
            "dp_rank": np.full(len(tasks), -1),
        },
    )  # fmt: skip
    start, end = engine.replay(built)
    joins = built.kind == Kind.JOIN
    built = built.with_(start_ns=np.where(joins, NULL, start), end_ns=np.where(joins, NULL, end))
    n = hosts * each
    ranks = pl.DataFrame(
        {
            "rank": np.arange(n),
            "host": [f"h{r // each}" for r in range(n)],
            "host_source": ["recorded"] * n,
            "local_rank": [r % each for r in range(n)],
            "device_name": ["NVIDIA H100 80GB HBM3"] * n,
            "n_sms": [132] * n,
        }
    )
    empty = {name: pl.from_arrow(t.schema.empty_table()) for name, t in TABLES.items()}
    facts = {
        "ranks": ranks,
        "comms": pl.DataFrame(comms),
        "measured": built,
        "tables": empty.__getitem__,
    }
    return ReplayJob(built, "random", facts)


def _tasks(rng, hosts, each, steps, layers):
    world = np.arange(hosts * each)
    groups = {"world": [world]}
    if hosts > 1 and each > 1:
        groups["tp"] = list(world.reshape(hosts, each))
        groups["dp"] = list(world.reshape(hosts, each).T)
    comms = [
        {"comm": f"{dim}{i}", "dim": "unknown" if dim == "world" else dim, "backend": "nccl",
         "ranks": members.tolist(), "name": dim}
        for dim, all_of_it in groups.items() for i, members in enumerate(all_of_it)
    ]  # fmt: skip
    code = {c["comm"]: i for i, c in enumerate(comms)}
    tasks, edges, collectives = [], [], 0

    def add(**task):
        task["order"] = len(tasks)
        task["event"] = -1 if task["kind"] == Kind.JOIN else len(tasks)
        tasks.append(task)
        return len(tasks) - 1

    for step in range(steps):
        base = step * 10**9
        last = {int(r): [] for r in world}
        for layer in range(layers):
            for r in world.tolist():
                task = add(
                    kind=Kind.COMPUTE, rank=r, step=step, op=int(layer % 2), release=base,
                    dur=int(rng.integers(1, 10**6)), gap=int(rng.integers(0, 10**4)),
                )  # fmt: skip
                edges += [(p, task) for p in last[r]]
                last[r] = [task]
            dim = list(groups)[rng.integers(len(groups))]
            op = int(rng.integers(2, 2 + len(OPS)))
            for i, members in enumerate(groups[dim]):
                pair = OPS[op - 2] == "send"
                ranks = members[:2] if pair else members
                if len(ranks) < 2:
                    continue
                size = int(2 ** rng.integers(8, 28))
                part = {"step": step, "comm": code[f"{dim}{i}"], "collective": collectives,
                        "bytes": size, "n": len(ranks), "release": base}  # fmt: skip
                collectives += 1
                ops = [op, NAMES.index("recv")] if pair else [op] * len(ranks)
                arrive = []
                for r, o in zip(ranks.tolist(), ops, strict=True):
                    task = add(kind=Kind.ARRIVE, rank=r, op=o, **part)
                    edges += [(p, task) for p in last[r]]
                    arrive.append(task)
                join = add(kind=Kind.JOIN, op=op, **part)
                edges += [(a, join) for a in arrive]
                took = 5_000 + int(size / 100)
                for r, o, a in zip(ranks.tolist(), ops, arrive, strict=True):
                    dur = took + int(rng.integers(0, 1 + took // 10))
                    task = add(kind=Kind.TRANSFER, rank=r, op=o, dur=dur, **part)
                    tasks[task]["event"] = tasks[a]["event"]
                    edges += [(a, task), (join, task)]
                    # Half of the time nothing waits for it but what comes after the next.
                    last[r] = [*last[r], task] if rng.random() < 0.5 else [task]
    return tasks, edges, comms


def _in_another_order(rng, tasks, edges, comms):
    place = rng.permutation(len(tasks))
    moved = [None] * len(tasks)
    for i, task in enumerate(tasks):
        moved[place[i]] = task
    shuffled = [(int(place[a]), int(place[b])) for a, b in edges]
    rng.shuffle(shuffled)
    return moved, shuffled, comms
