"""The communicators of a job with their dimensions, and what the user says of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import polars as pl

from ..ingest import locks, rooms, settings, store
from ..ingest.dims import DIMS, form
from ..ingest.errors import UsageError, WarehouseError
from .query import frame

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from ..ingest.store import Place

NAMES = (*DIMS, "world", "unknown")
"""Dimensions that a communicator may be given."""


def table(con: DuckDBPyConnection) -> pl.DataFrame:
    """One row a communicator: its members, operations, dimension and how that was found.

    Columns comm, name, description, size [ranks], members (text: `0-7`, `0-60/4` for every
    fourth), ops (text: operation and calls on all ranks), dim, dim_source, dim_reason. Those with
    operations first, the largest before.
    """
    rows = frame(
        con.sql("""
        WITH used AS (
            SELECT comm, op, count(*) AS n FROM collectives WHERE comm IS NOT NULL GROUP BY ALL
        ),
        ops AS (
            SELECT comm, string_agg(op || ' ' || n, ', ' ORDER BY n DESC, op) AS ops,
                sum(n)::BIGINT AS calls
            FROM used GROUP BY comm
        )
        SELECT c.comm, c.name, c.description, c.size, list_sort(c.ranks) AS members, o.ops,
            c.dim, c.dim_source, c.dim_reason
        FROM comms AS c LEFT JOIN ops AS o USING (comm)
        ORDER BY coalesce(o.calls, 0) = 0, c.size DESC NULLS LAST, c.comm
        """)
    )
    return rows.with_columns(
        pl.col("members").map_elements(lambda m: form(m.to_list()), return_dtype=pl.String)
    )


def say(
    job_folder: Place,
    world: int | None,
    rules: Mapping[str, str] | None = None,
    degrees: Mapping[str, int] | None = None,
    clear: bool = False,
) -> settings.Settings:
    """Keeps what the user says of a job's dimensions; gives all that is kept then.

    `rules` (pattern -> dim) come before those of earlier calls; `degrees` take the place of
    earlier ones; `clear` forgets both first. Raises UsageError, and changes nothing, for a
    dimension that there is not, too many rules, and degrees that do not make `world` ranks.
    """
    for dim in (rules or {}).values():
        if dim not in NAMES:
            raise UsageError(f"no dimension {dim!r}; there are {', '.join(NAMES)}")
    for dim, n in (degrees or {}).items():
        if dim not in DIMS or n < 1:
            raise UsageError(f"--degrees {dim}={n}: a degree is 1 or more of {', '.join(DIMS)}")
    product = math.prod((degrees or {}).values())
    if degrees and world is not None and product != world:
        text = " x ".join(f"{d} {n}" for d, n in degrees.items())
        raise UsageError(f"degrees {text} make {product} ranks, but the job has {world}")
    with rooms.writing(store.folder(job_folder).parent), locks.locked(job_folder):
        try:
            old = settings.read(job_folder)
        except WarehouseError:
            if not clear:
                raise
            old = settings.Settings()
        new = [settings.DimRule(p, d) for p, d in (rules or {}).items()]
        kept = [] if clear else [r for r in old.dims if r.pattern not in (rules or {})]
        if (n := len(new) + len(kept)) > settings.MOST_RULES:
            raise UsageError(f"{n} rules for dimensions; {settings.MOST_RULES} are the most")
        mesh = dict(degrees) if degrees else ({} if clear else old.degrees)
        said = settings.replaced(old, dims=[*new, *kept], degrees=mesh)
        settings.write(job_folder, said)
    return said


def parse_rules(texts: Sequence[str]) -> dict[str, str]:
    """`["*TENSOR*=tp"]` -> {"*TENSOR*": "tp"}. Raises UsageError for other forms."""
    out = {}
    for text in texts:
        pattern, equals, dim = text.rpartition("=")
        if not (pattern and equals and dim):
            raise UsageError(f"--set {text!r} is not of the form PATTERN=DIM")
        out[pattern] = dim.strip().lower()
    return out


def parse_degrees(text: str) -> dict[str, int]:
    """`tp=8,pp=4` -> {"tp": 8, "pp": 4}, in order. Raises UsageError for other forms."""
    out: dict[str, int] = {}
    for part in text.split(","):
        dim, equals, n = (t.strip().lower() for t in part.partition("="))
        if not equals or not (n.isascii() and n.isdecimal()) or len(n) > 9 or dim in out:
            raise UsageError(
                f"--degrees {text!r} is not of the form tp=8,cp=1,pp=4,dp=16 (each once, the "
                "fastest-varying first)"
            )
        out[dim] = int(n)
    return out
