"""Rows of an EPLB weight matrix and of the placement that came out of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ..collect import Collector
from ..errors import UnusableInput
from ..pickles.zips import ZIP
from ..texts import whole
from .arrays import MAX_BYTES, NPY, first_scalar, integers, load, logical_map, numbers, ranks_of
from .counted import MAX_EXPERTS
from .tally import Routing

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source

MAX_LAYERS = 4096


def rows_of(source: Source) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Loads and placement of one file; see `eplb.parse`."""
    c = Collector(source)
    head = source.head(64)
    if head.startswith((NPY, ZIP, b"\x80")) or head.lstrip()[:1] in (b"{", b"["):
        data = load(source, c.odd)
    else:
        data = _csv(c, whole(source, c.odd, MAX_BYTES))
    if not isinstance(data, dict):
        data = {"weight": data}
    weight = numbers(data.get("weight"), 2)
    maps = {name: next((m for k in keys if (m := integers(data.get(k), n)) is not None), None)
            for name, keys, n in (("phy2log", ("phy2log", "physical_to_logical_map"), 2),
                                  ("log2phy", ("log2phy", "logical_to_physical_map"), 3),
                                  ("logcnt", ("logcnt", "logical_count", "expert_count"), 2))
            }  # fmt: skip
    phy2log = maps["phy2log"] if maps["phy2log"] is not None else _inverse(maps["log2phy"])
    phy2log = logical_map(phy2log, 2, c.odd)
    if weight is None and phy2log is None:
        raise UnusableInput("neither a weight matrix nor a map of replicas", path=source.name)
    for a in (weight, phy2log):
        if a is not None and (a.shape[0] > MAX_LAYERS or a.shape[1] > MAX_EXPERTS):
            raise UnusableInput(f"a matrix of {a.shape}, which no model has", path=source.name)
    logcnt = maps["logcnt"]
    if phy2log is not None and logcnt is not None:
        _check_counts(c, phy2log, logcnt)
    n_ranks = first_scalar(data, ("num_gpus", "num_ranks", "ep_size"))
    rows = Routing("eplb")
    load_of = None if weight is None else _whole(c, weight)
    n_layers = max(0 if load_of is None else len(load_of), 0 if phy2log is None else len(phy2log))
    for layer in range(n_layers):
        tokens = load_of[layer] if load_of is not None and layer < len(load_of) else None
        places = phy2log[layer] if phy2log is not None and layer < len(phy2log) else None
        _layer(rows, layer, tokens, places, n_ranks)
        yield from rows.full()
    told = "layer is the row of the matrix: the number of the MoE layer, without dense ones"
    c.odd("layer_among_moe", told, "info")
    if phy2log is not None and n_ranks is None:
        told = "the file does not say the number of GPUs (num_gpus): expert_rank is null"
        c.odd("ranks_unknown", told, "info")
    yield from rows.rest()
    yield from c.rest()


def _layer(
    rows: Routing,
    layer: int,
    tokens: np.ndarray | None,
    places: np.ndarray | None,
    n_ranks: int | None,
) -> None:
    """A row an expert with its load (and its place, if it has one only), one a further replica."""
    common: dict[str, Any] = {"layer": layer}
    if places is None:
        if tokens is not None:
            rows.add(tokens, expert=np.arange(len(tokens)), **common)
        return
    physical = np.arange(len(places))
    holders = ranks_of(physical, len(places), n_ranks)
    holders = np.full(len(places), -1) if holders is None else holders
    known = places >= 0
    replicas = np.bincount(places[known])
    alone = known & (replicas[np.where(known, places, 0)] == 1) if len(replicas) else known
    if tokens is None:
        alone = np.zeros(len(places), bool)
    else:
        where = np.full(len(tokens), -1)
        inside = alone & (places < len(tokens))
        where[places[inside]] = physical[inside]
        alone = inside
        rows.add(
            tokens,
            expert=np.arange(len(tokens)),
            physical=where,
            expert_rank=np.where(where >= 0, holders[where], -1),
            **common,
        )
    rest = ~alone
    rows.add(
        np.full(int(rest.sum()), -1),
        expert=places[rest],
        physical=physical[rest],
        expert_rank=holders[rest],
        token_class=None,
        **common,
    )


def _whole(c: Collector, weight: np.ndarray) -> np.ndarray:
    """Loads as whole tokens; those that are none (NaN, below 0) as -1, which is null."""
    values = weight.astype(np.float64)
    bad = ~np.isfinite(values) | (values < 0)
    if bad.any():
        told = "a load that is no number of tokens; null is kept"
        c.odd("bad_load", told, count=int(bad.sum()))
    values = np.where(bad, -1.0, np.minimum(values, 2.0**62))
    whole_values = np.rint(values)
    if bool((whole_values != values).any()):
        c.odd("load_rounded", "loads with a fraction are rounded to whole tokens", "info")
    return whole_values.astype(np.int64)


def _inverse(log2phy: np.ndarray | None) -> np.ndarray | None:
    """phy2log from log2phy [layers, experts, replicas] (-1 fills up)."""
    if log2phy is None or not log2phy.size:
        return None
    n = int(log2phy.max()) + 1
    if not 0 < n <= MAX_EXPERTS or len(log2phy) > MAX_LAYERS or len(log2phy) * n > 1 << 24:
        return None
    out = np.full((len(log2phy), n), -1)
    for layer, experts in enumerate(log2phy):
        expert, replica = np.nonzero(experts >= 0)
        out[layer, experts[expert, replica]] = expert
    return out


def _check_counts(c: Collector, phy2log: np.ndarray, logcnt: np.ndarray) -> None:
    for layer in range(min(len(phy2log), len(logcnt))):
        row = phy2log[layer]
        known = row[(row >= 0) & (row < logcnt.shape[1])]
        if not np.array_equal(np.bincount(known, minlength=logcnt.shape[1]), logcnt[layer]):
            told = "the number of replicas is another than the map's; the map is kept"
            c.odd("counts_differ", told, offset=layer)


def _csv(c: Collector, data: bytes) -> np.ndarray:
    """A matrix of numbers, a layer a line."""
    found: list[list[float]] = []
    for n, line in enumerate(data.splitlines()):
        if not line.strip():
            continue
        parts = line.replace(b";", b",").replace(b"\t", b",").split(b",")
        try:
            values = [float(p) for p in parts]
        except ValueError:
            told = "a line that is not numbers; left out"
            c.odd("bad_record", told, "info" if n == 0 else "lost", offset=n)
            continue
        if found and len(values) != len(found[0]):
            told = f"a line of {len(values)} numbers among lines of {len(found[0])}; left out"
            c.odd("bad_record", told, "lost", offset=n)
            continue
        found.append(values)
        if len(found) > MAX_LAYERS:
            break
    if not found:
        raise UnusableInput("no line of numbers", path=c.source.name)
    return np.array(found)
