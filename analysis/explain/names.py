"""What tasks are called: operations with their dimension and size, kernels by their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from ...replay.graph import Kind, TaskGraph
from ..names import shorter
from ..report.stretches import signature
from ..screen import clean

LONGEST = 160
"""Characters of a name that are kept."""

WORDS = {Kind.COMPUTE: "compute", Kind.COPY: "copy", Kind.HOST: "host", Kind.OTHER: "other"}
"""What tasks that are no communication are, in words."""


def plain(graph: TaskGraph, tasks: np.ndarray) -> list[str]:
    """The operation of each task, safe to print; `?` where it has none."""
    safe = [shorter(clean(name), LONGEST) for name in graph.op_names]
    return [safe[op] if op >= 0 else "?" for op in graph.op[tasks].tolist()]


def with_words(graph: TaskGraph, tasks: np.ndarray) -> list[str]:
    """`host: cudaLaunchKernel`; a computation by its name alone, and what says what it is."""
    kinds = graph.kind[tasks].tolist()
    return [
        name
        if kind == Kind.COMPUTE or name.startswith(WORDS[Kind(kind)])
        else f"{WORDS[Kind(kind)]}: {name}"
        for name, kind in zip(plain(graph, tasks), kinds, strict=True)
    ]


def dims(facts: Mapping[str, Any]) -> dict[str, str | None]:
    """Of each communicator its dimension, from the job's frame of them."""
    comms = facts.get("comms")
    if not isinstance(comms, pl.DataFrame) or not {"comm", "dim"} <= set(comms.columns):
        return {}
    return dict(comms.select(pl.col("comm", "dim").cast(pl.String)).iter_rows())


def collectives(
    graph: TaskGraph, transfers: np.ndarray, dim_of: Mapping[str, str | None]
) -> list[str]:
    """Operation, dimension (where there are several) and size of what each transfer is part of."""
    one = len(set(dim_of.values())) < 2
    known: dict[tuple[int, int, int], str] = {}
    out = []
    columns = (graph.op, graph.comm, graph.bytes)
    for key in zip(*(c[transfers].tolist() for c in columns), strict=True):
        if key not in known:
            op, comm, size = key
            row = {
                "op": graph.op_names[op] if op >= 0 else "?",
                "dim": dim_of.get(graph.comm_names[comm]) if comm >= 0 else None,
                "bytes": size or None,
            }
            known[key] = shorter(clean(signature(row, one)), LONGEST)
        out.append(known[key])
    return out
