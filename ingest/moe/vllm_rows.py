"""Rows of vLLM's expert load: samples of its log lines, counts of its arrays and histories."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from ..collect import Collector
from ..errors import UnusableInput
from ..texts import lines, whole
from .arrays import (
    MAX_BYTES,
    PHYSICAL_TO_LOGICAL,
    first_map,
    first_scalar,
    integers,
    load,
    numbers,
    ranks_of,
    scalar,
    whole_numbers,
)
from .counted import COUNT_AT_ONCE, MAX_EXPERTS, count, tell_odd
from .tally import Routing, fits_rank

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source

MAX_ENTRY_BYTES = 32 << 20
Out = Iterator[tuple[str, "pa.RecordBatch"]]
_STEP = re.compile(
    rb"EPLB step: (?:(\d{1,18}) for model ([^\n]{1,200}?): )?"
    rb"avg_tokens=([\d.]{1,30}), max_tokens=(\d{1,18}), balancedness=([\d.]{1,30})"
    rb"(?:, steps until the next rearrangement: (\d{1,18}))?"
)
_SIZES = ("ep_size", "num_ranks", "num_gpus")


def log_rows(source: Source) -> Out:
    """Samples of each `EPLB step` line, in order of the log; the time of day has no year."""
    c = Collector(source)
    n = 0
    for at, line, _ in lines(source, c.odd):
        place = line.find(b"EPLB step:")
        if place < 0:
            continue
        found = _STEP.match(line[place : place + 1000])
        if found is None:
            told = "an `EPLB step` line of a form not known; left out"
            c.odd("bad_line", told, "lost", offset=at)
            continue
        step, model, average, most, balance, until = found.groups()
        device = model.decode("utf-8", "replace") if model else None
        samples = {"step": step, "avg_tokens": average, "max_tokens": most,
                   "balancedness": balance, "steps_to_rearrangement": until}  # fmt: skip
        for name, value in samples.items():
            if value is None:
                continue
            try:
                c.add("counters", name=f"vllm_eplb_{name}", device=device, value=float(value))
            except ValueError:
                told = f"a number that is none ({value[:30]!r}); left out"
                c.odd("bad_number", told, "lost", offset=at)
        n += 1
        yield from c.full()
    if not n:
        told = "a vLLM log without `EPLB step` lines: run with log_balancedness in --eplb-config"
        raise UnusableInput(told, path=source.name)
    told = (
        "token numbers are sums over layers, average and maximum over ranks; the log's times have "
        "no year, so the samples have none and stand in the log's order"
    )
    c.odd("samples_without_time", told, "info")
    yield from c.rest()


def array_rows(source: Source, rank: int | None) -> Out:
    """Rows of expert_load_pass [layers, physical], expert_load_window [steps, layers, physical]
    or routed_experts [tokens, layers, choices], saved alone or under these names."""
    c = Collector(source)
    data = load(source, c.odd)
    if isinstance(data, np.ndarray):
        data = {_array_name(source.name): data}
    if not isinstance(data, dict):
        raise UnusableInput("no arrays under names", path=source.name)
    logical = first_map(data, PHYSICAL_TO_LOGICAL, 2, c.odd)
    n_ranks = first_scalar(data, _SIZES)
    own = scalar(data.get("rank")) if rank is None else rank
    own = own if fits_rank(own) else None
    rows = Routing("vllm")
    some = False
    for name, value in data.items():
        known = str(name) if isinstance(name, str) else ""
        loads = integers(value, 3) if known.startswith("expert_load") else None
        if loads is None and known.startswith("expert_load"):
            flat = integers(value, 2)
            loads = None if flat is None else flat[None]
        ids = whole_numbers(value, 3) if known.startswith("routed_experts") else None
        if loads is not None:
            some = True
            window = isinstance(value, np.ndarray) and value.ndim == 3
            yield from _loads(c, rows, loads, window, logical, n_ranks, own)
        elif ids is not None:
            some = True
            _captured(c, rows, ids, own)
        elif known not in (*PHYSICAL_TO_LOGICAL, *_SIZES, "rank"):
            told = f"an array that is no expert load ({known[:60]!r}); left out"
            c.odd("not_read", told, "info")
        yield from rows.full()
    if not some:
        raise UnusableInput("no expert load of two or three dimensions", path=source.name)
    if own is not None:
        c.add("ranks", rank=own, clock="none", source=source.name)
    yield from rows.rest()
    yield from c.rest()


def _array_name(path: str) -> str:
    return os.path.basename(path.replace("!", "/"))


def _loads(
    c: Collector,
    rows: Routing,
    loads: np.ndarray,
    window: bool,
    logical: np.ndarray | None,
    n_ranks: int | None,
    own: int | None,
) -> Out:
    n_physical = loads.shape[2]
    if n_physical > MAX_EXPERTS:
        told = f"more than {MAX_EXPERTS} experts; left out"
        c.odd("expert_out_of_range", told, "lost")
        return
    physical = np.arange(n_physical)
    for step in np.flatnonzero((loads > 0).any(axis=(1, 2))).tolist():
        for layer in range(loads.shape[1]):
            kept = loads[step, layer] >= 0
            expert = None
            if logical is not None and layer < len(logical) and logical.shape[1] == n_physical:
                expert = logical[layer][kept]
            holders = ranks_of(physical, n_physical, n_ranks)
            rows.add(
                loads[step, layer][kept],
                expert=expert,
                physical=physical[kept],
                expert_rank=None if holders is None else holders[kept],
                step=step if window else None,
                layer=layer,
                rank=own,
            )
        yield from rows.full()
    if bool((loads < 0).any()):
        told = "loads below nothing; left out"
        c.odd("negative_count", told, "lost", count=int((loads < 0).sum()))
    told = "layer is the number of the MoE layer, without dense ones"
    c.odd("layer_among_moe", told, "info")
    if window:
        told = "step is the row of vLLM's sliding window, which is a ring; rows of zeros left out"
        c.odd("buffer_rows", told, "info")
    if logical is None:
        told = "experts are physical ones; without physical_to_logical_map the logical are null"
        c.odd("map_missing", told, "info")


def _captured(c: Collector, rows: Routing, ids: np.ndarray, own: int | None) -> None:
    """Counts of [tokens, all layers, choices]; layers whose ids are all 0 are dense ones."""
    dense = _all_zero(ids)
    for layer in np.flatnonzero(~dense).tolist():
        counted = count(ids[:, layer])
        tell_odd(counted, c.odd)
        rows.add_counted(counted, layer=layer, rank=own)
    if dense.any():
        told = (
            f"{int(dense.sum())} layers hold nothing but 0, which is how dense layers are "
            "captured: left out, not counted for expert 0"
        )
        c.odd("layers_without_routing", told, "info")


def _all_zero(ids: np.ndarray) -> np.ndarray:
    """[layers] of `ids` [tokens, layers, choices]: whether there is nothing but 0."""
    zero = np.asarray(~ids[:1].any(axis=(0, 2)))
    rows = max(1, COUNT_AT_ONCE // max(1, ids[:1].size))
    for at in range(1, len(ids), rows):
        left = np.flatnonzero(zero)
        if not len(left):
            break
        zero[left] = ~ids[at : at + rows, left].any(axis=(0, 2))
    return zero


def history_rows(source: Source, rank: int | None) -> Out:
    """Rows of a history: `load_history`, entries with `logical_expert_load` [layers][experts]."""
    c = Collector(source)
    data = whole(source, c.odd, MAX_BYTES)
    try:
        outer = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        entries = msgspec.json.decode(outer.get("load_history", b"[]"), type=list[msgspec.Raw])
    except (msgspec.MsgspecError, RecursionError, ValueError) as e:
        raise UnusableInput(f"no load history: {str(e)[:120]}", path=source.name) from e
    rows = Routing("vllm-history")
    n = 0
    for step, raw in enumerate(entries):
        try:
            entry: Any = msgspec.json.decode(raw) if len(raw) <= MAX_ENTRY_BYTES else None
        except (msgspec.MsgspecError, RecursionError, ValueError):
            entry = None
        entry = entry if isinstance(entry, dict) else {}
        loads = numbers(entry.get("logical_expert_load"), 2)
        physical = numbers(entry.get("physical_expert_load"), 2) if loads is None else None
        both = loads if loads is not None else physical
        if both is None or both.shape[1] > MAX_EXPERTS or not bool(np.isfinite(both).all()):
            c.odd("bad_record", "an entry without loads; left out", "lost", offset=step)
            continue
        n += 1
        counts = np.clip(np.rint(both), 0, 2.0**62).astype(np.int64)
        experts = np.arange(both.shape[1])
        for layer in np.flatnonzero((counts > 0).any(axis=1)).tolist():
            rows.add(
                counts[layer],
                expert=None if loads is None else experts,
                physical=experts if loads is None else None,
                step=step,
                layer=layer,
                rank=rank,
            )
        yield from rows.full()
    if not n:
        raise UnusableInput("no entry of it has expert loads", path=source.name)
    c.odd("step_is_entry", "step is the number of the entry in the history", "info")
    c.odd("layer_among_moe", "layer is the number of the MoE layer, without dense ones", "info")
    yield from rows.rest()
    yield from c.rest()
