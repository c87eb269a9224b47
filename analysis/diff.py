"""What changed between two jobs: every part of the step's time, matched and added up."""

from __future__ import annotations

from math import erfc, sqrt
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from ..ingest.errors import UnusableInput, UsageError
from . import diff_steps, frames
from .query import frame

if TYPE_CHECKING:
    from collections.abc import Sequence

    from duckdb import DuckDBPyConnection

    from .doors import Job

DRAWS = 2_000
"""Resamples of the bootstrap over steps."""

LEAST_STEPS = 3
"""With fewer steps than this of either job nothing can be said of significance."""

NORMAL = 1.959964
"""The 97.5 percentile of the normal distribution."""

FALSE_RATE = 0.05
"""Share of the parts called significant that chance may have made (Benjamini-Hochberg)."""


LEAST_NS = 0.5
"""A change below it is shown as none: times are whole ns, and sums of shares round."""

RESOLUTION_NS = 1_000
LEAST_SHARE = 1e-3
"""A change that is below both, the microsecond of many traces and this share of the step, is none
to speak of, however sure it is."""


COUNTED = ("compute", "memcpy")
"""Groups of which a piece is a launch, so that more of them and longer ones can be told apart."""


class Parts(NamedTuple):
    """A job's steps, and what each was made of: means over the ranks that had the step."""

    steps: list[int]
    keys: list[tuple[str, str]]
    """(group of time, what) of each part: kernel, collective signature or class of idle time."""
    ns: np.ndarray
    """float64 [steps, parts]; rows add up to the mean step of the ranks."""
    pieces: np.ndarray
    """float64 [steps, parts]: how often it occurs on a rank."""
    has_steps: bool
    """False where the job has no steps: the one row is a rank's whole trace."""


def diff(a: Job, b: Job, *, steps_a: str | None = None, steps_b: str | None = None) -> dict:
    """What changed from job `a` to job `b`, part by part: see `compare`.

    `steps_a` and `steps_b` choose steps: `12`, `10-20`, or a list of these with commas. Raises
    UsageError for steps that a job does not have and where only one job has steps, UnusableInput
    for a job with nothing to split.
    """
    sides = parts(a.con, a.id, steps_a), parts(b.con, b.id, steps_b)
    for job, side, other in ((a, *sides), (b, *sides[::-1])):
        if other.has_steps and not side.has_steps:
            raise UsageError(
                f"job {job.id!r} has no steps and the other has: a whole trace and a step do not "
                "compare (retime ingest --step-annotation NAME says what its steps are)"
            )
    found = compare(*sides)
    found["remarks"] += [
        remark
        for name, side, asked in (("A", sides[0], steps_a), ("B", sides[1], steps_b))
        if (remark := diff_steps.taken(name, side.steps, asked))
    ]
    sizes = {
        name: {"job": job.id, "ranks": job.sql("SELECT count(*) AS n FROM ranks")["n"][0]}
        for name, job in (("a", a), ("b", b))
    }
    return {**{name: {**sizes[name], **found[name]} for name in sizes}, **_rest(found)}


def _rest(found: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in found.items() if k not in ("a", "b")}


def parts(con: DuckDBPyConnection, job: str, steps: str | None = None) -> Parts:
    """The parts of a job's steps: work from `step_composition`, idle time from `step_breakdown`."""
    rows = frame(
        con.sql("""
        WITH every AS MATERIALIZED (
            SELECT rank, step, class, what, ns, pieces FROM step_composition
            UNION ALL
            SELECT rank, step, class, class, ns, 1 FROM step_breakdown
            WHERE starts_with(class, 'idle')
        ), r AS (
            SELECT count(DISTINCT rank) AS n, step FROM every GROUP BY step
        )
        SELECT c.step, c.class, c.what, sum(c.ns) / any_value(r.n) AS ns,
            sum(c.pieces) / any_value(r.n) AS pieces
        FROM every c JOIN r ON r.step IS NOT DISTINCT FROM c.step
        WHERE c.step IS NOT NULL OR NOT EXISTS (FROM every WHERE step IS NOT NULL)
        GROUP BY c.step, c.class, c.what
        """)
    )
    if rows.is_empty():
        raise UnusableInput(f"job {job!r} has no work with times: there is nothing to compare")
    has_steps = rows["step"].null_count() == 0
    if steps is not None:
        rows = diff_steps.chosen(rows, steps, job)
    rows = rows.with_columns(
        pl.col("step").fill_null(0),
        pl.col("class").cast(pl.String).map_elements(frames.group_of, return_dtype=pl.String)
        .alias("group"),
        pl.col("ns").cast(pl.Float64),
        pl.col("pieces").cast(pl.Float64),
    )  # fmt: skip
    summed = rows.group_by("step", "group", "what").agg(pl.col("ns", "pieces").sum())
    at = sorted(summed["step"].unique().to_list())
    keys = sorted(set(summed.select("group", "what").iter_rows()))
    row_of, column_of = ({k: i for i, k in enumerate(names)} for names in (at, keys))
    ns, pieces = (np.zeros((len(at), len(keys))) for _ in range(2))
    for step, group, what, time_ns, n in summed.iter_rows():
        place = row_of[step], column_of[group, what]
        ns[place], pieces[place] = time_ns, n
    return Parts(at, keys, ns, pieces, has_steps)


