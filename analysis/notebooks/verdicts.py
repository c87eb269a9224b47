"""What a notebook found, in words computed from its rows, and what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from .. import units
from ..diff import LEAST_NS
from ..sentences import mostly_paired, straggler_sentence
from . import words
from .session import Said, Sides

if TYPE_CHECKING:
    from ..doors import Job

FLOOR = 0.05
"""Share of a step under which no part is worth a fix."""

ODD = 0.05
"""Probability by chance under which a host is called late."""


def slow(job: Job, by_path: pl.DataFrame, suspects: pl.DataFrame) -> Said:
    """Where the step goes, who holds it up and by what, and what bandwidth could gain."""
    facts = job.show()
    if facts["scope"] == "nothing":
        return words.nothing(job)
    said = [f"**{words.step(facts)}**", words.culprit(facts, suspects)]
    said.append(words.most(facts))
    if by_path.height:
        top = by_path.row(0, named=True)
        said.append(
            f"Of the critical path {top['percent']:.1f} % is {top['class']} time of rank "
            f"{top['rank']}."
        )
    share = {r["class"]: r["share"] for r in facts["classes"]}
    nexts = ["replay {job} --policy align-arrivals", "notebook {job} --name who-is-late"]
    if share.get("exposed_transfer", 0) > share.get("exposed_wait", 0):
        nexts = ["notebook {job} --name is-it-the-network", "replay {job} --policy scale-fabric"]
    return words.verdict(said, job, [*nexts, "export {job}"])


def late(job: Job, trend: pl.DataFrame, causes: pl.DataFrame, proxies: pl.DataFrame) -> Said:
    """Who is late, why, whether it drifts, and how far clocks allow to say so."""
    facts = job.show()
    said = [words.culprit(facts, causes)]
    if facts["culprit"]:
        # Why has been said; how often and at what cost has not.
        without = {**facts, "culprit": {**facts["culprit"], "why": None}}
        said.append(words.plain(straggler_sentence(without)))
    found = facts["culprit"] or facts["waited_for"]
    drifting = [
        f"rank {r['rank']} ({r['slope_ms_per_step']:+.3f} ms a step)"
        for r in trend.unique("rank", keep="first", maintain_order=True).iter_rows(named=True)
        if _exceeds(r["slope_ms_per_step"], r["slope_error_ms"])
        and r["slope_ms_per_step"] > FLOOR * facts["step_ns"] / 1e6 / 10
    ]
    if trend.height:
        said.append(
            f"Drifting later beyond twice the error: {_some(drifting)}."
            if drifting
            else "No rank drifts later by more than twice the error of its slope."
        )
    sums = proxies.select(pl.col("wait_ms", "proxy_ms").sum()).row(0)
    if sums[0]:
        error = proxies["clock_error_ms"].max()
        clocks = "not known" if error is None else "0: one clock" if not error else f"{error} ms"
        said.append(
            f"How sure: all waits add up to {units.time(sums[0] * 1e6)}, "
            f"{units.time((sums[1] or 0) * 1e6)} by the proxy that needs no clocks; the clocks' "
            f"error is {clocks}."
        )
    nexts = ["export {job}"]
    if mostly_paired(facts):
        nexts = ["stragglers {job}", *nexts]
    elif found:
        of_rank = f"replay {{job}} --policy align-arrivals:ranks={found['rank']}"
        nexts = [of_rank, "replay {job} --policy align-arrivals", *nexts]
    return words.verdict(said, job, nexts)


def network(
    job: Job,
    tax: pl.DataFrame,
    speeds: pl.DataFrame,
    fits: pl.DataFrame,
    slow_ones: pl.DataFrame,
) -> Said:
    """Whether the network is the cause: the waiting share, and the most that it could gain."""
    facts = job.show()
    wait, transfer, unsplit = map(_sum, (tax["wait_ms"], tax["transfer_ms"], tax["unsplit_ms"]))
    if not wait + transfer + unsplit:
        return words.verdict(
            ["**Nothing can be said: no source timed a collective of this job.**"],
            job, ["problems {job}", "tables waits"],
        )  # fmt: skip
    most = words.share(facts, "exposed_transfer") + words.share(facts, "exposed_comm_unsplit")
    split = wait + transfer
    if not split:
        head = "It cannot be said: of no collective two ranks were seen on one clock."
    elif wait > transfer or most < FLOOR:
        head = f"Mostly not: {units.percent(wait / split)} of the time in collectives is waiting."
    elif most >= 2 * FLOOR:
        head = f"Yes, much of it: {units.percent(transfer / split)} of the time in collectives is "
        head += "transfer, and much of that is not under compute."
    else:
        head = f"A little: {units.percent(transfer / split)} of the time in collectives is "
        head += "transfer, but most of that is under compute."
    said = [f"**{head}**", words.most(facts), words.culprit(facts, None)]
    known = speeds.drop_nulls("busbw_transfer")
    if known.height:
        r = known.row(0, named=True)
        said.append(
            f"The largest operation ({words.code(r['op'])}, {words.code(r['size_class'])}) reaches "
            f"{units.rate(r['busbw'])} of bus bandwidth in all, {units.rate(r['busbw_transfer'])} "
            "once everybody is there."
        )
    said += _against_benchmarks(fits)
    slow, of_all = (int(_sum(slow_ones[name])) for name in ("slow", "collectives"))
    if of_all:
        text = f"{units.counted(slow, 'transfer')} of {units.count(of_all)} took more than twice "
        text += "the usual time"
        said.append(f"{text}, most on {words.code(slow_ones['comm'][0])}." if slow else f"{text}.")
    fabric = ["replay {job} --policy scale-fabric", "notebook {job} --name rails-and-experts"]
    ranks = ["replay {job} --policy align-arrivals", "notebook {job} --name who-is-late"]
    return words.verdict(
        said, job, ranks if wait > transfer or most < FLOOR else fabric + ranks[:1]
    )


def _against_benchmarks(fits: pl.DataFrame) -> list[str]:
    rows = fits.drop_nulls("gbps")
    pairs = rows.filter(kind="job").join(rows.filter(kind="benchmark"), on=("op", "n_ranks"))
    return [
        f"{words.code(r['op'])} over {r['n_ranks']} ranks: {r['gbps']:.4g} GB/s a link in the job, "
        f"{r['gbps_right']:.4g} GB/s in the benchmark."
        for r in pairs.unique(("op", "n_ranks"), maintain_order=True).head(3).iter_rows(named=True)
    ]


def rails_and_experts(
    job: Job,
    uneven: pl.DataFrame,
    left_out: pl.DataFrame,
    layers: pl.DataFrame,
    explains: pl.DataFrame,
) -> Said:
    """How uneven rails and experts are, and whether the one explains the other."""
    said, nexts = [], ["show {job}"]
    if uneven.height:
        sources = "/".join(sorted(set(uneven["source"].drop_nulls())))
        mean = uneven["max_over_mean"].mean()
        worst = uneven.sort("max_over_mean", descending=True, nulls_last=True).row(0, named=True)
        said.append(
            f"**Rails ({sources}): the busiest carries {mean:.3g} times the mean**; the most "
            f"uneven window is step {worst['step']}, {worst['max_over_mean'] or 0:.3g} times"
            + (f", rail {words.code(worst['busiest'])}." if worst["busiest"] is not None else ".")
        )
        nexts = ["replay {job} --policy rail-balance", *nexts]
    elif job.show()["hosts"] == 1:
        said.append("**Rails: all ranks run on one host, so that nothing crosses a rail.**")
    else:
        said.append("**Rails: nothing is known of them in this job.** See above for what tells.")
    if left_out.height:
        n = int(_sum(left_out["operations"]))
        said.append(
            f"{units.counted(n, 'operation')} could not be placed on a rail, most because of: "
            f"{words.plain(left_out['reason'][0])}."
        )
    if layers.height:
        by = "by_rank" if layers["by_rank"].null_count() < layers.height else "by_expert"
        worst = layers.sort(by, descending=True, nulls_last=True).row(0, named=True)
        thing = "rank of experts" if by == "by_rank" else "expert"
        said.append(
            f"**Experts: layer {worst['layer']} is the most uneven; its busiest {thing} gets "
            f"{worst[by] or 0:.3g} times the mean** (source {words.code(worst['source'])}, "
            f"median over steps; over all layers {layers[by].median():.3g})."
        )
        nexts = ["replay {job} --policy expert-placement", *nexts]
    else:
        said.append("**Experts: this job has no routing.** See above for what writes it.")
    known = explains.drop_nulls("r2")
    if known.height:
        best = known.row(0, named=True)
        said.append(
            f"Uneven experts explain {100 * best['r2']:.0f} % of the variance of uneven rails in "
            f"layer {best['layer']} over {best['steps']} steps (rails {best['rail_source']})."
        )
    return words.verdict(said, job, nexts)


def changed(
    sides: Sides,
    change: Mapping[str, Any] | None,
    foreseen: pl.DataFrame,
    policy: str,
    why_not: str = "",
    why_not_foreseen: str = "",
) -> Said:
    """By how much the step changed, which parts explain it, and what a replay had said.

    `why_not` is the reason where there is no change to tell, `why_not_foreseen` why nothing was
    re-timed, both as `Sides` gives them.
    """
    if change is None:
        otherwise = "give a job before, or a job of two steps and more."
        return words.verdict(
            [f"**There is nothing to compare:** {why_not or otherwise}"],
            sides.after, ["jobs", "notebook {job} --name before-and-after --against BEFORE"],
        )  # fmt: skip
    a, b = change["a"]["step_ns"], change["b"]["step_ns"]
    sure = {True: "more than chance", False: "no more than chance", None: "too few steps to say "
            "whether by chance"}[change["significant"]]  # fmt: skip
    by, share = abs(change["change_ns"]), abs(change["change_share"] or 0)
    way = "longer" if change["change_ns"] > 0 else "shorter"
    way = (
        f"{units.time(by)} {way} ({units.percent(share)}), {sure}"
        if by >= LEAST_NS
        else "no change"
    )
    said = [f"**The mean step took {units.time(a)} before and {units.time(b)} after: {way}.**"]
    lines = [
        f"* {words.code(r['group'])}: {r['change_ns'] / 1e6:+.3f} ms"
        + (" (more than chance)" if r["significant"] else "")
        for r in change["groups"][:3]
    ]
    largest = change["parts"][:3]
    lines += [
        f"* {name} ({r['group']}): {r['change_ns'] / 1e6:+.3f} ms"
        for name, r in zip(words.codes([r["what"] for r in largest]), largest, strict=True)
    ]
    said.append("\n".join(["The largest changes, by kind of time and by part:", "", *lines]))
    said += [f"{words.plain(r[0].upper() + r[1:])}." for r in change["remarks"]]
    of_what = "the job before" if sides.before is not sides.after else "all steps of the job"
    for r in foreseen.iter_rows(named=True):
        said.append(
            f"A replay of {of_what} under {words.code(policy)} gives {r['replayed_ms']:.4g} ms "
            f"({r['low_ms']:.4g} to {r['high_ms']:.4g}), measured {r['measured_before_ms']:.4g} ms;"
            f" measured after: {b / 1e6:.4g} ms."
        )
    if not foreseen.height:
        reason = f": {why_not_foreseen}" if why_not_foreseen else ""
        said.append(f"The job before cannot be re-timed under {words.code(policy)}{reason}.")
    nexts = (
        [f"diff {{job}} {{job}} --steps-a {sides.steps_before} --steps-b {sides.steps_after}"]
        if sides.before is sides.after
        else [f"diff {shlex.quote(sides.before.id)} {{job}}"]
    )
    return words.verdict(said, sides.after, [*nexts, "notebook {job} --name why-is-this-step-slow"])


def fleet(hosts: pl.DataFrame, weeks: pl.DataFrame, kernels: pl.DataFrame) -> Said:
    """Which hosts are late more often than chance has it, and which fabric is below its usual."""
    compared = hosts.filter(pl.col("compared") > 0)
    odd = compared.filter(pl.col("p_any") < ODD)
    said = [
        f"**{words.code(r['host'])} is late again and again: the latest of {r['latest']} of "
        f"{r['compared']} jobs** (equal hosts: {r['expected']:.1f}; by chance p = "
        f"{r['p_any']:.2g}), {r['wait_caused_ms']:.4g} ms of others' wait."
        for r in odd.head(5).iter_rows(named=True)
    ]
    if not compared.height:
        said.append("**Hosts: none could be compared with another in any job.**")
    elif not odd.height:
        top = compared.row(0, named=True)
        said.append(
            f"**No host is late more often than chance has it**; the nearest is "
            f"{words.code(top['host'])}, the latest of {top['latest']} of {top['compared']} jobs."
        )
    newest = weeks.filter(pl.col("week") == pl.col("week").max())
    below = newest.filter(
        (pl.col("gbps") < pl.col("earlier_lowest")) & (pl.col("change_percent") < -5)
    )
    said += [
        f"**In the week of {r['week']} {words.code(r['op'])} of {words.code(r['size_class'])} over "
        f"{r['n_ranks']} ranks is {-r['change_percent']:.0f} % slower than before**: "
        f"{r['gbps']:.4g} GB/s, earlier {r['earlier']:.4g}, never below "
        f"{r['earlier_lowest']:.4g}."
        for r in below.sort("change_percent").head(3).iter_rows(named=True)
    ]
    if not weeks.height:
        said.append("Fabric: no bandwidth could be measured.")
    elif not weeks["earlier"].drop_nulls().len():
        said.append("Fabric: one week only, so there is nothing to compare it with yet.")
    elif not below.height:
        said.append("Fabric: nothing in the last week is below its earlier range.")
    often = kernels.filter(pl.col("p_value") < ODD).head(3)
    said += [
        f"{words.code(r['host'])} runs {name} {100 * (r['ratio'] - 1):.0f} % "
        f"slower than the others, the slowest in {r['jobs_slowest']} of {r['jobs']} jobs."
        for name, r in zip(
            words.codes(often["name"].to_list()), often.iter_rows(named=True), strict=True
        )
    ]
    return words.verdict(said, None, ["fleet", "fleet --by fabric", "fleet --by kernels"])


def _sum(column: pl.Series) -> float:
    return float(column.sum() or 0)


def _exceeds(slope: float | None, error: float | None) -> bool:
    return slope is not None and error is not None and abs(slope) > 2 * error


def _some(texts: Sequence[str], most: int = 6) -> str:
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more
