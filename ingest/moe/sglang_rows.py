"""Rows of SGLang's expert distribution dumps: stat, per pass, per token, and the old CSV."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ..collect import Collector
from ..errors import UnusableInput
from ..texts import lines
from .arrays import integers, logical_map, mapped, ranks_of, scalar
from .counted import MAX_EXPERTS, count, tell_odd
from .tally import Routing, fits_i32, fits_rank

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source

Out = Iterator[tuple[str, "pa.RecordBatch"]]
_CHILDREN = {"child_a": 0, "child_b": 1}
_DIGITS = frozenset(b"0123456789")


def csv_rows(source: Source, rank: int | None) -> Out:
    """Counts by layer and expert of one rank; experts without tokens are not in the file."""
    c = Collector(source)
    rows = Routing("sglang-csv")
    found: dict[int, list[tuple[int, int]]] = {}
    n = 0
    for at, line, complete in lines(source, c.odd, 1 << 16):
        parts = line.split(b",")
        if at == 0 or not line.strip():
            continue
        sound = len(parts) == 3 and all(p and len(p) <= 18 and set(p) <= _DIGITS for p in parts)
        values = [int(p) for p in parts] if sound else []
        if not sound or not fits_i32(values[0]) or values[1] >= MAX_EXPERTS:
            code = "bad_record" if complete else "cut_record"
            c.odd(code, "a line without layer, expert and count; left out", "lost", offset=at)
            continue
        if not complete:
            c.odd("cut_record", "the last line has no end; its count may be cut", offset=at)
        found.setdefault(values[0], []).append((values[1], values[2]))
        n += 1
        if n % 1_000_000 == 0:
            _csv_add(rows, found, rank)
            yield from rows.rest()
    if not n:
        raise UnusableInput("a header and no counts", path=source.name)
    _csv_add(rows, found, rank)
    if rank is None:
        told = "the name does not say the rank (expert_distribution_rank<R>_...): it is null"
        c.odd("rank_unknown", f"{told}, as in sums over all ranks; give --rank")
    else:
        c.add("ranks", rank=rank, clock="none", source=source.name)
    yield from rows.rest()
    yield from c.rest()


def _csv_add(rows: Routing, found: dict[int, list[tuple[int, int]]], rank: int | None) -> None:
    for layer, counts in found.items():
        pairs = np.array(counts, np.int64)
        rows.add(pairs[:, 1], expert=pairs[:, 0], layer=layer, rank=rank)
    found.clear()


def dump_rows(source: Source, rank: int | None) -> Out:
    """Rows of a recorder's .pt, of whatever mode."""
    from ..pickles.torchfile import load

    data = load(source)
    if not isinstance(data, dict):
        raise UnusableInput("a torch file that is no recorder's dump", path=source.name)
    c = Collector(source)
    if "logical_count" in data:
        yield from _stat(c, data)
    elif isinstance(data.get("records"), list):
        yield from _records(c, data, rank)
    else:
        told = "a torch file with neither logical_count nor records"
        raise UnusableInput(told, path=source.name)
    yield from c.rest()


def _stat(c: Collector, data: dict) -> Out:
    counts = integers(data["logical_count"], 3)
    if counts is None or counts.shape[2] > MAX_EXPERTS:
        told = "logical_count is no integer array [steps, layers, experts]"
        raise UnusableInput(told, path=c.source.name)
    rows = Routing("sglang-stat")
    if bool((counts < 0).any()):
        told = "counts below nothing; left out"
        c.odd("negative_count", told, "lost", count=int((counts < 0).sum()))
    used = np.asarray((counts > 0).any(axis=2))
    layers = np.flatnonzero(used.any(axis=0))
    steps = np.flatnonzero(np.any(used, axis=1))
    for step in steps.tolist():
        for layer in layers.tolist():
            kept = np.flatnonzero(counts[step, layer] >= 0)
            rows.add(counts[step, layer][kept], expert=kept, step=step, layer=layer)
        yield from rows.full()
    yield from rows.rest()
    n_steps = counts.shape[0]
    told = (
        f"counts are sums over all ranks; step is the row of the recorder's buffer ({len(steps)} "
        f"of {n_steps} rows are filled), not a forward pass: "
    )
    full = len(steps) == n_steps
    told += "the buffer is full, so its order may wrap" if full else "in order from row 0"
    c.odd("buffer_rows", told, "info")
    _tell_empty(c, counts.shape[1] - len(layers))
    rate = data.get("average_utilization_rate_over_window")
    if isinstance(rate, float) and np.isfinite(rate):
        c.add("counters", name="sglang_average_utilization_rate_over_window", value=rate)


def _tell_empty(c: Collector, n_layers: int) -> None:
    if n_layers > 0:
        told = f"{n_layers} layers have no tokens at all (dense or not recorded); left out"
        c.odd("layers_without_routing", told, "info")


