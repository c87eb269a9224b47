"""Whether an assumed link contradicts what a job's collectives took, and the link that does not."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from .. import models
from .fits import Fits
from .hockney import NoFit, TookNoLonger, coefficients, fit, usual

FACTOR = 3.0
"""What is assumed may be so many times off what was seen: links and algorithms differ that much."""


class Seen(NamedTuple):
    """A link that was seen instead of one assumed, or only why the assumed one is doubtful."""

    alpha_ns: float
    bandwidth_bytes_per_s: float
    words: str
    """What it rests on; empty where the assumed link stays."""
    doubt: str
    """What to warn of."""


def instead(
    known: Fits, comm: str, op: str, alpha_ns: float, bandwidth_bytes_per_s: float
) -> Seen | None:
    """What the collectives of a communicator say against a link that is assumed; None: nothing.

    Those that no line goes through, of the operation first. By the assumed link the median of them
    would take FACTOR times less, or more, than it did. Where larger ones took no longer their
    messages cost what they took, and bytes a part of it that can be overlooked; else their bytes
    go at the rate at which the largest went. Of collectives that are not seen on all ranks, whose
    times may be waits, the fastest can make a link doubtful and no more.
    """
    for rows, algo in sorted(
        (g for g in known.groups if g[0]["comm"][0] == comm), key=lambda g: g[0]["op"][0] != op
    ):
        try:
            p, q = coefficients(rows["op"][0], algo, int(rows["n"][0]))
        except models.NoModel:
            continue
        rows = rows.filter(pl.col("transfer_ns") > 0)
        if not len(rows) or not p or not q:
            continue
        size = rows["bytes"].to_numpy().astype(np.float64)
        took = rows["transfer_ns"].to_numpy()
        said = p * alpha_ns + q * size * 1e9 / bandwidth_bytes_per_s
        times = float(np.median(took / said))
        if 1 / FACTOR <= times <= FACTOR:
            return None
        alpha, bandwidth = _seen(rows, algo, p, q, alpha_ns, bandwidth_bytes_per_s)
        what = f"{len(rows)} {rows['op'][0]} on {comm}"
        return Seen(
            alpha,
            bandwidth,
            f"seen: {alpha / 1e3:.3g} us and {bandwidth / 1e9:.3g} GB/s of {what}, which no line "
            "goes through",
            f"{what} took {times:.3g} times what the assumed link ({alpha_ns / 1e3:.3g} us, "
            f"{bandwidth_bytes_per_s / 1e9:.3g} GB/s) makes them: a link of what was seen is used "
            "instead; give a benchmark or a fabric, or record more sizes",
        )
    return _doubtful(known, comm, op, alpha_ns, bandwidth_bytes_per_s)


def _seen(
    rows: pl.DataFrame, algo: str, p: float, q: float, alpha_ns: float, bandwidth: float
) -> tuple[float, float]:
    size = rows["bytes"].to_numpy().astype(np.float64)
    took = rows["transfer_ns"].to_numpy()
    try:
        fit(rows, algo)
    except TookNoLonger:
        rate = max(bandwidth, FACTOR * 1e9 * float((q * size / took).max()))
        return float(np.median(took - q * size * 1e9 / rate)) / p, rate
    except NoFit:
        pass
    alpha = min(alpha_ns, float(took.min()) / p / 2)
    large = size >= size.max() / 2
    return alpha, 1e9 * float(np.median(q * size[large] / (took[large] - p * alpha)))


def _doubtful(
    known: Fits, comm: str, op: str, alpha_ns: float, bandwidth_bytes_per_s: float
) -> Seen | None:
    rows = known.graph.instances.filter(
        (pl.col("comm") == comm) & (pl.col("op") == op) & (pl.col("seen") < pl.col("n"))
        & (pl.col("bytes") > 0) & (pl.col("transfer_ns") > 0)
    )  # fmt: skip
    if not len(rows):
        return None
    n = int(rows["n"].max())  # type: ignore[arg-type]
    try:
        p, q = coefficients(op, usual(op), n)
    except models.NoModel:
        return None
    said = p * alpha_ns + q * rows["bytes"].to_numpy() * 1e9 / bandwidth_bytes_per_s
    times = float((rows["transfer_ns"].to_numpy() / said).min())
    if times <= FACTOR:
        return None
    return Seen(
        alpha_ns,
        bandwidth_bytes_per_s,
        "",
        f"each of {len(rows)} {op} on {comm} took at least {times:.3g} times what the assumed link "
        f"({alpha_ns / 1e3:.3g} us, {bandwidth_bytes_per_s / 1e9:.3g} GB/s) makes it, waiting for "
        f"others counted: record all {n} ranks, or give a benchmark or a fabric",
    )
