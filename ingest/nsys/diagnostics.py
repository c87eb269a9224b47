"""What the profiler says of its own run, and what the rows show to be missing, as problems."""

from __future__ import annotations

import re

import numpy as np

from ..collect import Collector
from .columns import GRAPH
from .rank import Rank
from .rows import Maker
from .tables import Report

WARNING, ERROR = 2, 3

_LOSS = re.compile(
    r"\b(lost|dropped|discarded|overflow\w*|incomplete|truncated|missing|"
    r"not all|could not be (?:collected|read)|ran out of)\b",
    re.I,
)
_NONE = re.compile(r"\b(no|0|zero)\b.{0,40}\b(lost|dropped|discarded|missing)\b", re.I)
MOST_TEXT = 300
MOST_TEXTS = 4


def say(report: Report, c: Collector, ranks: dict[int, Rank], maker: Maker) -> None:
    """Adds the problems of a report that was converted."""
    _diagnostics(report, c)
    if report.has(GRAPH) and any(b.num_rows for b in report.batches(GRAPH, "start")):
        c.odd(
            "graphs_whole",
            "CUDA graphs were traced as a whole: the kernels in them are not visible "
            "(nsys profile --cuda-graph-trace=node shows them)",
            "info",
        )
    for r in ranks.values():
        k = maker.comm_kernels.get(r.rank)
        if not len(r.steps.number) and r.has_work:
            c.odd(
                "no_steps",
                "no NVTX range is named like a step (step 12, iteration 3, train_step): mark the "
                "iterations to see time by step",
                "info",
                rank=r.rank,
            )
        n = 0 if k is None else int((k.launch_ns == np.iinfo(np.int64).min).sum())
        if n:
            c.odd(
                "no_launch",
                "communication kernels without the call that launched them: no step, no payload",
                "info",
                rank=r.rank,
                count=n,
            )
    left = report.not_read()
    if left:
        shown = ", ".join(t[:60] for t in left[:20]) + (" ..." if len(left) > 20 else "")
        c.odd("tables_not_read", f"tables that are not read: {shown}", "info", count=len(left))


def _diagnostics(report: Report, c: Collector) -> None:
    found: dict[tuple[str, str], dict[str, int]] = {}
    for batch in report.batches("DIAGNOSTIC_EVENT"):
        for severity, text in zip(
            batch["severity"].to_pylist(), batch["text"].to_pylist(), strict=True
        ):
            if not text:
                continue
            if _LOSS.search(text[:4096]) and not _NONE.search(text[:4096]):
                key = ("nsys_lost", "lost")
            elif severity == ERROR:
                key = ("nsys_error", "warning")
            elif severity == WARNING:
                key = ("nsys_warning", "info")
            else:
                continue
            texts = found.setdefault(key, {})
            clean = " ".join(text[:MOST_TEXT].split())
            if len(texts) < 1000 or clean in texts:
                texts[clean] = texts.get(clean, 0) + 1
    for (code, severity), texts in found.items():
        shown = "; ".join(list(texts)[:MOST_TEXTS])
        more = len(texts) - MOST_TEXTS
        c.odd(
            code,
            "Nsight Systems says: " + shown + (f"; and {more} more" if more > 0 else ""),
            severity,
            count=sum(texts.values()),
        )
