"""`retime model` on a terminal: links, best algorithm by size, times, and the curves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import line_chart, units
from .columns import cells, lines
from .screen import clean

if TYPE_CHECKING:
    from rich.console import Console

WIDEST = 100
"""Columns of the chart at most; without a terminal, 80."""

HEIGHT = 16
ROOMY = 100
"""Columns from which every size of the table has room."""

MOST_CURVES = 6


def show(out: Console, result: Mapping[str, Any]) -> None:
    """Prints what `model.model` returns."""
    out.print(headline(result), style="bold")
    out.print(_links(result))
    if result.get("bytes") is not None:
        took = next(r for r in result["algorithms"] if _name(r) == result["best"])["time_ns"]
        size = units.size(result["bytes"])
        out.print(f"{size}: least by {result['best']}, {units.time(took)}", style="bold")
    out.print()
    out.print("Best by size", style="bold")
    for r in result["ranges"]:
        out.print(f"  {_span(r):<24}  {_name(r)}")
    at, pair = result["crossover_bytes"], result["crossover_of"]
    if pair is not None and at is not None:
        out.print(f"{pair[0]} and {pair[1]} cross at {units.size(at)}")
    elif pair is not None:
        out.print(f"{pair[0]} and {pair[1]} never cross")
    out.print()
    _table(out, result)
    out.print()
    _chart(out, result)
    left = [r for r in result["algorithms"] if not r["compared"]]
    for need in dict.fromkeys(r["needs"] for r in left if r["needs"]):
        names = ", ".join(_name(r) for r in left if r["needs"] == need)
        out.print(f"{names}: not compared, needs {need} (--algo compares any)", style="dim")
    server = result.get("parameter_server")
    if server is not None:
        out.print(
            f"parameter server: a worker moves {units.size(server['worker_bytes'])}, the server's "
            f"port {units.size(server['server_in_bytes'])} each way",
            style="dim",
        )
    for text in result["assumptions"]:
        out.print(f"assumes: {clean(text)}", style="dim")


def headline(result: Mapping[str, Any]) -> str:
    """`all_reduce of 16 ranks on 2 nodes`."""
    nodes = result["n_nodes"]
    where = f" on {units.counted(nodes, 'node')}" if nodes > 1 else ""
    return f"{result['op']} of {units.counted(result['n_ranks'], 'rank')}{where}"


def _links(result: Mapping[str, Any]) -> str:
    if result["model"] == "nccl":
        return f"NCCL's tuning model on {result['machine']}, {result['channels']} channels"
    text = (
        f"alpha {_us(result['alpha_ns'])}, "
        f"bandwidth {result['bandwidth_bytes_per_s'] / 1e9:.4g} GB/s"
    )
    if result["inter_alpha_ns"] is not None:
        text += (
            f"; between hosts {_us(result['inter_alpha_ns'])}, "
            f"{result['inter_bandwidth_bytes_per_s'] / 1e9:.4g} GB/s a NIC"
        )
    return f"{text} ({result['source']})"


def _us(ns: float) -> str:
    return f"{ns / 1e3:.4g} us"


def _name(row: Mapping[str, Any]) -> str:
    return row["algo"] if row["protocol"] is None else f"{row['algo']} {row['protocol']}"


def _span(r: Mapping[str, Any]) -> str:
    low, high = r["from_bytes"], r["to_bytes"]
    if not low and high is None:
        return "every size"
    if not low:
        return f"up to {units.size(high)}"
    return f"from {units.size(low)}" if high is None else f"{units.size(low)} to {units.size(high)}"


def _table(out: Console, result: Mapping[str, Any]) -> None:
    rows = []
    every = 1 if out.width >= ROOMY else 2
    for r in result["algorithms"]:
        row: dict[str, Any] = {"algorithm": _name(r) + ("" if r["compared"] else " *")}
        if "time_ns" in r:
            row[f"at {units.size(result['bytes'])}"] = units.time(r["time_ns"])
        pairs = list(zip(result["sizes_bytes"], r["times_ns"], strict=True))
        for size, took in pairs[::every]:
            row[units.size(size)] = units.time(took)
        if result["model"] == "nccl":
            row["latency"] = units.time(r["latency_ns"])
            row["bandwidth"] = units.rate(r["asymptotic_bytes_per_s"] / 1e9)
        else:
            row["messages"] = units.NOTHING if r["messages"] is None else f"{r['messages']:g}"
            row["volume"] = units.NOTHING if r["volume"] is None else f"{r['volume']:.4g}"
        rows.append(row)
    table = cells(rows)
    table.numeric = [name != "algorithm" for name in table.names]
    for line in lines(table, out.width):
        out.print(line)


def _chart(out: Console, result: Mapping[str, Any]) -> None:
    named = {_name(r): r for r in result["algorithms"]}
    best = dict.fromkeys(_name(r) for r in result["ranges"])
    pair = [name for name in (result["crossover_of"] or []) if name in named]
    rest = [name for name, r in named.items() if r["compared"]]
    drawn = list(dict.fromkeys([*best, *pair, *rest]))[:MOST_CURVES]
    curve = result["curve"]
    shown = {n: curve["times_ns"][n] for n in drawn if max(curve["times_ns"][n]) > 0}
    if not shown:
        return
    encoding = (out.encoding or "").lower().replace("-", "")
    out.print("Time by size, both logarithmic", style="bold")
    for line in line_chart.lines(
        curve["sizes_bytes"],
        shown,
        width=min(out.width, WIDEST if out.is_terminal else 80),
        height=HEIGHT,
        x_word=units.size,
        y_word=units.time,
        utf8=encoding == "utf8",
    ):
        out.print(line)
