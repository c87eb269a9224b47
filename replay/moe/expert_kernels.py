"""Kernels of experts: as long as the tokens of their rank make them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from ..graph import Kind
from ..policy import ReplayJob

KERNELS = ("grouped_gemm", "group_gemm", "groupgemm", "groupedgemm", "grouped_mm", "fused_moe",
           "moe_gemm")  # fmt: skip
"""Parts of names that grouped GEMMs of experts have in the libraries that we know."""

Loads = Callable[[int], "tuple[np.ndarray, np.ndarray]"]
"""Step of the job -> tokens of each member's experts, before and after."""


def scaled(
    job: ReplayJob, loads: Iterable[tuple[np.ndarray, Loads]], kernels: Sequence[str]
) -> ReplayJob:
    """The job with expert kernels times after / before, by rank and step.

    `loads` holds (ranks, their loads) of each group of expert ranks. A warning says so where no
    kernel has one of `kernels` in its name.
    """
    graph = job.graph
    wanted = [k.lower() for k in kernels]
    named = [i for i, text in enumerate(graph.op_names) if any(k in text.lower() for k in wanted)]
    task = np.flatnonzero((graph.kind == Kind.COMPUTE) & np.isin(graph.op, named))
    if not len(task):
        said = (
            "no kernel is named like an expert's (kernels=part of its name): computation is left "
            "as measured, so what balance gains or costs there is not in the estimate"
        )
        return job.note(warnings=(said,))
    dur = graph.dur_ns.copy()
    for members, of_step in loads:
        for step in np.unique(graph.step[task]):
            was, now = of_step(int(step))
            for i, rank in enumerate(members):
                here = task[(graph.rank[task] == rank) & (graph.step[task] == step)]
                if was[i] > 0:
                    dur[here] = np.rint(graph.dur_ns[here] * now[i] / was[i]).astype(np.int64)
    said = f"{len(task)} expert kernels take as long as their rank's tokens tell"
    return job.with_graph(dur_ns=dur).note(assumptions=(said,))
