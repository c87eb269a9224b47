"""Another algorithm for chosen collectives: ring or tree, by alpha-beta fitted from the trace.

A transfer's new time is the measured one times model(new algorithm) / model(old algorithm), with
the same alpha and bandwidth in both, so that an error common to both cancels. Closed forms and
their sources are in `replay.models`.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from .. import calibrate, models
from ..graph import Kind
from ..policy import Param, Policy, ReplayJob, words
from ..quantities import bandwidth_bytes_per_s, time_ns

ASSUMED = "ring"


ASSUMPTIONS = (
    "alpha and bandwidth are the same under both algorithms",
    "the new algorithm contends with other work as the old one did",
)


def apply(
    job: ReplayJob,
    *,
    op: tuple[str, ...],
    algo: str,
    alpha: float | None,
    bandwidth: float | None,
    **more: str,
) -> ReplayJob:
    """The job with the transfers of the chosen operations under another algorithm."""
    ops = (op,) if isinstance(op, str) else tuple(op)
    for one in ops:
        models.form(one, algo)
    graph = job.graph
    rows = calibrate.instances(job.facts.get("measured", graph))
    chosen = rows.filter(pl.col("op").is_in(ops))
    if not len(chosen):
        have = ", ".join(sorted(set(rows["op"]))) or "no collectives"
        return job.note(warnings=(f"the job has no {' or '.join(ops)}: it has {have}",))
    whole = chosen.filter(pl.col("seen") >= pl.col("n"))
    if len(whole) < len(chosen):
        said = (
            f"{len(chosen) - len(whole)} of {len(chosen)} {'/'.join(ops)} were not seen on all "
            "their ranks: how much of their time is waiting for the others is not known, so they "
            "are left as measured"
        )
        job = job.note(warnings=(said,))
    chosen = whole
    old = more["from"]
    if old == "auto":
        unknown = int((chosen["algo"] == "?").sum())
        if unknown:
            job = job.note(
                assumptions=(
                    f"{unknown} of {len(chosen)} collectives do not say their algorithm: "
                    f"taken to be {ASSUMED}",
                )
            )
        chosen = chosen.with_columns(pl.col("algo").replace("?", ASSUMED))
    else:
        chosen = chosen.with_columns(algo=pl.lit(old))
    ratio = np.ones(int(graph.collective.max()) + 1)
    for _, group in chosen.group_by("comm", "op", "algo", "n", maintain_order=True):
        job = _group(job, group, algo, alpha, bandwidth, ratio)
    task = graph.kind == Kind.TRANSFER
    dur = graph.dur_ns.copy()
    dur[task] = np.rint(dur[task] * ratio[graph.collective[task]]).astype(np.int64)
    return job.with_graph(dur_ns=dur).note(assumptions=ASSUMPTIONS)


def _group(job, rows, algo, alpha, bandwidth, ratio) -> ReplayJob:
    """Fills in the ratios of one communicator's collectives of one operation."""
    op, old, n = rows["op"][0], rows["algo"][0], int(rows["n"][0])
    if old == algo or n < 2:
        return job
    label = f"{op} on {rows['comm'][0]}"
    try:
        models.form(op, old)
    except models.NoModel:
        said = f"{len(rows)} {label} ran as {old!r}, which has no model: left as measured"
        return job.note(warnings=(said,))
    sized = rows.filter(pl.col("bytes") > 0)
    if len(sized) < len(rows):
        said = f"{len(rows) - len(sized)} of {len(rows)} {label} have no size: left as measured"
        job = job.note(warnings=(said,))
    if not len(sized):
        return job
    try:
        found = calibrate.fit(sized, old, alpha_ns=alpha, bandwidth_bytes_per_s=bandwidth)
    except calibrate.NoFit as e:
        said = f"{label}: no fit of alpha and bandwidth is possible, left as measured: {e}"
        return job.note(warnings=(said,))
    size = sized["bytes"].to_numpy()
    cost = [
        models.time_ns(op, a, n, size, found.alpha_ns, found.bandwidth_bytes_per_s)
        for a in (algo, old)
    ]
    ratio[sized["collective"].to_numpy()] = cost[0] / cost[1]
    if alpha is None or bandwidth is None:
        job = job.note(assumptions=(f"fitted: {found.words()}",))
    if not found.separated and (alpha is None and bandwidth is None):
        new_form, old_form = models.form(op, algo), models.form(op, old)
        bounds = sorted(
            (
                new_form.messages(n) / old_form.messages(n),
                new_form.volume(n) / old_form.volume(n),
            )
        )
        job = job.note(
            warnings=(
                f"{label}: sizes from {found.min_bytes} to {found.max_bytes} bytes are too alike "
                f"to tell alpha from bandwidth; alpha taken as {found.alpha_ns / 1e3:.3g} us. "
                f"Whatever alpha is, {algo} takes {bounds[0]:.2f} to {bounds[1]:.2f} times as long",
            )
        )
    return job


POLICY = Policy(
    name="algorithm",
    summary="another algorithm for chosen collectives (ring, tree)",
    source="Thakur, Rabenseifner, Gropp 2005; alpha-beta (Hockney) model",
    params=(
        Param("op", words, ("all_reduce",), "", "operations to change, joined by +"),
        Param("algo", str, "tree", "", "algorithm to use instead", models.ALGOS),
        Param(
            "from",
            str,
            "auto",
            "",
            "algorithm that ran; auto: what the trace says, else ring",
            ("auto", *models.ALGOS),
        ),
        Param("alpha", time_ns, None, "ns", "cost of a message (default: fitted from the trace)"),
        Param(
            "bandwidth",
            bandwidth_bytes_per_s,
            None,
            "bytes/s",
            "of a link, one direction (default: fitted from the trace)",
        ),
    ),
    assumptions=ASSUMPTIONS,
    apply=apply,
)
