"""Copies of hot experts on other ranks: which, from the routing log, and what the exchange gains.

At ingest: DeepSeek's EPLB plans from one window of steps what the next one runs with. At run time:
each step's own counts place copies beside the experts that stay (`replay.moe.eplb`), and their
weights move in every step.
"""

from __future__ import annotations

import numpy as np

from ..moe import eplb, exchange, expert_kernels, params, routed, tokens, windows
from ..moe.copies import Plans
from ..policy import BadParam, Param, Policy, ReplayJob, Stage, words

NEUTRAL = {"budget": 0}
"""No copies: experts stay where they are."""

ASSUMPTIONS = (
    "an expert's tokens part evenly over its copies, and routing does not change",
    "an all-to-all takes as long as its busiest port; expert kernels as long as their tokens tell",
)


def apply(
    job: ReplayJob,
    *,
    budget: int | None,
    when: str,
    window: int,
    groups: int,
    amortise: int,
    hidden: float,
    hidden_size: int,
    intermediate: int,
    element: int,
    backward: bool,
    kernels: tuple[str, ...],
    **ports,
) -> ReplayJob:
    """The job with hot experts copied."""
    name = "replicate-experts"
    params.checked(name, window=window, groups=groups, amortise=amortise, hidden_size=hidden_size,
                   intermediate=intermediate, element=element)  # fmt: skip
    if not 0 <= hidden <= 1 or (budget is not None and budget < 0):
        raise BadParam(f"policy {name}: hidden is 0 to 1, budget 0 copies or more")
    if budget == 0:
        return job.note(assumptions=("no copies: nothing is changed",))
    if "exchanged" in job.facts:
        return job.note(warnings=(exchange.AGAIN.format(name=name),))
    found = exchange.find(job, dim=exchange.dims(job, "ep", "cp"), **ports)
    if not found.exchanges:
        return found.job
    routing = found.routing
    if routing is None:
        return found.job.note(warnings=(params.NO_ROUTING,))
    weight = tokens.expert_bytes(hidden_size, intermediate, element)
    old, new = np.ones(len(found.exchanges)), np.ones(len(found.exchanges))
    added = np.zeros(len(found.exchanges))
    plans: dict[bytes, Plans] = {}
    charged: set[tuple] = set()
    before, after, skipped = [], [], 0
    balance: list[tuple[float, float, float, float]] = []
    moved: list[np.ndarray | None] = [None] * len(old)
    for i, one in enumerate(found.exchanges):
        at = one.demand
        key = at.members.tobytes()
        if key not in plans:
            plans[key] = Plans(routing, one, budget, when, window, groups)
        plan = plans[key]
        pairs = [p for p in windows.behind(routing, one) if plan(*p) is not None]
        if not pairs:
            skipped += 1
            continue
        times = windows.times(found, one, pairs, plan)
        old[i], new[i], moved[i] = times.old_ns, times.new_ns, times.matrix
        before += times.before
        after += times.after
        rate = found.speeds.nic_bytes_per_s if one.hosts != 1 else found.speeds.nvlink_bytes_per_s
        for step, layer in pairs:
            once = (key, at.step, layer)
            if once not in charged:
                charged.add(once)
                balance.append(_balance(plan, step, layer))
                copies = plan.received(step, layer) / len({s for s, _ in pairs})
                copies /= amortise if when == "ingest" else 1
                added[i] += copies * weight * (2 if backward else 1) * 1e9 / rate
    if not before:
        return found.job.note(warnings=(_unplanned(routing, when),))
    (out, into), (out_now, into_now) = exchange.busiest(before), exchange.busiest(after)
    said = [
        f"busiest rank over the mean, bytes of {len(old) - skipped} all-to-alls: out {out:.3f} to "
        f"{out_now:.3f}, in {into:.3f} to {into_now:.3f}",
        f"copies' weights: {weight / 1e6:.4g} MB an expert, {added.sum() / 1e6:.4g} ms in all, of "
        f"which {100 * hidden:.3g} % hidden under other work"
        + (" (gradients of copies go back, too)" if backward else ""),
    ]
    mean, was, now, least = np.sum(balance, axis=0)
    if mean > 0:
        said.append(
            f"busiest rank's choices over the mean {was / mean:.3f} to {now / mean:.3f}; no place "
            f"of these copies brings it under {least / mean:.3f}"
        )
    if skipped:
        said.append(f"{skipped} all-to-alls before the first plan are left as measured")
    done = exchange.retimed(found, old, new, added_ns=added * (1 - hidden), matrices=moved)
    loads = [(p.members, p.loads) for p in plans.values()]
    done = expert_kernels.scaled(done, loads, kernels)
    return done.note(assumptions=(*said, *ASSUMPTIONS))


def _balance(plan: Plans, step: int, layer: int) -> tuple[float, float, float, float]:
    """Choices of the mean rank, of the busiest as held and as planned, and the planned's bound."""
    place = plan(step, layer)
    load = plan.routing.counts(step, layer, plan.members).sum(axis=0)
    if place is None or plan.held is None:
        return 0.0, 0.0, 0.0, 0.0
    held, planned = (float((load @ p).max()) for p in (plan.held, place))
    return float(load.sum()) / len(plan.members), held, planned, eplb.least_possible(load, place)


def _unplanned(routing: routed.Routing, when: str) -> str:
    if when == "ingest" and len(routing.steps) < 2:
        return "one step of routing: a plan from it has no later step to run in; try when=runtime"
    return "routing names no experts of these ranks, or no placement of them: nothing is changed"


POLICY = Policy(
    name="replicate-experts",
    summary="hot experts copied to other ranks, at ingest of routing or at run time",
    source="DeepSeek EPLB (repository); MegaFlux (copies at run time)",
    params=(
        Param("budget", int, None, "copies", "more than experts, a layer (default: one a rank)"),
        Param(
            "when",
            str,
            "ingest",
            "",
            "planned from the window of steps before, or from the step's own counts",
            ("ingest", "runtime"),
        ),
        Param("window", int, 1, "steps", "of the log behind a plan, and under it (ingest)"),
        Param(
            "amortise",
            int,
            1000,
            "steps",
            "between moves in the job, over which moving weights is spread (ingest)",
        ),
        Param("groups", int, 1, "", "groups of experts that stay on one host (ingest)"),
        Param("hidden", float, 0.91, "", "share of the weights' transfer under other work"),
        Param("hidden_size", int, tokens.HIDDEN, "", "hidden size, for an expert's weights"),
        Param("intermediate", int, tokens.INTERMEDIATE, "", "width of an expert, for the same"),
        Param("element", int, 2, "bytes", "of a weight"),
        Param("backward", bool, True, "", "copies' gradients are reduced, too (training)"),
        Param(
            "kernels",
            words,
            expert_kernels.KERNELS,
            "",
            "parts of expert kernels' names, joined by +",
        ),
        *params.PORTS,
    ),
    assumptions=ASSUMPTIONS,
    apply=apply,
    stage=Stage.PLACEMENT,
    needs=("all_to_all", "a routing log with counts by expert"),
    valid="routing that the next window resembles; hidden 0.91 to 1 is what MegaFlux reports",
    checked="the example of EPLB's README: the map it prints, max/mean 1.208 and 1.242",
)
