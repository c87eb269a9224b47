"""What retime says of the made-up job, held against the truth that lies beside it."""

from __future__ import annotations

from typing import Any, NamedTuple

import duckdb
import numpy as np

from .shape import DIMS

LATE = """
SELECT rank, host, cause FROM stragglers ORDER BY wait_caused_ns DESC, rank LIMIT 1
"""

RAIL = """
SELECT host, rail, sum(bytes) / sum(busy_ns) AS bytes_per_ns
FROM rail_load
WHERE is_best AND source = 'measured' AND window_by = 'step' AND bytes > 0
GROUP BY host, rail ORDER BY bytes_per_ns, host, rail
"""
"""Every rail of every host by what it carried in the time in which it was busy, slowest first."""

EXPERT = """
SELECT layer, mode(busiest_expert) AS expert, avg(max_over_mean_by_expert) AS uneven
FROM expert_imbalance GROUP BY layer ORDER BY uneven DESC, layer LIMIT 1
"""

CLOCKS = """
SELECT host, any_value(clock_offset_ns) AS offset_ns,
    max(clock_error_ns) AS error_ns, any_value(middle_ns) AS middle_ns
FROM (
    SELECT host, clock_offset_ns, clock_error_ns,
        min(start_ns) OVER w + (max(end_ns) OVER w - min(start_ns) OVER w) // 2 AS middle_ns
    FROM ranks WINDOW w AS (PARTITION BY host)
)
GROUP BY host
"""

WAITS = "SELECT rank, dim, sum(wait_ns)::BIGINT AS wait_ns FROM waits GROUP BY rank, dim"


class Found(NamedTuple):
    """One thing that is known of the job: the truth, what was found, whether that is it."""

    what: str
    truth: str
    found: str
    right: bool


def held(con: duckdb.DuckDBPyConnection, truth: dict[str, Any]) -> list[Found]:
    """The four things to find, and how far off clocks and waits are."""
    return [late(con, truth), rail(con, truth), expert(con, truth), clocks(con, truth),
            waits(con, truth)]  # fmt: skip


def late(con: duckdb.DuckDBPyConnection, truth: dict[str, Any]) -> Found:
    """The rank that makes the others wait most, its host and why."""
    t = truth["late_rank"]
    rank, host, cause = _one(con, LATE)
    wanted, got = (t["rank"], t["host"], t["cause"]), (rank, host, cause)
    return Found("late rank", _words(wanted), _words(got), wanted == got)


def rail(con: duckdb.DuckDBPyConnection, truth: dict[str, Any]) -> Found:
    """The rail that is slowest, and how much slower than the median one."""
    t = truth["slow_rail"]
    rows = con.execute(RAIL).fetchall()
    factor = float(np.median([r[2] for r in rows]) / rows[0][2])
    # Two collectives at once on one NIC count once in its busy time: on the slow one more often.
    right = rows[0][:2] == (t["host"], t["rail"]) and abs(factor / t["factor"] - 1) < 0.1
    return Found(
        "slow rail", _words((t["host"], f"rail {t['rail']}", f"{t['factor']:.2f} times")),
        _words((rows[0][0], f"rail {rows[0][1]}", f"{factor:.2f} times")), right,
    )  # fmt: skip


def expert(con: duckdb.DuckDBPyConnection, truth: dict[str, Any]) -> Found:
    """The layer whose experts are most uneven, and its busiest expert."""
    t = truth["hot_expert"]
    layer, which, _ = _one(con, EXPERT)
    wanted, got = (t["layer"], t["expert"]), (layer, which)
    words = [f"layer {a}, expert {b}" for a, b in (wanted, got)]
    return Found("hot expert", words[0], words[1], wanted == got)


def clocks(con: duckdb.DuckDBPyConnection, truth: dict[str, Any]) -> Found:
    """The largest error of a host's clock, and whether each is within what retime says of it."""
    from .shape import BASE_NS, BEGIN_NS

    off, said, right = 0.0, 0, True
    for host, offset_ns, error_ns, middle_ns in con.execute(CLOCKS).fetchall():
        its = truth["clocks"][host]
        since = middle_ns - BASE_NS - BEGIN_NS
        ahead = its["ahead_ns"] + its["drift_ppm"] * 1e-6 * since
        off, said = max(off, abs(offset_ns + ahead)), max(said, error_ns)
        right = right and abs(offset_ns + ahead) <= error_ns
    return Found("clocks", "0 ns off", f"{off:.0f} ns off at most, {said} ns said", bool(right))


def waits(con: duckdb.DuckDBPyConnection, truth: dict[str, Any]) -> Found:
    """Each rank's wait in each dimension, added up: what the worst is off by."""
    dims = {d: i for i, d in enumerate(DIMS)}
    real = np.array([truth["wait_ns"][d] for d in DIMS], float)
    found = np.zeros_like(real)
    for rank, dim, ns in con.execute(WAITS).fetchall():
        found[dims[dim], rank] += ns
    # Clocks are known to some hundred ns, and every collective may be off by that.
    allowed = 0.01 * real + 1_000 * truth["collectives"]
    worst = np.abs(found - real).max()
    share = abs(found.sum() / real.sum() - 1)
    return Found(
        "waits", f"{real.sum() / 1e9:.3f} s in all",
        f"{100 * share:.3f} % off, a rank's {worst / 1e3:.0f} us off at most",
        bool((np.abs(found - real) <= allowed).all() and share < 0.005),
    )  # fmt: skip


def _one(con: duckdb.DuckDBPyConnection, query: str) -> tuple[Any, ...]:
    found = con.execute(query).fetchone()
    if found is None:
        raise ValueError(f"no row: {query}")
    return found


def _words(parts: tuple[Any, ...]) -> str:
    return ", ".join(str(p) for p in parts)
