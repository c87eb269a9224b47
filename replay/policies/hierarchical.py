"""Collectives inside hosts first, then between hosts, then back: instead of one flat algorithm.

Levels are hosts and what joins them, or any nesting that is asked for. Of two levels
T = 2(L-1) a_i + 2(L-1)/L M/B_i + 2(H-1) a_o + 2(H-1)/H M/L (L/q) / b for an all-reduce of L local
ranks on H hosts with q NICs each (any other count of passes: `replay.models.hierarchical`). A
transfer's new time is the measured one times model(levels) / model(flat). What crosses a host's
boundary before and after is left in `facts["cut"]`, a row a direction.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from .. import models
from ..calibration import calibrate, inside_hosts, link_sources
from ..models import hierarchical, traffic
from ..models.hierarchical import Level
from ..policy import BadParam, Param, Policy, ReplayJob, Stage, words
from ..quantities import bandwidth_bytes_per_s, time_ns
from ..retiming import altered, nesting, transfers

NEUTRAL = {"local": 1}

ASSUMPTIONS = (
    "ranks of a host come one after another in the communicator, and all hosts hold as many",
    "a level's links are its own: NVLink and NICs do not slow each other; levels beyond hosts have "
    "a NIC's alpha and bandwidth",
)


class _Links(NamedTuple):
    """Links of the two levels, and how many NICs of a host the flat algorithm used."""

    inside: tuple[float, float]
    outside: tuple[float, float]
    flat_nics: int
    said: tuple[str, ...]
    doubt: tuple[str, ...]
    """Warnings."""


def apply(
    job: ReplayJob,
    *,
    op: tuple[str, ...],
    local: int,
    levels: tuple[str, ...],
    nics: int,
    flat_nics: int,
    chunks: int,
    dim: tuple[str, ...],
    comm: tuple[str, ...],
    **links: float | None,
) -> ReplayJob:
    """The job with chosen collectives done level by level."""
    for one in op:
        if one not in hierarchical.PASSES:
            known = ", ".join(hierarchical.PASSES)
            raise BadParam(f"policy hierarchical: no levels of {one!r}; there are of {known}")
    for name, value in (("local", local), ("nics", nics), ("flat_nics", flat_nics)):
        if value < 0:
            raise BadParam(f"policy hierarchical: {name}={value}: 1 or more, or 0 for auto")
    if chunks < 0:
        raise BadParam(f"policy hierarchical: chunks={chunks}: 1 or more, or 0 for the best")
    nested = nesting.asked(levels)
    job, rows = transfers.chosen(job, op=op, dim=dim, comm=comm)
    job, rows = altered.untouched(job, rows, "hierarchical")
    if not len(rows):
        return job
    rows = altered.present(job, rows).with_row_index("at")
    ratio = np.ones(len(rows))
    cuts: list[dict[str, Any]] = []
    for _, group in rows.group_by("comm", "op", "algo", "n", maintain_order=True):
        name, n = group["comm"][0], int(group["n"][0])
        label = f"{group['op'][0]} on {name}"
        sizes, here, near, why = nesting.of(job, name, n, local, nested)
        if why:
            job = job.note(warnings=(f"{label}: {why}: left as measured",))
            continue
        if len(sizes) < 2:
            continue
        old = group["algo"][0]
        try:
            # Ranks that scale-up links join use no NICs, however fast they are.
            used = 1 if near >= n else flat_nics
            found = _links(job, group, old, here, used, links)
        except (calibrate.NoFit, models.NoModel) as e:
            job = job.note(warnings=(f"{label}: left as measured: {e}",))
            continue
        q = min(nics or here, here)
        nest = nesting.levels(sizes, here, near, found.inside, found.outside, q)
        ratio[group["at"].to_numpy()] = _ratio(group, old, nest, found, chunks)
        if here in np.cumprod(sizes):
            cuts += _cuts(group, old, n // here, here, q)
        said = (*found.said, *nesting.words(label, sizes, near))
        job = altered.run_by(job, group["collective"], "hierarchical")
        job = job.note(assumptions=said, warnings=found.doubt)
    job = transfers.scaled(job, rows, ratio).note(assumptions=ASSUMPTIONS)
    return _with_cuts(job, cuts)


def _links(
    job: ReplayJob, rows: pl.DataFrame, old: str, local: int, flat_nics: int, given: dict
) -> _Links:
    """What messages and bytes cost at both levels; raises NoFit and NoModel."""
    comm, op = rows["comm"][0], rows["op"][0]
    said: list[str] = []
    doubt: tuple[str, ...] = ()
    a_out, b_out = given["alpha"], given["bandwidth"]
    used = flat_nics or 1
    if a_out is None or b_out is None:
        flat = calibrate.link(job, comm, op)
        doubt = (flat.doubt,) if flat.doubt else ()
        if flat.source == "assumed":
            said.append(flat.words)
        else:
            said.append(f"{flat.words}, by {old}")
        if not flat_nics and flat.source in ("fitted", "curve"):
            nic = link_sources.nic_bytes_per_s(job)
            used = min(max(1, round(flat.bandwidth_bytes_per_s / nic)), local)
            if used > 1:
                said.append(
                    f"{op} on {comm} is faster than one NIC ({nic / 1e9:.3g} GB/s): taken to have "
                    f"used {used} of each host"
                )
        a_out = flat.alpha_ns if a_out is None else a_out
        b_out = flat.bandwidth_bytes_per_s / used if b_out is None else b_out
    a_in, b_in = given["inner_alpha"], given["inner_bandwidth"]
    if a_in is None or b_in is None:
        alpha, bandwidth, text = inside_hosts.link(job, op)
        said.append(f"inside hosts: {text}")
        a_in = alpha if a_in is None else a_in
        b_in = bandwidth if b_in is None else b_in
    return _Links((a_in, b_in), (a_out, b_out), used, tuple(said), doubt)


def _ratio(
    rows: pl.DataFrame, old: str, nest: tuple[Level, ...], links: _Links, chunks: int
) -> np.ndarray:
    op, n = rows["op"][0], int(rows["n"][0])
    size = rows["bytes"].to_numpy().astype(np.float64)
    alpha, bandwidth = links.outside
    before = models.time_ns(op, old, n, size, alpha, bandwidth * links.flat_nics)
    if chunks:
        return hierarchical.time_ns(op, nest, size, chunks) / before
    each = {s: hierarchical.best_chunks(op, nest, s) for s in np.unique(size)}
    after = [float(hierarchical.time_ns(op, nest, s, each[s])) for s in size]
    return np.array(after) / before


def _cuts(rows: pl.DataFrame, old: str, hosts: int, local: int, nics: int) -> list[dict[str, Any]]:
    """Rows of `facts["cut"]`: a size and direction each, bytes of one collective at one host."""
    op = rows["op"][0]
    if op not in traffic.PASSES:
        return []
    out = []
    for (size,), same in rows.group_by("bytes", maintain_order=True):
        after = traffic.hierarchical_cut(op, hosts, local, float(size), nics)  # type: ignore[arg-type]
        before = traffic.ring_cut(op, hosts, local, float(size))  # type: ignore[arg-type]
        for direction in ("out", "in"):
            flat = old == "ring"
            out.append(
                {
                    "comm": rows["comm"][0],
                    "op": op,
                    "size_bytes": size,
                    "collectives": len(same),
                    "direction": direction,
                    "before_bytes": getattr(before, f"{direction}_bytes") if flat else None,
                    "after_bytes": getattr(after, f"{direction}_bytes"),
                    "nic_before_bytes": getattr(before, f"nic_{direction}_bytes") if flat else None,
                    "nic_after_bytes": getattr(after, f"nic_{direction}_bytes"),
                }
            )
    return out


def _with_cuts(job: ReplayJob, cuts: list[dict[str, Any]]) -> ReplayJob:
    if not cuts:
        return job
    frame = pl.DataFrame(cuts)
    largest = frame.sort("size_bytes", descending=True).row(0, named=True)
    said = ()
    if largest["before_bytes"]:
        mib = 1 << 20
        said = (
            f"{largest['op']} of {largest['size_bytes'] / mib:.4g} MiB on {largest['comm']}: a "
            f"host sends {largest['before_bytes'] / mib:.4g} MiB over one NIC as one ring, "
            f"{largest['after_bytes'] / mib:.4g} MiB over its NICs by levels "
            f"({largest['nic_after_bytes'] / mib:.4g} MiB each), and receives as much",
        )
    return replace(job, facts={**job.facts, "cut": frame}).note(assumptions=said)


POLICY = Policy(
    name="hierarchical",
    summary="collectives inside hosts first, then between hosts",
    source="Thakur, Rabenseifner, Gropp 2005; two-level all-reduce as in NCCL and Horovod",
    params=(
        Param("op", words, ("all_reduce",), "", "operations to change, joined by +"),
        Param("local", int, 0, "ranks", "ranks a host; 0: as recorded"),
        Param(
            "levels",
            words,
            (),
            "",
            "ranks of each level, innermost first (8+4+2), or fabric: its domains, hosts, leaves, "
            "pods (default: ranks of a host, then hosts)",
        ),
        Param("nics", int, 0, "NICs", "NICs a host uses; 0: one a rank"),
        Param("flat_nics", int, 0, "NICs", "NICs a host used before; 0: told by the bandwidth"),
        Param("chunks", int, 1, "", "pieces that follow each other through the levels; 0: best"),
        *transfers.WHERE,
        Param("alpha", time_ns, None, "ns", "of a message between hosts (default: fitted)"),
        Param(
            "bandwidth",
            bandwidth_bytes_per_s,
            None,
            "bytes/s",
            "of a NIC, one direction (default: fitted)",
        ),
        Param("inner_alpha", time_ns, None, "ns", "of a message inside a host (default: fitted)"),
        Param(
            "inner_bandwidth",
            bandwidth_bytes_per_s,
            None,
            "bytes/s",
            "of a rank inside its host, one direction (default: fitted)",
        ),
    ),
    assumptions=ASSUMPTIONS,
    apply=apply,
    stage=Stage.ALGORITHM,
    needs=("the host of each rank, or local", "collectives with sizes on ranks of several hosts"),
    valid="hosts, and levels, that hold as many ranks each",
    checked=(
        "16 ranks on two hosts, 192 MiB: 720 MiB across the cut by one ring, 384 MiB by levels, "
        "both directions; 360 and 24 MiB a NIC and direction (by counting)"
    ),
)
