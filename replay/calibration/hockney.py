"""Hockney's line, alpha and bandwidth, fitted robustly to what collectives took by their size."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from ...ingest.errors import UsageError
from .. import models

DEFAULT_ALPHA_NS = 1_000.0
"""Assumed where sizes are too alike to tell alpha from bandwidth: a message over NVLink."""

SPREAD = 4
"""Sizes must differ by this factor for alpha and bandwidth to be told apart."""

FASTEST_BYTES_PER_S = 1e14
"""No link carries 100 TB/s: a fit beyond it has found no cost of bytes."""

_HUBER = 1.345
"""In robust standard deviations: 95 % efficient where errors are normal (Huber 1964)."""


class NoFit(UsageError):
    """What the collectives took cannot be told as alpha and bandwidth; says why."""


class Fit(NamedTuple):
    """Alpha and bandwidth of one operation of one communicator, with standard errors."""

    comm: str
    op: str
    algo: str
    n: int
    alpha_ns: float
    alpha_error_ns: float
    bandwidth_bytes_per_s: float
    bandwidth_error_bytes_per_s: float
    instances: int
    min_bytes: int
    max_bytes: int
    error_pct: float
    """How far the line is from 90 % of the collectives at most, in percent of their time."""
    separated: bool
    """False where one of the two was assumed, because sizes do not tell them apart."""

    def words(self) -> str:
        """The fit in one line."""
        bandwidth = self.bandwidth_bytes_per_s / 1e9
        text = (
            f"{self.op} on {self.comm} ({self.n} ranks, {self.algo}): alpha "
            f"{self.alpha_ns / 1e3:.3g} us, bandwidth {bandwidth:.3g} GB/s, from "
            f"{self.instances} collectives of {self.min_bytes} to {self.max_bytes} bytes"
        )
        if not self.separated:
            return text
        error = self.bandwidth_error_bytes_per_s / 1e9
        return f"{text} (standard errors {self.alpha_error_ns / 1e3:.2g} us, {error:.2g} GB/s)"


def usual(op: str) -> str:
    """The algorithm that an operation is taken to run where no source says."""
    return USUAL.get(op, "ring")


USUAL = {
    "all_to_all": "pairwise",
    "gather": "pairwise",
    "scatter": "pairwise",
    "send": "direct",
    "recv": "direct",
    "send_recv": "direct",
    "barrier": "recursive-doubling",
}


def coefficients(op: str, algo: str, n: int) -> tuple[float, float]:
    """Messages and volume (in sizes of the operation) of a rank: `models.form`, and p2p's 1 and 1.

    Raises models.NoModel.
    """
    if op in ("send", "recv", "send_recv") and algo == "direct":
        return 1.0, 1.0
    form = models.form(op, algo)
    return form.messages(n), form.volume(n)


def fit(
    rows: pl.DataFrame,
    algo: str,
    *,
    alpha_ns: float | None = None,
    bandwidth_bytes_per_s: float | None = None,
) -> Fit:
    """Alpha and bandwidth of `instances` rows of one comm, op and n that ran under `algo`.

    Huber's regression of transfer_ns on bytes, of relative errors, so that small collectives fix
    alpha and large ones bandwidth; neither is negative. A value that is given is kept. Where
    sizes spread by less than SPREAD, alpha is assumed to be DEFAULT_ALPHA_NS (at most half of
    the shortest transfer) and only bandwidth is fitted. Raises models.NoModel, and NoFit where
    a value that is given, or the best fit, would need a negative time a message or a byte.
    """
    op, n = rows["op"][0], int(rows["n"][0])
    p, q = coefficients(op, algo, n)
    rows = rows.filter((pl.col("bytes") > 0) & (pl.col("transfer_ns") > 0))
    size = rows["bytes"].to_numpy().astype(np.float64)
    took = rows["transfer_ns"].to_numpy()
    low, high = (int(size.min()), int(size.max())) if len(size) else (0, 0)
    given = alpha_ns is not None or bandwidth_bytes_per_s is not None
    separated = high >= SPREAD * low > 0 and not given
    alpha_error = slope_error = 0.0
    if alpha_ns is not None and bandwidth_bytes_per_s is not None:
        alpha, slope = alpha_ns, 1e9 / bandwidth_bytes_per_s
    elif not len(size) or p == 0:
        raise NoFit("none has both a size and a transfer time: give alpha and bandwidth")
    elif bandwidth_bytes_per_s is not None:
        slope = 1e9 / bandwidth_bytes_per_s
        alpha = float(np.median(took - q * size * slope)) / p
        if alpha < 0:
            raise NoFit("they took less than their bytes would at the bandwidth that is given")
    elif separated:
        (alpha, slope), (alpha_error, slope_error) = _line(p, q * size, took)
    else:
        assumed = min(DEFAULT_ALPHA_NS, float(took.min()) / p / 2)
        alpha = assumed if alpha_ns is None else alpha_ns
        slope = float(np.median((took - p * alpha) / (q * size)))
        if slope < 0:
            raise NoFit("they took less than their messages would at the alpha that is given")
    if slope <= 1e9 / FASTEST_BYTES_PER_S or slope_error > slope:
        raise NoFit("larger ones took no longer: nothing tells what a byte costs")
    return Fit(
        comm=rows["comm"][0] if len(rows) else "?",
        op=op,
        algo=algo,
        n=n,
        alpha_ns=float(alpha),
        alpha_error_ns=alpha_error,
        bandwidth_bytes_per_s=1e9 / slope,
        bandwidth_error_bytes_per_s=1e9 * slope_error / slope**2,
        instances=len(rows),
        min_bytes=low,
        max_bytes=high,
        error_pct=_error_pct(p * alpha + q * size * slope, took),
        separated=separated,
    )


def _error_pct(line: np.ndarray, took: np.ndarray) -> float:
    return float(100 * np.percentile(np.abs(line / took - 1), 90)) if len(took) else 0.0


def _line(p: float, x: np.ndarray, took: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """alpha and ns a byte of took = p*alpha + slope*x, and their standard errors, [2] each.

    One that comes out negative, but not by two standard errors, is taken to be 0.
    """
    design = np.column_stack([p / took, x / took])
    values, errors = _huber(design)
    if (values >= 0).all():
        return values, errors
    if (values < -2 * errors).any():
        what = "a message" if values[0] < 0 else "a byte"
        raise NoFit(f"the times do not grow with size as a line does ({what} would take less than "
                    "no time)")  # fmt: skip
    # At most one can be: the times are positive, so is what the other alone makes of them.
    kept = values > 0
    values, errors = np.zeros(2), np.zeros(2)
    (values[kept], errors[kept]) = _huber(design[:, kept])
    return values, errors


def _huber(design: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients that bring the rows of `design` [n, k] to 1, and standard errors, [k] each."""
    k = design.shape[1]
    values, weight = np.zeros(k), np.ones(len(design))
    covariance = np.zeros((k, k))
    for _ in range(60):
        normal = (design * weight[:, None]).T @ design
        step = np.linalg.lstsq(normal, design.T @ weight, rcond=None)[0]
        residual = design @ step - 1.0
        sigma = max(1.4826 * float(np.median(np.abs(residual))), 1e-9)
        covariance = np.linalg.pinv(normal) * sigma**2
        done = np.allclose(step, values, rtol=1e-9, atol=0)
        values = step
        weight = np.minimum(1.0, _HUBER * sigma / np.maximum(np.abs(residual), 1e-12))
        if done:
            break
    return values, np.sqrt(np.diag(covariance))
