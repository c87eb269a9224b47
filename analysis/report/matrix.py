"""A matrix of values for the page's script: small whole numbers, and what one of them is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

FINEST = 4095
"""The largest value as a whole number: others are multiples of a part of it."""

UNKNOWN = -1
"""Stands in a cell whose value nothing tells; None where there is nothing to tell."""


def unit_of(largest: float) -> int:
    """What one whole number stands for, so that the largest is at most FINEST."""
    return max(1, -(-int(largest) // FINEST))


def packed(
    cells: pl.DataFrame, rows: Sequence[dict[str, Any]], columns: Sequence[str], what: str
) -> dict[str, Any]:
    """`rows` (label, group, rank, words), `columns`, `cells`, `unit`, `what` (bytes, tokens).

    `cells` has `row`, `at` (column) and `value`; a null value is UNKNOWN, an absent cell None.
    """
    largest = cells["value"].max()
    unit = unit_of(float(largest or 0))  # pyright: ignore[reportArgumentType]
    made: list[list[int | None]] = [[None] * len(columns) for _ in rows]
    for row, at, value in cells.select("row", "at", "value").iter_rows():
        made[row][at] = UNKNOWN if value is None else round(value / unit)
    return {"rows": list(rows), "columns": list(columns), "cells": made, "unit": unit, "what": what}
