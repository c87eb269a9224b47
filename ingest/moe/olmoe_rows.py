"""Rows of OLMoE's pickled Counters: choices by layer and expert, by pairs of layers too."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ..collect import Collector
from ..errors import UnusableInput
from ..pickles.safe_pickle import loads
from ..texts import whole
from .arrays import scalar
from .counted import MAX_EXPERTS
from .tally import Routing, fits_i32

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source

MAX_PICKLE_BYTES = 64 << 20
LAYERS = (0, 7, 15)
"""What the published analysis keeps of all layers; the pairs are its neighbours."""


def rows_of(source: Source, kind: str) -> Iterator[tuple[str, pa.RecordBatch]]:
    """All counts of a file; see `olmoe.parse`. `kind` is what `source` says in them."""
    c = Collector(source)
    data = loads(whole(source, c.odd, MAX_PICKLE_BYTES), name=source.name)
    counters = _counters(data)
    rows = Routing(kind)
    if counters and all(isinstance(k, tuple) for _, counter in counters for k in counter):
        _pairs(c, rows, counters)
    else:
        for layer, counter in counters:
            experts, tokens = _single(c, counter)
            rows.add(tokens, expert=experts, layer=layer)
    batches = list(rows.rest())
    if not batches:
        raise UnusableInput("no Counters of experts in it", path=source.name)
    if isinstance(data, list):
        told = f"layers are {LAYERS} by place, as the analysis saves them"
        c.odd("layers_by_place", told, "info")
    yield from batches
    yield from c.rest()


def _counters(data: Any) -> list[tuple[Any, dict]]:
    """(layer or pair of layers or None, counter) of each counter in the pickle."""
    if isinstance(data, dict):
        return [(k, v) for k, v in ((_plain(k), v) for k, v in data.items())
                if isinstance(v, dict) and (k is None or fits_i32(k) or isinstance(k, tuple))
                ]  # fmt: skip
    if not isinstance(data, list | tuple):
        return []
    found = [v for v in data if isinstance(v, dict)]
    names: tuple = LAYERS
    if found and all(isinstance(k, tuple) for v in found for k in v):
        names = tuple(pairwise(LAYERS))
    if len(found) != len(names):
        names = (None,) * len(found)
    return list(zip(names, found, strict=True))


def _plain(key: Any) -> Any:
    """A Python integer, or a pair of such, for whatever kind of integer the key is."""
    if isinstance(key, tuple) and len(key) == 2:
        a, b = _plain(key[0]), _plain(key[1])
        return (a, b) if fits_i32(a) and fits_i32(b) else None
    number = scalar(key)
    return number if fits_i32(number) else None


def _single(c, counter: dict) -> tuple[np.ndarray, np.ndarray]:
    experts, tokens = [], []
    for key, value in counter.items():
        expert, n = _plain(key), _plain_count(value)
        if not fits_i32(expert) or expert >= MAX_EXPERTS or n is None:
            c.odd("bad_record", "a count that is not of an expert; left out", "lost")
            continue
        experts.append(expert)
        tokens.append(n)
    return np.array(experts, np.int64), np.array(tokens, np.int64)


def _plain_count(value: Any) -> int | None:
    number = scalar(value)
    return number if number is not None and 0 <= number < 1 << 62 else None


def _pairs(c, rows: Routing, counters: list[tuple[Any, dict]]) -> None:
    """Counts of each layer of the pairs, from the first pair that has it."""
    done: dict[Any, dict[int, int]] = {}
    for pair, counter in counters:
        ends: tuple[dict[int, int], dict[int, int]] = ({}, {})
        for key, value in counter.items():
            experts, n = _plain(key), _plain_count(value)
            if not isinstance(experts, tuple) or max(experts) >= MAX_EXPERTS or n is None:
                c.odd("bad_record", "a count that is not of two experts; left out", "lost")
                continue
            for end, expert in zip(ends, experts, strict=True):
                end[expert] = end.get(expert, 0) + n
        for layer, end in zip(pair if isinstance(pair, tuple) else (None, None), ends, strict=True):
            if layer is None or layer not in done:
                done[layer] = end
                experts_of = np.array(list(end), np.int64)
                rows.add(np.array(list(end.values()), np.int64), expert=experts_of, layer=layer)
            elif done[layer] != end:
                told = f"pairs disagree about layer {layer}; the first is kept"
                c.odd("counts_differ", told)
    told = "which experts of two layers go together is not kept, only the sums for each layer"
    c.odd("pairs_summed", told, "info")
