"""Links of a class faster or slower, or a scale-up domain of another size.

A class times f: beta / f, alpha untouched. A wider domain: collectives go level by level, inside
domains and between them (`models.hierarchical`). With a fabric the
ratio of a transfer's times is simulated on its links, before and after; without one it is that of
alpha-beta models, by whether a communicator stays inside a host.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...ingest.errors import UsageError
from .. import bounds, models
from ..calibration import calibrate, inside_hosts, link_sources, messages
from ..costs import domains
from ..fabric import Fabric
from ..fabric.cost import collective_time_ns
from ..fabric.rounds import TABLE, NoRounds
from ..models import hierarchical
from ..models.hierarchical import Level
from ..policy import BadParam, Param, Policy, ReplayJob, Stage
from ..retiming import by_group, link_rates, seats, transfers, waits_say
from ..retiming.places import Places

NEUTRAL = {"factor": 1.0, "domain": 0}

ASSUMPTIONS = (
    "alphas stay: a faster link sends its bytes sooner and is no nearer",
    "collectives are taken one at a time: what they do to each other on the links is the engine's",
)

Price = Callable[[by_group.Group], "np.ndarray | None"]


def apply(
    job: ReplayJob,
    *,
    link: str,
    factor: float,
    domain: int,
    op: tuple[str, ...] = (),
    dim: tuple[str, ...] = (),
    comm: tuple[str, ...] = (),
) -> ReplayJob:
    """The job with one class of links scaled, and scale-up domains of another size."""
    if not (np.isfinite(factor) and factor > 0):
        raise BadParam(f"policy scale-fabric: factor={factor:g}: above 0 (2 doubles bandwidth)")
    if domain < 0:
        raise BadParam(f"policy scale-fabric: domain={domain}: GPUs of one, or 0 for as it is")
    fabric = job.facts.get("fabric")
    if fabric is None and link not in ("all", domains.SCALE_UP, domains.SCALE_OUT):
        raise BadParam(
            f"policy scale-fabric: link={link}: without a fabric there are all, scale-up and "
            "scale-out; --fabric names others"
        )
    job, rows = transfers.chosen(job, op=op, dim=dim, comm=comm)
    if not len(rows):
        return job
    seat, why = _seats(job, fabric)
    if why:
        return job.note(warnings=(f"scale-fabric changed nothing: {why}",))
    carried = np.full(len(rows), np.nan)
    of = link_rates.counted(job, rows)
    if fabric is not None:
        price, said = _simulated(job, fabric, seat, link, factor, domain, of, carried)
    else:
        price, said = _modelled(job, seat, link, factor, domain, of, carried)
    said_before = job.warnings
    job, ratio = by_group.ratios(job, rows, price)
    if factor != 1 and job.warnings == said_before and (ratio == 1).all():
        job = job.note(
            warnings=(
                f"scale-fabric changed nothing: no collective's time depends on link={link} "
                "(scale-up: inside a host or domain, scale-out: beyond it, all: both)",
            )
        )
    wider = link_rates.ratio(of, carried)
    return transfers.scaled(job, rows, ratio, bandwidth_ratio=wider).note(
        assumptions=(*ASSUMPTIONS, *said, *waits_say.useful_bandwidth(job, rows))
    )


class _Seats(NamedTuple):
    gpu: np.ndarray
    """int64 [ranks]: numbered host by host."""
    per_host: int


def _seats(job: ReplayJob, fabric: Fabric | None) -> tuple[_Seats, str]:
    """Where ranks are, and why that is not known."""
    if fabric is not None:
        gpu, why = seats.gpus(job, fabric)
        return _Seats(gpu, fabric.gpus_per_host), why
    places = Places.of(job)
    ranks = np.arange(seats.n_ranks(job))
    host, local = places.host(ranks), places.local(ranks)
    if not len(ranks) or (host < 0).any() or (local < 0).any():
        return _Seats(ranks, 1), "which ranks share a host is not known: record the hosts, or "\
            "give a --fabric"  # fmt: skip
    first = np.full(len(places.names), len(ranks))
    np.minimum.at(first, host, ranks)
    per = int(local.max()) + 1
    return _Seats(np.argsort(np.argsort(first))[host] * per + local, per), ""


def _simulated(
    job: ReplayJob,
    fabric: Fabric,
    seat: _Seats,
    link: str,
    factor: float,
    domain: int,
    of: link_rates.Counted,
    carried: np.ndarray,
) -> tuple[Price, tuple[str, ...]]:
    """Ratios of simulated times on the fabric, as it is and as it would be.

    `carried` [rows] gets what a rank's links then carry, as the floor counts them.
    """
    try:
        after = domains.scaled_links(fabric, link, factor) if factor != 1 else fabric
        wide = domain not in (0, fabric.domain_gpus)
        if wide:
            after = domains.widened(after, domain)
    except UsageError as e:
        raise BadParam(f"policy scale-fabric: {e}") from e

    def price(group: by_group.Group) -> np.ndarray | None:
        gpus = seat.gpu[calibrate.ranks_of(job, group.comm)]
        if len(gpus) != group.n:
            raise models.NoModel("not all of its ranks are known")
        if fabric == after:
            return None
        sizes, at = np.unique(group.size_bytes, return_inverse=True)
        was, now = (messages.software_ns(f, gpus) for f in (fabric, after))

        def took(f: Fabric, laid: tuple[str, np.ndarray], size: float, software: float) -> float:
            return collective_time_ns(
                f, group.op, *laid, size, launch_ns=software, **_levels(laid, f, wide)
            )

        before, new = _laid(group, gpus, fabric, wide), _laid(group, gpus, after, wide)
        try:
            ratio = [took(after, new, s, now) / took(fabric, before, s, was) for s in sizes]
        except (NoRounds, UsageError) as e:
            raise models.NoModel(str(e)) from e
        rates = bounds.fabric_rates(after)
        _carry(group, of, carried, gpus // max(after.domain_gpus, after.gpus_per_host), rates)
        return np.array(ratio)[at.ravel()]

    said = [f"times are simulated on fabric {fabric.name}, each collective alone on it"]
    if wide:
        said.append("before and after, collectives go level by level: in domains, then between")
    return price, tuple(said)


def _laid(
    group: by_group.Group, gpus: np.ndarray, fabric: Fabric, wide: bool
) -> tuple[str, np.ndarray]:
    """The algorithm to simulate, and GPUs in the order of its ranks."""
    if wide and (group.op, "hierarchical") in TABLE:
        d = domains.per_domain(gpus // fabric.domain_gpus)
        if d is not None:
            return "hierarchical", gpus[np.argsort(gpus // fabric.domain_gpus, kind="stable")]
    if group.op == "all_to_all":
        return "direct", gpus
    return group.algo, gpus


def _levels(laid: tuple[str, np.ndarray], fabric: Fabric, wide: bool) -> dict:
    if not wide or laid[0] != "hierarchical":
        return {}
    d = domains.per_domain(laid[1] // fabric.domain_gpus)
    assert d is not None
    return {"levels": (d, len(laid[1]) // d)}


def _modelled(
    job: ReplayJob,
    seat: _Seats,
    link: str,
    factor: float,
    domain: int,
    of: link_rates.Counted,
    carried: np.ndarray,
) -> tuple[Price, tuple[str, ...]]:
    """Ratios of alpha-beta times: a flat line for a factor alone, levels where domains change.

    `carried` as in `_simulated`.
    """
    up = factor if link in ("all", domains.SCALE_UP) else 1.0
    out = factor if link in ("all", domains.SCALE_OUT) else 1.0
    per = seat.per_host
    wide = domain not in (0, per)
    rates = bounds.capacities(job)[0]
    if wide and (domain % per if domain > per else per % domain):
        raise BadParam(
            f"policy scale-fabric: domain={domain}: hosts have {per} GPUs; whole hosts, or a "
            "divisor of that, would work"
        )
    inside, words_in = (0.0, 0.0), ""
    if wide:
        *near_by, words_in = inside_hosts.link(job, "all_reduce")
        inside = (near_by[0], near_by[1])

    def price(group: by_group.Group) -> np.ndarray | None:
        gpus = seat.gpu[calibrate.ranks_of(job, group.comm)]
        if len(gpus) != group.n:
            raise models.NoModel("not all of its ranks are known")
        own = group.link
        if not wide:
            f = up if len(np.unique(gpus // per)) == 1 else out
            if f == 1:
                return None
            at = group.rows["at"].to_numpy()
            carried[at] = f * of.bytes_per_s[at]
            return group.time_ns(None, f * own.bandwidth_bytes_per_s) / group.time_ns()
        old, new = (domains.per_domain(gpus // size) for size in (per, domain))
        if old is None or new is None:
            raise models.NoModel("domains do not hold as many of its ranks each")
        near = (own.alpha_ns, own.bandwidth_bytes_per_s) if old == group.n else inside
        far = _between(job, group, old)
        before = _time(group, old, near, far)
        after = _time(group, new, (near[0], near[1] * up), (far[0], far[1] * out))
        _carry(group, of, carried, gpus // domain, (rates[0] * up, rates[1] * out))
        return after / before

    said = () if not wide else (
        "before and after, collectives go level by level: in domains, then between, one NIC a GPU",
        f"inside domains: {words_in}",
    )  # fmt: skip
    return price, said


def _carry(
    group: by_group.Group,
    of: link_rates.Counted,
    carried: np.ndarray,
    domain: np.ndarray,
    rates: tuple[float | None, float | None],
) -> None:
    """Sets what a rank's links carry of what the floor counts, bytes/s, once domains are such.

    What must leave a domain takes the NIC; the rest of what is counted may take both.
    """
    at = group.rows["at"].to_numpy()
    inside, outside = rates
    d = domains.per_domain(domain)
    share = of.share[at[0]]
    if d is None or not share > 0:
        return
    apart = group.n > d
    leaves = bounds.least_share(group.op, group.n, group.n // d) if apart else 0.0
    ways = (inside or 0.0) + ((outside or 0.0) if apart else 0.0)
    if not ways or (apart and not outside):
        return
    took = max(leaves / outside if apart and outside else 0.0, share / ways)
    carried[at] = share / took


def _between(job: ReplayJob, group: by_group.Group, per_domain: int) -> tuple[float, float]:
    """Alpha and a NIC's bandwidth between domains: by what the communicator itself was seen to do.

    A flat algorithm that is faster than one NIC used several of each domain, as in `hierarchical`.
    """
    link = group.link
    if per_domain == 1:
        return link.alpha_ns, link.bandwidth_bytes_per_s
    if link.source in ("fitted", "curve", "seen") and link.level != "intra host":
        used = round(link.bandwidth_bytes_per_s / link_sources.nic_bytes_per_s(job))
        return link.alpha_ns, link.bandwidth_bytes_per_s / min(max(1, used), per_domain)
    alpha, bandwidth, _ = link_sources.machine(job, "inter host")
    return alpha, bandwidth


def _time(group: by_group.Group, d: int, near: tuple, far: tuple) -> np.ndarray:
    """float64 [k]: level by level where the operation has levels; else over its farthest link."""
    if group.op in hierarchical.OPS:
        nest = (Level(d, *near), Level(group.n // d, *far))
        return hierarchical.time_ns(group.op, nest, group.size_bytes)
    return group.time_ns(*(near if d == group.n else far))


POLICY = Policy(
    name="scale-fabric",
    summary="links of a class faster or slower, or a wider scale-up domain",
    source="alpha-beta (Hockney) model, max-min fair flows on a fabric; hierarchical all-reduce",
    params=(
        Param("link", str, domains.SCALE_OUT, "", "links to scale: all, scale-up, scale-out, or a "
              "class of the fabric"),
        Param("factor", float, 2.0, "x", "how many times as fast they are (0.5: half)"),
        Param("domain", int, 0, "GPUs", "size of a scale-up domain (0: as it is)"),
        *transfers.WHICH,
    ),
    assumptions=ASSUMPTIONS,
    apply=apply,
    stage=Stage.LINKS,
    needs=("collectives with sizes, seen on all their ranks", "hosts of ranks, or a fabric"),
    valid="sizes within the calibrated range; domains of whole hosts or parts of one",
    checked=(
        "1024 GPUs, TP8 x DP128, 8 GB of gradients a GPU, 50 GB/s out and 450 inside: domains of "
        "8 to 64 take the step from 0.939 s to 0.690 s, wider ones gain under 2 % (arithmetic)"
    ),
)  # fmt: skip