def _records(c: Collector, data: dict, rank: int | None) -> Out:
    records = [r for r in data["records"] if isinstance(r, dict)]
    if len(records) < len(data["records"]):
        n = len(data["records"]) - len(records)
        c.odd("bad_record", "a record that is no dictionary; left out", "lost", count=n)
    logical = logical_map(data.get("last_physical_to_logical_map"), 2, c.odd)
    if logical is None:
        told = "no map from physical to logical experts: logical ids are null"
        c.odd("map_missing", told)
    else:
        told = (
            "physical experts are mapped to logical ones by the map at the time of the dump; "
            "rebalancing before that moved some"
        )
        c.odd("last_map", told, "info")
    rows = Routing("sglang")
    ranks: set[int] = set()
    slices = _own_slices(records)
    usable = 0
    layers_seen = np.zeros(0, bool)
    for n, r in enumerate(records):
        own = scalar(r.get("rank"))
        own = rank if own is None or not fits_rank(own) else own
        if own is not None:
            ranks.add(own)
        key = r.get("gatherer_key")
        child = _CHILDREN.get(key) if isinstance(key, str) else None
        common = {"step": scalar(r.get("forward_pass_id")), "microbatch": child, "rank": own}
        ids = integers(r.get("topk_ids_of_layer"), 3)
        counts = integers(r.get("global_physical_count"), 2)
        if counts is None and ids is None:
            c.odd("bad_record", "a record without counts; left out", "lost", offset=n)
            continue
        usable += 1
        seen = _tokens(c, rows, r, ids, logical, common, n) if ids is not None else None
        if seen is None and counts is not None:
            seen = _counts(rows, counts, logical, common, slices.get(own))
        if ids is not None and counts is not None and int((ids >= 0).sum()) != int(counts.sum()):
            told = "ids by token and counts by expert have different totals; the ids are counted"
            c.odd("counts_differ", told, offset=n)
        if seen is not None:
            layers_seen = np.pad(layers_seen, (0, max(0, len(seen) - len(layers_seen))))
            layers_seen[: len(seen)] |= seen
        yield from rows.full()
    if not usable:
        raise UnusableInput("no record of it has counts", path=c.source.name)
    yield from rows.rest()
    if any(s for s in slices.values()):
        told = (
            "counts are only in the rank's own slice of experts (DeepEP modes count what "
            "arrives): rank is null and expert_rank the rank; all ranks' dumps together are whole"
        )
        c.odd("own_slice", told, "info")
    if any(r.get("misc_objects") for r in records):
        told = "DeepEP's own counts of the same tokens (misc_objects) are not added to the ids'"
        c.odd("counted_twice", told, "info")
    _tell_empty(c, int((~layers_seen).sum()))
    for own in sorted(ranks):
        c.add("ranks", rank=own, clock="none", source=c.source.name)


def _own_slices(records: list[dict]) -> dict[int | None, int]:
    """Experts a rank, for each rank whose counts are only in its own part of the experts; else 0.

    The smallest equal part that holds every count decides: other modes spread over all experts.
    """
    spans: dict[int, tuple[int, int, int]] = {}
    for r in records:
        own, counts = scalar(r.get("rank")), integers(r.get("global_physical_count"), 2)
        if own is None or own < 0 or counts is None or r.get("topk_ids_of_layer") is not None:
            continue
        if counts.shape[1] > MAX_EXPERTS:
            continue
        columns = np.flatnonzero(np.any(counts != 0, axis=0))
        if len(columns):
            n, low, high = spans.get(own, (counts.shape[1], 1 << 62, -1))
            if n == counts.shape[1]:
                spans[own] = (n, min(low, int(columns[0])), max(high, int(columns[-1])))
    out: dict[int | None, int] = {}
    for own, (n, low, high) in spans.items():
        parts = [n // k for k in range(2, n + 1) if n % k == 0 and own < k]
        fitting = [p for p in parts if own * p <= low and high < (own + 1) * p]
        out[own] = min(fitting, default=0)
    return out


def _mapped(logical: np.ndarray | None, layer: int, physical: np.ndarray) -> np.ndarray | None:
    """Logical experts of physical ones in a layer, as `mapped` gives them."""
    return None if logical is None or layer >= len(logical) else mapped(logical[layer], physical)


def _counts(
    rows: Routing,
    counts: np.ndarray,
    logical: np.ndarray | None,
    common: dict[str, Any],
    own_part: int | None,
) -> np.ndarray:
    """Rows of [layers, physical] counts; which layers have any."""
    seen = np.asarray(np.any(counts > 0, axis=1))
    for layer in np.flatnonzero(seen).tolist():
        physical = np.flatnonzero(counts[layer] >= 0)
        ranks, place = None, common
        if own_part:
            own = common["rank"]
            physical = physical[physical // own_part == own]
            ranks, place = own, {**common, "rank": None}
        rows.add(
            counts[layer][physical],
            expert=_mapped(logical, layer, physical),
            physical=physical,
            expert_rank=ranks,
            layer=layer,
            **place,
        )
    return seen


def _tokens(
    c: Collector,
    rows: Routing,
    record: dict,
    ids: np.ndarray,
    logical: np.ndarray | None,
    common: dict[str, Any],
    n: int,
) -> np.ndarray:
    """Rows of ids [layers, tokens, 8] (-1 fills up); which layers have any."""
    misc = record.get("misc_objects")
    n_ranks = None
    if isinstance(misc, list) and misc and isinstance(misc[0], dict):
        per_rank = misc[0].get("num_tokens_per_rank")
        n_ranks = len(per_rank) if isinstance(per_rank, list) else None
    counts = record.get("global_physical_count")
    n_physical = counts.shape[-1] if isinstance(counts, np.ndarray) and counts.ndim == 2 else 0
    seen = np.asarray(np.any(ids >= 0, axis=(1, 2)))
    for layer in np.flatnonzero(seen).tolist():
        counted = count(ids[layer])
        tell_odd(counted, c.odd, offset=n)
        rows.add_counted(
            counted,
            expert=_mapped(logical, layer, counted.experts),
            physical=counted.experts,
            expert_rank=ranks_of(counted.experts, n_physical, n_ranks),
            layer=layer,
            **common,
        )
    return seen
