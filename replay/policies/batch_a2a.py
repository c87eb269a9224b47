"""One sequence-parallel all-to-all over N ranks as B at once over K = N / B ranks each.

Arithmetic in `replay.moe.sequence`; what K ranks on one host gain over N on several comes from the
bandwidth within hosts. On a fabric the large exchange, and the small ones all at once, are
simulated on its links instead.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from ...ingest.errors import UsageError
from .. import bounds, steps
from ..calibration import calibrate, link_sources, messages
from ..fabric import cost
from ..graph import Kind
from ..moe import exchange, params, sequence
from ..policy import BadParam, Param, Policy, ReplayJob, Stage, words
from ..quantities import bandwidth_bytes_per_s, time_ns
from ..retiming import link_rates, seats, transfers
from ..retiming.places import Places

NEUTRAL = {"batches": 1}
"""One all-to-all over all ranks, as it was."""

ASSUMPTIONS = (
    "the batch holds a multiple of as many sequences as all-to-alls run at once, and a rank holds "
    "as many bytes as before",
    "groups are of neighbours, so that each can lie within a host; the exchange is even",
    "what else is applied takes them for all-to-alls of all ranks, with the bytes that are left: "
    "who waits for whom stays, and so does the number of messages",
)


def apply(
    job: ReplayJob,
    *,
    batches: int,
    alpha: float | None,
    bandwidth: float | None,
    within: float | None,
    comm: tuple[str, ...],
    dim: tuple[str, ...],
) -> ReplayJob:
    """The job with its all-to-alls parted into `batches` at once."""
    params.checked("batch-a2a", batches=batches)
    dim = dim or exchange.dims(job, "cp", "ep")
    job, rows = transfers.chosen(job, op=("all_to_all",), comm=comm, dim=dim)
    if not len(rows):
        return job
    sizes = sorted(set(rows["n"].to_list()))
    if not any(sequence.split(n, batches) for n in sizes):
        ways = sorted({b for n in sizes for b in range(1, n + 1) if n % b == 0})
        raise BadParam(
            f"policy batch-a2a: batches={batches} does not divide all-to-alls of "
            f"{' or '.join(map(str, sizes))} ranks; take one of {', '.join(map(str, ways))}"
        )
    places = Places.of(job)
    _, intra, intra_words = link_sources.ports(job)
    ratio, moved = np.ones(len(rows)), np.ones(len(rows))
    counted, carried = link_rates.counted(job, rows), np.full(len(rows), np.nan)
    rates = bounds.capacities(job)[0]
    given = (alpha, bandwidth, within) != (None, None, None)
    said: dict[str, None] = {}
    number = rows.with_row_index("row")
    for _, group in number.group_by("comm", "n", maintain_order=True):
        name, n = group["comm"][0], int(group["n"][0])
        k = sequence.split(n, batches)
        if k is None:
            job = job.note(warnings=(f"{n} ranks of {name} do not divide by {batches}: left",))
            continue
        link = calibrate.link(job, name, "all_to_all")
        a = link.alpha_ns if alpha is None else alpha
        rate = link.bandwidth_bytes_per_s if bandwidth is None else bandwidth
        if alpha is None or bandwidth is None:
            said[f"on {name}, {link.words}"] = None
        members = np.array(sorted(group["ranks"][0]), np.int64)
        hosts, per = places.hosts_of(members), places.per_host(members)
        inside = rate
        if hosts > 1 and per and per % k == 0:
            inside = intra if within is None else within
            said[
                f"groups of {k} of {name} lie within hosts, where a rank sends at "
                f"{inside / 1e9:.4g} GB/s" + ("" if within else f" ({intra_words})")
            ] = None
        simulated = None if given or k == n else _simulated(job, members, k, group)
        for i, (row, size) in enumerate(group.select("row", "bytes").iter_rows()):
            was, now = sequence.cost(n, size), sequence.cost(k, size)
            old = was.time_ns(a, rate)
            ratio[row] = now.time_ns(a, inside) / old if old > 0 and k != n else 1.0
            moved[row] = now.sent_bytes / was.sent_bytes if was.sent_bytes else 1.0
            if simulated is not None:
                ratio[row] = simulated[i]
            # The floor counts the bytes that are left as if they still went to all hosts.
            spread = 1 if not per or per % k == 0 else -(-k // per)
            share = bounds.least_share("all_to_all", k, spread)
            if k != n and share > 0:
                carried[row] = counted.share[row] * moved[row] / share * rates[int(spread > 1)]
        if simulated is not None:
            said[
                f"{n // k} exchanges of {k} ranks of {name} at once are simulated on fabric "
                f"{job.facts['fabric'].name}, and the one of {n}"
            ] = None
        size = float(group["bytes"].median() or 0)  # pyright: ignore[reportArgumentType]
        was, now = sequence.cost(n, size), sequence.cost(k, size)
        said[
            f"a rank of {name} sends {was.messages} messages of {was.message_bytes:.4g} bytes "
            f"before, {now.messages} of {now.message_bytes:.4g} after (median of "
            f"{len(group)} all-to-alls)"
        ] = None
    share = _share(job, rows["collective"].to_numpy())
    said[
        f"these all-to-alls are at most {100 * share:.3g} % of the steps, so a step is at most "
        f"{sequence.most_gain(share):.4g} times as fast"
    ] = None
    wider = link_rates.ratio(counted, carried)
    job = transfers.scaled(job, rows, ratio, bytes_ratio=moved, bandwidth_ratio=wider)
    return job.note(assumptions=(*said, *ASSUMPTIONS))


def _simulated(job: ReplayJob, members: np.ndarray, k: int, group: pl.DataFrame):
    """Ratio of each of `group`, float64 [g], by simulation on the job's fabric; None without one.

    None, too, where the fabric does not hold the ranks, or cannot simulate so many flows.
    """
    fabric = job.facts.get("fabric")
    if fabric is None or k < 2:
        return None
    gpu, why = seats.gpus(job, fabric)
    if why:
        return None
    gpus = gpu[members]
    sizes, at = np.unique(group["bytes"].to_numpy().astype(np.float64), return_inverse=True)
    posts = [messages.software_ns(fabric, part) for part in (gpus, gpus[:k])]
    out = np.ones(len(sizes))
    try:
        for i, size in enumerate(sizes):
            alone = cost.collective_time_ns(
                fabric, "all_to_all", "direct", gpus, size, launch_ns=posts[0]
            )
            parts = [
                cost.Collective("all_to_all", "direct", part, size)
                for part in gpus.reshape(-1, k).tolist()
            ]
            out[i] = float(cost.concurrent_times(fabric, parts, launch_ns=posts[1]).max()) / alone
    except UsageError:
        return None
    return out[at.ravel()]


def _share(job: ReplayJob, collectives: np.ndarray) -> float:
    """The longest transfer of each collective, added up, over the steps' time (at most 1)."""
    graph = job.graph
    _, took = steps.measured(job.facts.get("measured", graph))
    task = (graph.kind == Kind.TRANSFER) & np.isin(graph.collective, collectives)
    longest = np.zeros(int(graph.collective.max(initial=0)) + 1)
    np.maximum.at(longest, graph.collective[task], graph.dur_ns[task])
    return min(1.0, float(longest.sum() / took.sum())) if took.sum() > 0 else 1.0


