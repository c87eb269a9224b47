"""Network operations initiated by the GPU or by a CPU proxy, on queues of their own or shared.

A message costs t_init + t_done (and the proxy, where one stands between) beside its wire and its
bytes; behind Q bytes of bulk on the same queue it also waits Q/B; and a NIC with more connections
than it caches starts fewer messages a second. What was recorded holds the old path's cost: the
difference is what moves. A rank that moves its bytes in messages of m starts qS/m of them, which
takes no less than the NIC's rate allows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..calibration.hockney import coefficients
from ..costs.launching import COMPLETE_NS, INITIATE_NS, PROXY_NS, overhead_ns, rate_share
from ..fabric.description import Fabric
from ..policy import BadParam, Param, Policy, ReplayJob, Stage
from ..quantities import size_bytes, time_ns
from ..retiming import by_group, fabric_says, transfers

RATE = 200e6
"""A ConnectX-7's, as it is sold."""

NEUTRAL = {"path": "proxy", "recorded": "proxy"}

ASSUMPTIONS = (
    "every message of an algorithm's chain is a network operation, started on the path given",
)


def apply(
    job: ReplayJob,
    *,
    path: str,
    recorded: str,
    initiate: float,
    complete: float,
    proxy: float,
    bulk: int,
    connections: int,
    rate: float | None,
    message: int,
    op: tuple[str, ...] = (),
    dim: tuple[str, ...] = (),
    comm: tuple[str, ...] = (),
) -> ReplayJob:
    """The job with network operations started on another path."""
    for name, value in (("initiate", initiate), ("complete", complete), ("proxy", proxy)):
        if value < 0:
            raise BadParam(f"policy launch-path: {name}={value:g}: a time of 0 or more")
    if bulk < 0 or connections < 0 or message < 0:
        raise BadParam("policy launch-path: bulk, connections and message are 0 or more")
    if rate is not None and not (np.isfinite(rate) and rate > 0):
        raise BadParam(f"policy launch-path: rate={rate:g}: messages a second, above 0")
    started_per_s, rate_words = fabric_says.value(
        job, "messages a second of a NIC", rate, _rate_of(connections), RATE
    )
    # A fabric's rate is that of these connections already.
    share = 1.0 if rate_words else rate_share(connections)
    job, rows = transfers.chosen(job, op=op, dim=dim, comm=comm)
    if not len(rows):
        return job
    less_ns = overhead_ns(path, initiate, complete, proxy) - overhead_ns(
        recorded, initiate, complete, proxy
    )
    on_host, unplaced, bound, cheap = 0, 0, 0, 0

    def price(group: by_group.Group) -> np.ndarray | None:
        nonlocal on_host, unplaced, bound, cheap
        if group.link.level == "intra host":
            on_host += len(group.rows)
            return None
        if group.link.level == "unknown":
            unplaced += len(group.rows)
        messages, volume = coefficients(group.op, group.algo, group.n)
        before = group.time_ns()
        # No path makes a message cost less than nothing.
        cheap += len(group.rows) if group.link.alpha_ns + less_ns < 0 else 0
        alpha = max(group.link.alpha_ns + less_ns, 0.0)
        after = group.time_ns(alpha) + bulk * 1e9 / group.link.bandwidth_bytes_per_s
        started = np.maximum(messages, volume * group.size_bytes / message if message else 0.0)
        limited = bool(connections or message)
        limit = started * 1e9 / (started_per_s * share) if limited else 0.0
        bound += int((after < limit).sum())
        return np.maximum(after, limit) / before

    job, ratio = by_group.ratios(job, rows, price)
    job = transfers.scaled(job, rows, ratio).note(assumptions=ASSUMPTIONS)
    said = []
    if on_host:
        said.append(f"{on_host} collectives stay inside a host, without a NIC: left as measured")
    if unplaced:
        said.append(
            f"whether {unplaced} collectives leave a host is not known: taken to; record the hosts "
            "of ranks to tell"
        )
    if cheap:
        said.append(
            f"a message of {cheap} collectives was recorded to cost less than the "
            f"{-less_ns / 1e3:.3g} us that the path would save: taken to cost nothing; they may "
            f"not have gone by {recorded}"
        )
    if bound:
        said.append(f"{bound} collectives are bound by the NIC's message rate, not by the path")
    notes = (
        f"a message costs {less_ns / 1e3:+.3g} us against what was recorded ({recorded} to {path})",
    )
    if connections or message:
        notes += rate_words
    if bulk:
        notes += (f"each collective begins behind {bulk / 1e6:.4g} MB of bulk on its queue",)
    return job.note(assumptions=notes, warnings=tuple(said))


def _rate_of(connections: int) -> Callable[[Fabric], float | None]:
    return lambda fabric: fabric.nic and fabric.nic.link.message_rate_per_s(connections)


POLICY = Policy(
    name="launch-path",
    summary="network operations started by the GPU or a CPU proxy, on own or shared queues",
    source="GPU-Initiated Communication Dissected; NCCL GIN (arXiv 2511.15076)",
    params=(
        Param("path", str, "gpu", "", "who starts operations", ("gpu", "proxy")),
        Param("recorded", str, "proxy", "", "who did in the recorded job", ("gpu", "proxy")),
        Param("initiate", time_ns, INITIATE_NS, "ns", "to initiate an operation"),
        Param("complete", time_ns, COMPLETE_NS, "ns", "to see that it is done"),
        Param("proxy", time_ns, PROXY_NS, "ns", "more by way of a CPU proxy"),
        Param("bulk", size_bytes, 0, "bytes", "of other traffic ahead on the same queue"),
        Param("connections", int, 0, "", "of a NIC, for its message rate; 0: no limit"),
        Param(
            "rate",
            float,
            None,
            "1/s",
            "messages a NIC starts a second (the fabric's, else 200e6 with few connections)",
        ),
        Param(
            "message",
            size_bytes,
            0,
            "bytes",
            "that an operation moves (7KiB: a token of 7168 FP8); 0: as the algorithm's messages",
        ),
        *transfers.WHICH,
    ),
    assumptions=ASSUMPTIONS,
    apply=apply,
    stage=Stage.LINKS,
    needs=("collectives with sizes between hosts", "the hosts of ranks"),
    valid="messages posted one after another; a proxy thread itself starts 1 to 3 M a second",
    checked=(
        "4.7 us a message; behind 8 MiB of bulk at 50 GB/s 37 times that, behind 400 MB 1,700 "
        "times; 3,000 connections lose 59 % of the message rate (published)"
    ),
)
