"""What the metadata tables beside a recipe say: host, device, and the rank of each report."""

from __future__ import annotations

import ast
import re

import pyarrow as pa

from ..collect import Collector
from ..errors import RankUnknown, UsageError
from ..schema import MAX_RANK
from .columns import INT, TEXT
from .fit import fit
from .surroundings import RANK_VARIABLES, number_of, rank_in_name

_GLOBAL = re.compile(r"Xla:#global=(\d{1,7}),")


def pairs(table: pa.Table | None) -> dict[str, str]:
    """name -> value of a table of such rows; empty where it is none."""
    if table is None or not {"name", "value"} <= set(table.column_names):
        return {}
    names = fit(table["name"], TEXT, _quiet, "").to_pylist()
    values = fit(table["value"], TEXT, _quiet, "").to_pylist()
    return {n: v or "" for n, v in zip(names, values, strict=True) if n}


def _quiet(*args: object, **more: object) -> None:
    """Metadata that is odd is missing: nothing else depends on it."""


def device_of(table: pa.Table | None) -> dict:
    """What the first device row says: name, smCount, deviceId, and XLA's name for the device.

    Columns may be named by the text of a pair (table, column): a frame with two header rows.
    """
    out: dict = {}
    if table is None or not table.num_rows:
        return out
    wanted = {"name": TEXT, "smCount": INT, "deviceId": INT, "cuDevice": INT}
    for i, title in enumerate(table.column_names):
        origin, name = _title(title)
        if name not in wanted:
            continue
        value = fit(table.column(i), wanted[name], _quiet, "")[0].as_py()
        if value is None:
            continue
        if name == "name":
            name = "xla" if "NVTX" in origin else "name"
        out.setdefault("deviceId" if name == "cuDevice" else name, value)
    return out


def _title(title: str) -> tuple[str, str]:
    """(table, column) of a column's title; no table where the title is plain."""
    if title[:1] == "(" and len(title) < 500:
        try:
            found = ast.literal_eval(title)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            return "", title
        if isinstance(found, tuple) and len(found) == 2 and all(
            isinstance(x, str) for x in found
        ):  # fmt: skip
            return found[0], found[1]
    return "", title


def ranks_of(
    name: str, numbers: list[int], asked: int | None, tables: dict[str, pa.Table],
    variables: dict[str, str], device: dict, c: Collector,
) -> dict[int, int]:  # fmt: skip
    """Rank by the number of a report within the recipe: its place among the input files."""
    if len(numbers) == 1:
        xla = _GLOBAL.match(device.get("xla") or "")
        rank = asked
        if rank is None:
            rank = int(xla.group(1)) if xla else number_of(variables, RANK_VARIABLES)
        if rank is None:
            rank = rank_in_name(name)
        if rank is None or not 0 <= rank <= MAX_RANK:
            raise RankUnknown(
                "neither the metadata nor the name of the folder says the rank; use --rank",
                path=name,
            )
        return {numbers[0]: rank}
    if asked is not None:
        raise UsageError(f"{name}: holds {len(numbers)} reports; drop --rank")
    files = tables.get("files")
    names = []
    if files is not None and "File" in files.column_names:
        names = fit(files["File"], TEXT, _quiet, "").to_pylist()
    told = {n: rank_in_name(names[n] or "") if 0 <= n < len(names) else None for n in numbers}
    ranks = [r for r in told.values() if r is not None]
    if len(set(ranks)) == len(numbers):
        return {n: r for n, r in told.items() if r is not None}
    c.odd(
        "rank_from_order",
        "the ranks are the order of the reports in the recipe, as their names tell none",
    )
    return {n: n for n in numbers if 0 <= n <= MAX_RANK}