POLICY = Policy(
    name="batch-a2a",
    summary="one all-to-all over N ranks as B at once over N / B ranks each",
    source="DeepSpeed-Ulysses (arXiv 2309.14509); BASP; arithmetic",
    params=(
        Param("batches", int, 2, "", "all-to-alls at once, B; divides the group"),
        Param("alpha", time_ns, None, "ns", "cost of a message (default: fitted from the trace)"),
        Param(
            "bandwidth",
            bandwidth_bytes_per_s,
            None,
            "bytes/s",
            "a rank's in the large group (default: fitted from the trace)",
        ),
        Param(
            "within",
            bandwidth_bytes_per_s,
            None,
            "bytes/s",
            "a rank's where a small group lies on one host and the large one did not "
            "(default: by the device's name)",
        ),
        params.COMM,
        Param("dim", words, (), "", "to change, joined by + (default: cp, else all but ep)"),
    ),
    assumptions=ASSUMPTIONS,
    apply=apply,
    stage=Stage.VOLUME,
    needs=("all_to_all with sizes",),
    valid="even exchanges of sequence parallelism; not those of experts, whose demand is fixed",
    checked="N = 8, B = 4: messages 7 to 1, bytes 0.875 M to 0.5 M; a speed-up of 1.17 needs "
    "all-to-alls to be 14.5 % of the step (arithmetic); 85 times (BASP) is out of its reach",
)