def compare(a: Parts, b: Parts) -> dict[str, Any]:
    """The change of the mean step, and of each part of it; the parts' changes add up to it.

    Returns `a` and `b` (steps, `step_ns`, `median_step_ns`), `change_ns`, `change_share` (of a's
    step), its 95 % interval `low_ns` and `high_ns`, `significant`; `groups` and `parts`, the
    largest change first, each with `group`, `what`, `a_ns`, `b_ns`, `change_ns`, `low_ns`,
    `high_ns`, `share` of the whole change, `significant`, and for parts `pieces_a`, `pieces_b` (on
    a rank a step), `more_ns` (what of the change comes from their number, at a's time each) and
    `slower_ns` (the rest), both None but for compute and memcpy: pieces of communication are the
    exposed ones, not its calls; and `remarks`. Parts of one job only have 0 in the other.

    Intervals are a bootstrap over the steps of each job (percentiles, widened for few steps, seed
    0). A part is significant where its two-sided p-value, from the bootstrap's standard error,
    passes Benjamini and Hochberg's procedure over all parts at a rate of 5 %; `significant` is None
    where a job has too few steps, and False for a change below the traces' resolution (less than
    RESOLUTION_NS and LEAST_SHARE of the step). `share` is None where the whole does not change.
    Raises UsageError where only one has steps.
    """
    if a.has_steps != b.has_steps:
        raise UsageError("one job has steps and the other has none: they do not compare")
    keys = sorted({*a.keys, *b.keys})
    ns_a, ns_b = _spread(a, keys, a.ns), _spread(b, keys, b.ns)
    n_a, n_b = (_spread(p, keys, p.pieces).mean(0) for p in (a, b))
    enough = min(len(a.steps), len(b.steps)) >= LEAST_STEPS and a.has_steps
    groups = [g for g in frames.GROUPS if any(k[0] == g for k in keys)]
    of_group = np.array([[k[0] == g for g in groups] for k in keys], float)
    whole = np.ones((len(keys), 1))
    total = _change(ns_a @ whole, ns_b @ whole, enough)
    by_part, by_group = (
        _change(ns_a, ns_b, enough),
        _change(ns_a @ of_group, ns_b @ of_group, enough),
    )
    change = float(total.mean[0])
    rows = []
    for i, (group, what) in enumerate(keys):
        row = _row(group, what, i, ns_a, ns_b, by_part, change)
        each = ns_a[:, i].mean() / n_a[i] if n_a[i] else 0.0
        more = float((n_b[i] - n_a[i]) * each) if n_a[i] and n_b[i] else 0.0
        slower = row["change_ns"] - more if n_a[i] and n_b[i] else 0.0
        told = group in COUNTED
        row |= {"pieces_a": float(n_a[i]), "pieces_b": float(n_b[i]),
                "more_ns": more if told else None, "slower_ns": slower if told else None,
                "only_in": None if n_a[i] and n_b[i] else "a" if n_a[i] else "b"}  # fmt: skip
        rows.append(row)
    steps = {
        name: {
            "steps": p.steps if p.has_steps else [],
            "step_ns": float(p.ns.sum(1).mean()),
            "median_step_ns": float(np.median(p.ns.sum(1))),
        }
        for name, p in (("a", a), ("b", b))
    }
    return {
        **steps,
        "change_ns": change,
        "change_share": change / steps["a"]["step_ns"] if steps["a"]["step_ns"] else None,
        **_said(total, 0),
        "groups": sorted(
            (_row(g, None, i, ns_a @ of_group, ns_b @ of_group, by_group, change)
             for i, g in enumerate(groups)),
            key=_by_size,
        ),
        "parts": sorted(rows, key=_by_size),
        "remarks": _remarks(a, b, total, steps),
    }  # fmt: skip


class Change(NamedTuple):
    """Changes of the means of some columns, with intervals; arrays [columns]."""

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    significant: np.ndarray | None
    """bool; None where there are too few steps."""


