"""Each host spreads what it sends to another evenly over its rails before it sends.

The busiest NIC falls to the mean on both ends, at the price of forwarding over NVLink: on the
sender's side what its rail has too much of, on the receiver's what arrives on another GPU's rail.
Loads and times are in `replay.moe.rails`.
"""

from __future__ import annotations

import numpy as np

from ..moe import exchange, params, rails
from ..moe.tokens import TOKEN_BYTES
from ..policy import BadParam, Param, Policy, ReplayJob
from ..quantities import size_bytes

NEUTRAL = {"granularity": 1 << 62, "native": "two-hop"}
"""Nothing can be split, and what ran has the same two hops."""

ASSUMPTIONS = (
    "every GPU has a NIC of its own, on the rail of its place in the host",
    "rails and NVLink reach the bandwidths taken for them; leaf and spine do not limit",
)


def apply(
    job: ReplayJob,
    *,
    granularity: int,
    native: str,
    forward: str,
    chunk: int,
    **ports,
) -> ReplayJob:
    """The job with its all-to-alls between hosts balanced over rails."""
    if granularity < 0 or chunk < 0:
        raise BadParam("policy rail-balance: granularity and chunk are 0 bytes or more")
    found = exchange.find(job, **ports)
    if not found.exchanges:
        return found.job
    piece = np.inf if granularity >= NEUTRAL["granularity"] else float(granularity)
    old, new = np.ones(len(found.exchanges)), np.ones(len(found.exchanges))
    added = np.zeros(len(old))
    before, after, forwarded, sent, least = [], [], 0.0, 0.0, 0.0
    moved: list[np.ndarray | None] = [None] * len(old)
    done: list[np.ndarray | None] = [None] * len(old)
    for i, one in enumerate(found.exchanges):
        if one.where is None or one.where.hosts < 2 or one.where.rails < 2:
            continue
        was = rails.loads(one.demand.matrix, one.where, native)
        now = rails.balanced(one.demand.matrix, one.where, piece)
        how = {"pipelined": forward == "pipelined", "chunk_bytes": float(chunk)}
        old[i] = one.latency_ns + rails.time_ns(was, found.speeds, **how)
        new[i] = one.latency_ns + rails.time_ns(now, found.speeds, **how)
        added[i] = max(0, now.hops - was.hops) * one.inside_ns
        done[i] = rails.done(now, one.where, found.speeds)
        moved[i] = rails.carried(one.demand.matrix, one.where, piece)
        before.append((was.send, was.recv))
        after.append((now.send, now.recv))
        forwarded += now.forwarded
        sent += float(now.send.sum())
        least += rails.least_ns(one.demand.matrix, one.where, found.speeds)
    if not before:
        return found.job.note(warnings=(_nothing(found),))
    (out, into), (out_now, into_now) = exchange.busiest(before), exchange.busiest(after)
    share = 100 * forwarded / sent if sent else 0.0
    said = (
        f"busiest NIC over the mean, in {len(before)} of {len(old)} all-to-alls: out "
        f"{out:.3f} to {out_now:.3f}, in {into:.3f} to {into_now:.3f}; of {sent / 1e6:.4g} MB "
        f"between hosts {share:.0f} % cross NVLink as well, {forward}, whose messages take "
        f"{added.sum() / 1e3 / len(before):.3g} us of each (mean); over all its rails the "
        f"busiest host needs {least / 1e6:.4g} ms, in whatever way"
    )
    job = exchange.retimed(found, old, new, added_ns=added, matrices=moved, done=done)
    even = sum(one.demand.source == "uniform" for one in found.exchanges)
    if even:
        job = job.note(
            warnings=(
                f"{even} of {len(old)} all-to-alls are taken to be even, which leaves nothing to "
                f"balance: {params.RECORD}",
            )
        )
    return job.note(assumptions=(said, *ASSUMPTIONS))


def _nothing(found: exchange.Found) -> str:
    hosts = {one.hosts for one in found.exchanges}
    if hosts == {0}:
        return (
            "the hosts of its ranks are not known, so neither are rails: record host names, or "
            "give local=GPUs a host; nothing is changed"
        )
    if max(hosts) < 2:
        return "every all-to-all stays on one host: no rail carries any of it, nothing is changed"
    return "no all-to-all has two ranks on one host: no other rail to send over, nothing is changed"


POLICY = Policy(
    name="rail-balance",
    summary="hosts spread all-to-alls evenly over their rails before sending",
    source="RailS (arXiv 2510.19262); DeepEP (two hops); LPT: Graham 1969",
    params=(
        Param(
            "granularity",
            size_bytes,
            TOKEN_BYTES,
            "bytes",
            "piece that is not split, a token by default (0: split evenly)",
        ),
        Param(
            "native",
            str,
            "direct",
            "",
            "path that ran: to the destination's own NIC, by NVLink after the network (DeepEP), "
            "or by NVLink before it (PXN)",
            rails.PATHS,
        ),
        Param(
            "forward",
            str,
            "serial",
            "",
            "forwarding before and after the network, or beside it chunk by chunk",
            ("serial", "pipelined"),
        ),
        Param("chunk", size_bytes, 1 << 20, "bytes", "of pipelined forwarding"),
        *params.PORTS,
    ),
    assumptions=ASSUMPTIONS,
    apply=apply,
    needs=("all_to_all between hosts with splits, transfers or routing", "hosts of ranks"),
    valid="exchanges that rails bound; where latency does, the ratio goes to 1",
    checked="800 MB on one of four rails of 50 GB/s: 16 ms, balanced 4 ms and 3.75 ms of "
    "forwarding over 160 GB/s (arithmetic)",
)
