"""Hockney's line, alpha and bandwidth, fitted robustly to what collectives took by their size."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl

from ...ingest.errors import UsageError
from .. import models
from .robust import Terms, regress
from .size_classes import SPREAD, own, split_bytes

DEFAULT_ALPHA_NS = 1_000.0
"""Assumed where sizes are too alike to tell alpha from bandwidth: a message over NVLink."""

FASTEST_BYTES_PER_S = 1e14
"""No link carries 100 TB/s: a fit beyond it has found no cost of bytes."""


NEAR_ENOUGH = 0.25
"""A line with one term at 0 that is further than this from half of the times is none of them."""


class NoFit(UsageError):
    """What the collectives took cannot be told as alpha and bandwidth; says why."""


class TookNoLonger(NoFit):
    """Larger collectives took no longer: messages cost, and nothing tells what a byte does."""


class SizeClass(NamedTuple):
    """The line of collectives of some sizes: those that one protocol carries."""

    min_bytes: int
    max_bytes: int
    """Sizes that it was fitted to."""
    up_to_bytes: float
    """Sizes that it stands for end here (inf: none are larger); the class before says where they
    begin."""
    alpha_ns: float
    alpha_error_ns: float
    bandwidth_bytes_per_s: float
    bandwidth_error_bytes_per_s: float
    instances: int
    borrowed: str
    """`alpha` or `bandwidth` where its own sizes do not tell it: the other class's; else empty."""
    bound: str
    """`latency` where messages take more of its median collective than bytes, else `bandwidth`."""

    def words(self) -> str:
        """The class in a few words."""
        last = not np.isfinite(self.up_to_bytes)
        sizes = f"from {self.min_bytes}" if last else f"up to {self.max_bytes}"
        rate = self.bandwidth_bytes_per_s / 1e9
        return f"{sizes} bytes {self.alpha_ns / 1e3:.3g} us and {rate:.3g} GB/s"


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
    classes: tuple[SizeClass, ...] = ()
    """Two lines, of small and large collectives, where they say more than one; else empty."""
    comms: int = 1
    """Communicators that the collectives are of."""

    def at(self, size_bytes: Any) -> tuple[np.ndarray, np.ndarray]:
        """alpha (ns) and bandwidth (bytes/s) of each size: of its class where there are any."""
        return at(self.classes, size_bytes, self.alpha_ns, self.bandwidth_bytes_per_s)

    def outside(self, size_bytes: Any) -> str:
        """What to say of sizes outside those it was fitted to; empty where all are within."""
        return outside(size_bytes, self.min_bytes, self.max_bytes)

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
        if np.isfinite(error):
            text += f" (standard errors {self.alpha_error_ns / 1e3:.2g} us, {error:.2g} GB/s)"
        else:
            text += " (too few to tell errors)"
        if self.classes:
            text += f"; by size: {', '.join(c.words() for c in self.classes)}"
        return text


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
    """Alpha and bandwidth of `instances` rows of one op and n that ran under `algo`.

    Huber's regression of transfer_ns on bytes, of relative errors, so that small collectives fix
    alpha and large ones bandwidth; neither is negative (`line`). A value that is given is kept.
    Where sizes spread by less than SPREAD, alpha is assumed to be DEFAULT_ALPHA_NS (at most half
    of the shortest transfer) and only bandwidth is fitted. Two `classes` of sizes where
    `size_classes.split_bytes` finds them. Rows may be of several communicators: their errors then
    count what these differ by. Raises models.NoModel; TookNoLonger where nothing tells what a byte
    costs; NoFit where a value that is given would need a negative time a message or a byte, or
    the times are far from any line.
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
    classes: tuple[SizeClass, ...] = ()
    comms = rows["comm"].n_unique() if len(rows) else 0
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
        cluster = None if comms < 2 else rows["comm"].rank("dense").to_numpy().astype(np.int64)
        (alpha, slope), (alpha_error, slope_error) = line(
            np.full(len(size), p), q * size, took, cluster
        )
    else:
        assumed = min(DEFAULT_ALPHA_NS, float(took.min()) / p / 2)
        alpha = assumed if alpha_ns is None else alpha_ns
        slope = float(np.median((took - p * alpha) / (q * size)))
        if slope < 0:
            raise NoFit("they took less than their messages would at the alpha that is given")
    tell(slope, slope_error)
    if separated:
        classes = _classes(p, q, size, took)
    alphas, bandwidths = at(classes, size, float(alpha), 1e9 / float(slope))
    return Fit(
        comm=rows["comm"][0] if comms < 2 else f"{comms} communicators",
        op=op,
        algo=algo,
        n=n,
        alpha_ns=float(alpha),
        alpha_error_ns=float(alpha_error),
        bandwidth_bytes_per_s=1e9 / slope,
        bandwidth_error_bytes_per_s=1e9 * float(slope_error) / slope**2,
        instances=len(rows),
        min_bytes=low,
        max_bytes=high,
        error_pct=error_pct(p * alphas + q * size * 1e9 / bandwidths, took),
        separated=separated,
        classes=classes,
        comms=comms,
    )


def tell(slope: float, error: float) -> None:
    """Raises NoFit where nothing tells what a byte costs (ns, and its standard error)."""
    if slope <= 1e9 / FASTEST_BYTES_PER_S or error > slope:
        raise TookNoLonger("larger ones took no longer: nothing tells what a byte costs")


def error_pct(said: np.ndarray, took: np.ndarray) -> float:
    """How far 90 % of the times are from what was said of them at most, in percent of them."""
    return float(100 * np.percentile(np.abs(said / took - 1), 90)) if len(took) else 0.0


def line(
    p: np.ndarray, x: np.ndarray, took: np.ndarray, cluster: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """alpha and ns a byte of took = p*alpha + x*slope, and their standard errors, [2] each.

    Neither is below 0. One that comes out so is 0, and the other alone is fitted; its error is then
    its own, or by how much it came out below 0 if that is more. NoFit where that was by more than
    two standard errors, and what is left is no line of these times (`NEAR_ENOUGH`).
    """
    design = np.column_stack([p / took, x / took])
    ones = np.ones(len(took))
    values, errors = regress(design, ones, cluster)
    if (values >= 0).all():
        return values, errors
    # At most one can be: the times are positive, so is what the other alone makes of them.
    kept = values > 0
    bounded, bounded_errors = np.zeros(2), np.maximum(np.nan_to_num(errors), -values)
    bounded[kept], bounded_errors[kept] = regress(design[:, kept], ones, cluster)
    off = float(np.median(np.abs(design @ bounded - 1)))
    if (values < -2 * np.nan_to_num(errors)).any() and off > NEAR_ENOUGH:
        what = "a message" if values[0] < 0 else "a byte"
        raise NoFit(f"the times do not grow with size as a line does ({what} would take less than "
                    "no time)")  # fmt: skip
    return Terms(bounded, bounded_errors)


def _classes(p: float, q: float, size: np.ndarray, took: np.ndarray) -> tuple[SizeClass, ...]:
    """Two classes by size, where two lines say more of unseen sizes than one; else none.

    A class whose sizes are too few or alike for a line of its own (`own`) takes over
    the other's bandwidth (the small) or alpha (the large).
    """
    cut = split_bytes(p, q, size, took)
    if cut is None:
        return ()
    small = size <= cut
    parts = [(size[at], took[at]) for at in (small, ~small)]
    try:
        found = [Terms(*line(np.full(len(s), p), q * s, t)) if own(s) else None for s, t in parts]
    except NoFit:
        return ()
    borrowed = ["", ""]
    if found[1] is not None and (found[0] is None or not found[0].values[1] > 0):
        found[0] = _given(p, q, *parts[0], slope=found[1].values[1])
        borrowed[0] = "bandwidth"
    elif found[0] is not None and found[1] is None:
        found[1] = _given(p, q, *parts[1], alpha=found[0].values[0])
        borrowed[1] = "alpha"
    out = []
    for (s, t), terms, other, end in zip(parts, found, borrowed, (cut, np.inf), strict=True):
        if terms is None or terms.values[0] < 0 or terms.values[1] <= 1e9 / FASTEST_BYTES_PER_S:
            return ()
        (alpha, slope), (alpha_error, slope_error) = terms
        messages = p * alpha > np.median(t) / 2
        out.append(
            SizeClass(
                int(s.min()),
                int(s.max()),
                end,
                float(alpha),
                float(alpha_error),
                1e9 / slope,
                1e9 * float(slope_error) / slope**2,
                len(s),
                other,
                "latency" if messages else "bandwidth",
            )
        )
    return tuple(out)


def _given(
    p: float, q: float, size: np.ndarray, took: np.ndarray, *,
    alpha: float | None = None, slope: float | None = None,
) -> Terms:  # fmt: skip
    """Alpha and slope where one of them is given (its error 0: it is not of these times)."""
    if slope is not None:
        (value,), (error,) = regress((p / took)[:, None], 1 - slope * q * size / took)
        return Terms(np.array([value, slope]), np.array([error, 0.0]))
    assert alpha is not None
    (value,), (error,) = regress((q * size / took)[:, None], 1 - p * alpha / took)
    return Terms(np.array([alpha, value]), np.array([0.0, error]))


def at(
    classes: tuple[SizeClass, ...], size_bytes: Any, alpha_ns: float, bandwidth_bytes_per_s: float
) -> tuple[np.ndarray, np.ndarray]:
    """alpha and bandwidth of each size, float64 of its shape: its class's, else those given."""
    size = np.asarray(size_bytes, np.float64)
    if not classes:
        return np.full(size.shape, alpha_ns), np.full(size.shape, bandwidth_bytes_per_s)
    of = np.searchsorted([c.up_to_bytes for c in classes[:-1]], size, side="left")
    alphas = np.array([c.alpha_ns for c in classes])
    return alphas[of], np.array([c.bandwidth_bytes_per_s for c in classes])[of]


def outside(size_bytes: Any, min_bytes: int, max_bytes: int) -> str:
    """What to say of sizes outside a calibrated range; empty where all are within, or none is."""
    size = np.atleast_1d(np.asarray(size_bytes, np.float64))
    size = size[size > 0]
    if not max_bytes or not len(size) or (size.min() >= min_bytes and size.max() <= max_bytes):
        return ""
    return (
        f"sizes of {size.min():.0f} to {size.max():.0f} bytes are outside what is calibrated "
        f"({min_bytes} to {max_bytes} bytes): the estimate is an extrapolation"
    )
