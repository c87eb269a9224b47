"""Whether the sources of a job are of one run: what in them contradicts that, and what to do."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from .manifest import REMARKS, Manifest
from .schema import Problem

APART_NS = 3600 * 10**9
"""Ranks of one run are traced at the same steps: traces further apart than an hour are of two."""

CODES = ("several_jobs", "world_size_differs")
"""Codes of the problems that are found here."""

MOST = 4
"""Folders, world sizes and models that are named; the others are counted."""


def contradictions(manifests: Sequence[Manifest], ranks: pa.Table) -> list[Problem]:
    """At most one problem: what says that the job's sources are of several runs.

    `ranks` is the job's table of them. Looked at are world sizes, traces whose times lie more than
    `APART_NS` apart, and sources refused because another has their rank. Models of devices are
    told beside these: a run may have several. `world_size_differs` says that no more than the
    number of ranks differs, `several_jobs` the rest.
    """
    sources = sorted((m for m in manifests if m.format != REMARKS), key=lambda m: m.name)
    there = {m.name for m in sources}
    refused = {
        r.place
        for m in manifests
        for r in m.remarks
        if r.code == "rank_clash" and r.place not in there
    }
    worlds: dict[int, str] = {}
    for m in sources:
        for world in m.world_sizes:
            worlds.setdefault(world, m.name)
    sizes = "; ".join(f"{w} says {name}" for w, name in sorted(worlds.items())[:MOST])
    apart = _apart(ranks.select(["rank", "start_ns", "end_ns", "clock"]).to_pylist())
    if not apart and not refused:
        if len(worlds) < 2:
            return []
        text = (
            f"sources of this job disagree on its number of ranks ({sizes}): are they of one job?"
        )
        return [Problem("world_size_differs", text, count=len(worlds))]
    found = []
    if refused:
        n = len(refused)
        found.append(f"{n} {'file claims' if n == 1 else 'files claim'} a rank that another has")
    if len(worlds) > 1:
        found.append(f"they say world sizes of {_some([str(w) for w in sorted(worlds)])} ranks")
    if apart:
        found.append(apart)
    models = sorted({str(d) for d in ranks["device_name"].to_pylist() if d})
    if len(models) > 1:
        found.append(f"they ran on {_some(models)}")
    each = _each({name.partition("!")[0] for name in there | refused})
    mixed = "mixes them" if apart or len(worlds) > 1 else "leaves out those that were refused"
    return [
        Problem(
            "several_jobs",
            f"the files of this job look like several runs: {'; '.join(found)}. What is said of "
            f"the job {mixed}. Ingest {each} into a job of its own: retime ingest FOLDER --job "
            "NAME",
            count=len(found),
        )
    ]


def _each(names: set[str]) -> str:
    """What to ingest alone: folders of these files by name, where they lie in several."""
    folders = sorted({os.path.dirname(name) for name in names})
    if len(folders) < 2:
        return "each run's files alone"
    try:
        base = os.path.commonpath(folders)
    except ValueError:  # some are absolute
        return f"each folder by itself ({_some(folders)})"
    below = [os.path.relpath(f, base) if base else f for f in folders]
    where = f" below {base}" if base else ""
    return f"each folder{where} by itself ({_some(below)})"


def _apart(ranks: list[dict[str, Any]]) -> str:
    """The longest time between one trace and the next, in words; empty under `APART_NS`."""
    # Other clocks begin at zeros of their own.
    windows = sorted(
        (r["start_ns"], r["end_ns"], r["rank"])
        for r in ranks
        if r["clock"] == "host" and r["start_ns"] is not None and r["end_ns"] is not None
    )
    longest, text = APART_NS, ""
    last: tuple[int, int] | None = None
    for start, end, rank in windows:
        if last is not None and start - last[0] > longest:
            longest = start - last[0]
            text = (
                f"the traces of ranks {last[1]} and {rank} lie {_length(longest)} apart "
                f"({_moment(last[0])} and {_moment(start)} UTC)"
            )
        last = max(last or (end, rank), (end, rank))
    return text


def _length(ns: int) -> str:
    hours = ns // APART_NS
    return f"{hours:,} hours" if hours < 48 else f"{hours // 24:,} days"


def _moment(epoch_ns: int) -> str:
    try:
        return f"{datetime.fromtimestamp(epoch_ns // 10**9, UTC):%Y-%m-%d %H:%M}"
    except (ValueError, OverflowError, OSError):
        return str(epoch_ns)


def _some(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - MOST} more" if len(texts) > MOST else ""
    return ", ".join(texts[:MOST]) + more
