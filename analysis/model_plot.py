"""The curves of `retime model` as a page or a picture, in one file that needs nothing else."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..ingest.errors import UsageError
from . import outfile, units
from .model_screen import headline

ENDINGS = (".html", ".svg", ".png")


def ending(path: str | os.PathLike[str]) -> str:
    """The kind of picture that a file's name asks for; raises UsageError for another."""
    found = Path(path).suffix.lower()
    if found not in ENDINGS:
        raise UsageError(f"{os.fspath(path)[-80:]}: a plot ends in {', '.join(ENDINGS)}")
    return found


def save(result: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Writes the curves of `model.model`: .html (with tooltips), .svg or .png. Raises UsageError.

    An html file holds all that it runs: no network is asked.
    """
    kind = ending(path)
    outfile.checked(path)
    import vl_convert

    spec = chart(result).to_dict()
    made: str | bytes
    if kind == ".svg":
        made = vl_convert.vegalite_to_svg(spec)
    elif kind == ".png":
        made = vl_convert.vegalite_to_png(spec, scale=2)
    else:
        made = vl_convert.vegalite_to_html(spec, bundle=True)
    with outfile.writing(path) as out:
        out.write(made if isinstance(made, bytes) else made.encode())


def chart(result: Mapping[str, Any]) -> Any:
    """The curves as an Altair chart: time over size, both logarithmic, with the crossing marked."""
    import altair as alt

    compared = [
        r["algo"] if r["protocol"] is None else f"{r['algo']} {r['protocol']}"
        for r in result["algorithms"]
        if r["compared"]
    ]
    curve = result["curve"]
    points = [
        {"algorithm": name, "bytes": size, "us": took / 1e3}
        for name in compared
        for size, took in zip(curve["sizes_bytes"], curve["times_ns"][name], strict=True)
        if took > 0
    ]
    most = max((p["us"] for p in points), default=1.0)
    size = (
        alt.X("bytes:Q", title="size")
        .scale(type="log", base=2)
        .axis(**_axis([2.0**k for k in range(6, 36, 4)], units.size))
    )
    spans = [10.0**k for k in range(-3, 13) if 10.0**k < 10 * most]
    lines = (
        alt.Chart(alt.Data(values=points))
        .mark_line()
        .encode(
            size,
            alt.Y("us:Q", title="time")
            .scale(type="log")
            .axis(**_axis(spans, lambda us: units.time(us * 1e3))),
            alt.Color("algorithm:N", sort=compared, title=None),
            tooltip=["algorithm:N", alt.Tooltip("bytes:Q", format="~s"), "us:Q"],
        )
    )
    title = alt.Title(headline(result), subtitle=result["assumptions"][0])
    layers = [lines]
    at = result["crossover_bytes"]
    if at is not None:
        first, second = result["crossover_of"]
        mark = [{"bytes": at, "said": f"{first} and {second} cross"}]
        layers.append(
            alt.Chart(alt.Data(values=mark))
            .mark_rule(strokeDash=[4, 4], color="grey")
            .encode(size, tooltip=["said:N", alt.Tooltip("bytes:Q", format=",.0f")])
        )
    return alt.layer(*layers).properties(title=title, width=640, height=400)


def _axis(values: list[float], word: Callable[[float], str]) -> dict[str, Any]:
    """An axis with a word at each value."""
    said = json.dumps({f"{v:.15g}": word(v) for v in values})
    return {"values": values, "labelExpr": f"{said}[toString(datum.value)] || ''"}
