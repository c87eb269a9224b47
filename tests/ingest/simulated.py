"""Small jobs whose true matching and true clocks are known, as tables of participations."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from retime.ingest import schema

US, MS, S = 1_000, 1_000_000, 1_000_000_000
EPOCH_NS = 1_700_000_000 * S


class Op(NamedTuple):
    """One operation of a step: who takes part (groups of ranks), what it is, compute before it."""

    comm: str
    groups: tuple[tuple[int, ...], ...]
    op: str = "all_reduce"
    size: int = 1 << 20
    compute_ns: int = 2 * MS
    transfer_ns: int = 300 * US


class Job(NamedTuple):
    """Rows of the tables, as dicts. Each row of `rows` has `truth`: the instance it belongs to."""

    rows: list[dict]
    ranks: list[dict]
    comms: list[dict]

    def tables(self) -> dict[str, pa.Table]:
        """Arguments of `matching.resolve`."""
        bare = [{k: v for k, v in r.items() if k != "truth"} for r in self.rows]
        return {
            "collectives": table("collectives", bare),
            "ranks": table("ranks", self.ranks),
            "comms": table("comms", self.comms),
            "steps": table("steps", []),
        }


def table(name: str, rows: list[dict]) -> pa.Table:
    """Rows as a table of the warehouse; columns not given are null."""
    declared = schema.TABLES[name]
    if not rows:
        return declared.schema.empty_table()
    keys = sorted({k for r in rows for k in r})
    return pa.Table.from_batches([declared.batch({k: [r.get(k) for r in rows] for k in keys})])


def simulate(
    program: list[Op],
    *,
    ranks: int,
    per_host: int | None = None,
    steps: int = 6,
    offset_ns: tuple[int, ...] = (0,),
    drift_ppm: tuple[float, ...] = (0.0,),
    jitter_ns: int = 20 * US,
    compute_noise: float = 0.2,
    step_gap_ns: int = 0,
    numbered: bool = True,
    recorded_hosts: bool = True,
    seed: int = 0,
) -> Job:
    """A job that runs `program` in each step.

    Ranks start an operation after their compute (noisy by `compute_noise` of its length), all end
    `transfer_ns` after the last start, each up to `jitter_ns` (or one transfer, if
    that is shorter) later. Hosts' clocks read the true
    time less `offset_ns`, and gain `drift_ppm` from the start of the job on.
    """
    random = np.random.default_rng(seed)
    per_host = per_host or ranks
    now = np.zeros(ranks, dtype=np.int64)
    rows, counts, truth = [], {}, 0
    for step in range(steps):
        now = now + step_gap_ns
        for op in program:
            for members in op.groups:
                noise = 1 + compute_noise * random.standard_normal(len(members)).clip(-3, 3)
                at = list(members)
                start = now[at] + (op.compute_ns * noise).astype(np.int64)
                late = random.integers(0, min(jitter_ns, op.transfer_ns) + 1, len(at))
                end = start.max() + op.transfer_ns + late
                now[at] = end + 5 * US
                truth += 1
                comm = f"{op.comm}{list(members)}"
                kind = (comm, op.op in ("send", "recv"))
                seq = counts[kind] = counts.get(kind, -1) + 1
                for i, r in enumerate(members):
                    p2p = op.op == "send"
                    n = len(members)
                    part = op.size // n if op.op in ("all_gather", "reduce_scatter") else op.size
                    host = r // per_host
                    rows.append(
                        {
                            "truth": truth,
                            "comm": comm,
                            "seq": seq if numbered else None,
                            "rank": r,
                            "op": ("send", "recv")[i] if p2p else op.op,
                            "dtype": "bf16",
                            "in_bytes": part if op.op == "all_gather" else op.size,
                            "out_bytes": part if op.op == "reduce_scatter" else op.size,
                            "group_size": n,
                            "peer": members[1 - i] if p2p else None,
                            "start_ns": local(int(start[i]), host, offset_ns, drift_ppm),
                            "end_ns": local(int(end[i]), host, offset_ns, drift_ppm),
                            "stream": 7,
                            "step": step,
                            "event_id": r << 40 | len(rows),
                            "source": "kineto",
                        }
                    )
    groups = {(f"{o.comm}{list(m)}", o.comm, m) for o in program for m in o.groups}
    comms = [
        {"comm": c, "name": n, "ranks": list(m), "size": len(m), "dim": "unknown"}
        for c, n, m in sorted(groups)
    ]
    return Job(rows, _ranks(rows, ranks, per_host, recorded_hosts), comms)


def local(time_ns: int, host: int, offset_ns: tuple[int, ...], drift_ppm: tuple[float, ...]) -> int:
    """What the host's clock reads at a true time since the start of the job."""
    gained = round(time_ns * drift_ppm[host % len(drift_ppm)] / 1e6)
    return EPOCH_NS + time_ns + gained - offset_ns[host % len(offset_ns)]


def _ranks(rows: list[dict], ranks: int, per_host: int, recorded: bool) -> list[dict]:
    out = []
    for r in range(ranks):
        mine = [row for row in rows if row["rank"] == r]
        out.append(
            {
                "rank": r,
                "host": f"node{r // per_host}" if recorded else None,
                "device": r % per_host,
                "world_size": ranks,
                "start_ns": min((row["start_ns"] for row in mine), default=None),
                "end_ns": max((row["end_ns"] for row in mine), default=None),
            }
        )
    return out


def without(job: Job, drop) -> Job:
    """The job without the rows that `drop(row)` is true for."""
    return job._replace(rows=[r for r in job.rows if not drop(r)])


def instances(job: Job, resolved) -> dict[int, list[dict]]:
    """Rows by collective_id, each with its truth, and the match that was given."""
    found: dict[int, list[dict]] = {}
    for row, out in zip(job.rows, resolved.collectives.to_pylist(), strict=True):
        found.setdefault(out["collective_id"], []).append({**row, "match": out["match"]})
    return found


def wrong(job: Job, resolved) -> list[list[dict]]:
    """Instances that hold rows of different true instances: there must be none."""
    return [v for v in instances(job, resolved).values() if len({r["truth"] for r in v}) > 1]
