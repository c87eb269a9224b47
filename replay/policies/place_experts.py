"""Experts moved to the hosts whose tokens choose them: fewer tokens cross hosts.

The log holds counts by source rank and expert, so what can be used is which hosts want an expert;
co-activation needs tokens one by one (`replay.moe.placing.from_tokens`). A placement is made from
the first steps of the log and judged by the others: where copies across hosts do not fall there,
experts stay.
"""

from __future__ import annotations

import numpy as np

from ..moe import exchange, expert_kernels, params, tokens, windows
from ..moe.moves import Moves
from ..policy import BadParam, Param, Policy, ReplayJob, Stage

NEUTRAL = {"train": 1.0}
"""Nothing is held out, so nothing is judged and nothing moves."""

ASSUMPTIONS = (
    "bytes go with choices of experts on other hosts; with top_k a placement is judged by copies, "
    "one to each host, of tokens that choose as the counts tell and otherwise at random",
    "an all-to-all takes as long as its busiest port, and routing does not change",
)


def apply(
    job: ReplayJob,
    *,
    train: float,
    amortise: int,
    top_k: int,
    hidden_size: int,
    intermediate: int,
    element: int,
    kernels: tuple[str, ...],
    **ports,
) -> ReplayJob:
    """The job with experts nearer to the tokens that choose them, in the steps held out."""
    name = "place-experts"
    params.checked(name, amortise=amortise, hidden_size=hidden_size, intermediate=intermediate,
                   element=element)  # fmt: skip
    if top_k < 0:
        raise BadParam(f"policy {name}: top_k={top_k}: experts of a token, or 0 where not known")
    if not 0 < train <= 1:
        raise BadParam(f"policy {name}: train={train}: a share of the steps, above 0 to 1")
    if "exchanged" in job.facts:
        return job.note(warnings=(exchange.AGAIN.format(name=name),))
    found = exchange.find(job, dim=exchange.dims(job, "ep", "cp"), **ports)
    if not found.exchanges:
        return found.job
    routing = found.routing
    if routing is None:
        return found.job.note(warnings=(params.NO_ROUTING,))
    seen = routing.steps[: max(1, round(train * len(routing.steps)))]
    held_out = routing.steps[len(seen) :]
    if not held_out:
        said = "no step of the routing log is held out to judge a placement by: nothing is changed"
        return found.job.note(warnings=(said,))
    weight = tokens.expert_bytes(hidden_size, intermediate, element)
    old, new = np.ones(len(found.exchanges)), np.ones(len(found.exchanges))
    added = np.zeros(len(found.exchanges))
    moves: dict[bytes, Moves] = {}
    before, after, unmoved = [], [], set()
    moved: list[np.ndarray | None] = [None] * len(old)
    charged: set[tuple] = set()
    for i, one in enumerate(found.exchanges):
        key = one.demand.members.tobytes()
        if key not in moves:
            moves[key] = Moves(routing, one, seen, held_out, top_k)
        plan = moves[key]
        if plan.why:
            unmoved.add(plan.why)
            continue
        pairs = windows.behind(routing, one, held_out)
        if not pairs:
            continue
        times = windows.times(found, one, pairs, plan)
        old[i], new[i], moved[i] = times.old_ns, times.new_ns, times.matrix
        before += times.before
        after += times.after
        for layer in {layer for _, layer in pairs}:
            once = (key, one.demand.step, layer)
            if once not in charged:
                charged.add(once)
                fetched = plan.received(layer) * weight * 1e9 / found.speeds.nic_bytes_per_s
                added[i] += fetched / amortise
    job = found.job.note(warnings=tuple(sorted(unmoved)))
    if not before:
        return job
    (out, into), (out_now, into_now) = exchange.busiest(before), exchange.busiest(after)
    was, now = (sum(getattr(m, c) for m in moves.values()) for c in ("copies_before", "copies_now"))
    what = f"copies of tokens ({top_k} experts each, by counts)" if top_k else "choices"
    said = (
        f"placed by {len(seen)} steps of the log, judged by {len(held_out)} others: {what} that "
        f"cross hosts {was:.0f} to {now:.0f}, {sum(m.moved for m in moves.values())} experts moved",
        f"busiest rank over the mean: out {out:.3f} to {out_now:.3f}, in {into:.3f} to "
        f"{into_now:.3f}",
        f"moving weights ({weight / 1e6:.4g} MB an expert) is spread over {amortise} steps: "
        f"{added.sum() / 1e6:.3g} ms in all",
    )
    job = exchange.retimed(found._replace(job=job), old, new, added_ns=added, matrices=moved)
    loads = [(m.members, m.loads) for m in moves.values() if not m.why]
    return expert_kernels.scaled(job, loads, kernels).note(assumptions=(*said, *ASSUMPTIONS))


POLICY = Policy(
    name="place-experts",
    summary="experts moved to the hosts whose tokens choose them",
    source="ExFlow (arXiv 2401.08383), Mozart: affinity; greedy merge and swaps are textbook",
    params=(
        Param("train", float, 0.5, "", "share of the log's steps that placements are made from"),
        Param("amortise", int, 1000, "steps", "over which moving the weights is spread"),
        Param(
            "top_k",
            int,
            0,
            "experts",
            "of a token: copies sent once to each host are judged; 0: choices, each a copy",
        ),
        Param("hidden_size", int, tokens.HIDDEN, "", "hidden size, for an expert's weights"),
        Param("intermediate", int, tokens.INTERMEDIATE, "", "width of an expert, for the same"),
        Param("element", int, 2, "bytes", "of a weight"),
        params.KERNELS,
        *params.PORTS,
    ),
    assumptions=ASSUMPTIONS,
    apply=apply,
    stage=Stage.PLACEMENT,
    needs=("all_to_all between hosts", "a routing log with source ranks", "hosts of ranks"),
    valid="routing that later steps resemble; moved experts may load ranks less evenly",
    checked="4 experts, 2 hosts, tokens {0,2} and {1,3} three times, {0,1} once: 13 hosts touched, "
    "8 after (arithmetic)",
)