def _change(a: np.ndarray, b: np.ndarray, enough: bool) -> Change:
    mean = b.mean(0) - a.mean(0)
    if not enough:
        return Change(mean, mean, mean, None)
    rng = np.random.default_rng(0)
    drawn = np.concatenate(
        [_means(b, rng, n) - _means(a, rng, n) for n in _chunks(max(len(a), len(b)))]
    )
    drawn = mean + (drawn - mean) * _widening(a, b)
    low, high = np.percentile(drawn, [2.5, 97.5], axis=0)
    spread = drawn.std(0)
    p = np.array(
        [erfc(abs(m) / s / sqrt(2)) if s > 0 else float(m == 0)
         for m, s in zip(mean.tolist(), spread.tolist(), strict=True)]
    )  # fmt: skip
    step = max(a.sum(1).mean(), b.sum(1).mean())
    seen = (np.abs(mean) >= RESOLUTION_NS) | (np.abs(mean) >= LEAST_SHARE * step)
    return Change(mean, low, high, _rejected(p) & (mean != 0) & seen)


def _widening(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Factor [columns] by which a bootstrap of few steps is too narrow.

    Resampling k values has k-1 over k of their variance, and its percentiles are a normal's where
    Student's t (here with Welch's degrees of freedom) is right: Hesterberg's expanded percentiles
    (The American Statistician, 2015).
    """
    va, vb = (x.var(0, ddof=1) / len(x) for x in (a, b))
    both = va + vb
    with np.errstate(divide="ignore", invalid="ignore"):
        freedom = both**2 / (va**2 / (len(a) - 1) + vb**2 / (len(b) - 1))
        resampled = va * (len(a) - 1) / len(a) + vb * (len(b) - 1) / len(b)
        wider = np.sqrt(both / resampled) * _student(freedom) / NORMAL
    return np.where(both > 0, wider, 1.0)


def _student(freedom: np.ndarray) -> np.ndarray:
    """The 97.5 percentile of Student's t, by its expansion in 1/freedom (Fisher)."""
    z = NORMAL
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )


def _chunks(steps: int) -> list[int]:
    """Numbers of draws that keep each chunk's weights under about 10 million."""
    size = max(1, min(DRAWS, 10_000_000 // max(steps, 1)))
    return [min(size, DRAWS - at) for at in range(0, DRAWS, size)]


def _means(values: np.ndarray, rng: np.random.Generator, draws: int) -> np.ndarray:
    k = len(values)
    weights = rng.multinomial(k, np.full(k, 1 / k), size=draws)
    return weights @ values / k


def _rejected(p: np.ndarray) -> np.ndarray:
    """Which of the hypotheses Benjamini and Hochberg (1995) reject at FALSE_RATE."""
    order = np.argsort(p, kind="stable")
    passed = p[order] <= FALSE_RATE * (np.arange(len(p)) + 1) / len(p)
    out = np.zeros(len(p), bool)
    if passed.any():
        out[order[: np.flatnonzero(passed)[-1] + 1]] = True
    return out


def _spread(of: Parts, keys: Sequence[tuple[str, str]], values: np.ndarray) -> np.ndarray:
    """The columns of a job's parts in the places of `keys`, 0 where it has none."""
    place = {k: i for i, k in enumerate(keys)}
    out = np.zeros((len(of.steps), len(keys)))
    out[:, [place[k] for k in of.keys]] = values
    return out


def _said(change: Change, i: int) -> dict[str, Any]:
    known = change.significant is not None
    return {
        "low_ns": float(change.low[i]) if known else None,
        "high_ns": float(change.high[i]) if known else None,
        "significant": bool(change.significant[i]) if change.significant is not None else None,
    }


def _row(
    group: str,
    what: str | None,
    i: int,
    a: np.ndarray,
    b: np.ndarray,
    change: Change,
    whole: float,
) -> dict[str, Any]:
    mean = float(change.mean[i])
    return {
        "group": group,
        **({} if what is None else {"what": what}),
        "a_ns": float(a[:, i].mean()),
        "b_ns": float(b[:, i].mean()),
        "change_ns": mean,
        "share": mean / whole if abs(whole) >= LEAST_NS else None,
        **_said(change, i),
    }


def _by_size(row: dict[str, Any]) -> tuple:
    return -abs(row["change_ns"]), row["group"], row.get("what") or ""


def _remarks(a: Parts, b: Parts, total: Change, steps: dict[str, Any]) -> list[str]:
    said = []
    if not a.has_steps:
        said.append("jobs without steps are compared as a whole: the length is that of a trace")
    elif total.significant is None:
        said.append(
            f"{len(a.steps)} and {len(b.steps)} steps: with fewer than {LEAST_STEPS} of each "
            "nothing says whether a change is more than chance"
        )
    elif not total.significant[0] and abs(total.mean[0]) >= LEAST_NS:
        said.append(
            "the steps as a whole do not differ by more than chance: shares of that change mean "
            "little"
        )
    for name in ("a", "b"):
        mean, median = steps[name]["step_ns"], steps[name]["median_step_ns"]
        if median and abs(mean - median) > 0.1 * median:
            said.append(
                f"job {name.upper()}'s mean step is {100 * (mean / median - 1):+.0f} % off its "
                f"median: a few steps are unlike the others (--steps-{name} leaves them out)"
            )
    return said
