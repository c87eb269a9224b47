"""The accuracy table: every pair, then every kind, then all."""

from __future__ import annotations

import itertools

import numpy as np

from .predict import Verdict

HEAD = ("pair", "before", "predicted", "interval", "measured", "error", "covered", "sign",
        "noise")  # fmt: skip


def lines(verdicts: list[Verdict], words: bool = False) -> list[str]:
    """The table as text; with `words` each pair's warnings below it."""
    out = []
    for kind, those in itertools.groupby(verdicts, lambda v: v.kind):
        out += ["", f"## {kind}", "", _row(HEAD), _row(["---"] * len(HEAD))]
        for v in those:
            out.append(_row(_cells(v)))
            if words:
                out += [f"    ! {w}" for w in v.warnings] + [f"    - {a}" for a in v.assumptions]
    out += ["", "## By kind", ""]
    head = ("kind", "pairs", "median error", "90th", "worst", "covered", "signs wrong", "noise")
    out += [_row(head), _row(["---"] * len(head))]
    for kind, those in itertools.groupby(verdicts, lambda v: v.kind):
        out.append(_row((kind, *_sums(list(those)))))
    out.append(_row(("all", *_sums(verdicts))))
    return out


def _cells(v: Verdict) -> tuple[str, ...]:
    return (
        v.name, f"{v.before_ms:.1f} ms", f"{v.predicted_ms:.1f} ms",
        f"{v.low_ms:.1f} to {v.high_ms:.1f}", f"{v.after_ms:.1f} ms", f"{v.error_pct:+.1f} %",
        "yes" if v.covered else "no", v.sign, f"{v.noise_pct:.1f} %",
    )  # fmt: skip


def _sums(those: list[Verdict]) -> tuple[str, ...]:
    off = np.abs([v.error_pct for v in those])
    return (
        str(len(those)), f"{np.median(off):.1f} %", f"{np.percentile(off, 90):.1f} %",
        f"{off.max():.1f} %", f"{sum(v.covered for v in those)} of {len(those)}",
        str(sum(v.sign == "wrong" for v in those)),
        f"{np.median([v.noise_pct for v in those]):.1f} %",
    )  # fmt: skip


def _row(cells) -> str:
    return "| " + " | ".join(cells) + " |"
