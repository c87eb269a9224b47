"""Rows of `routing`, gathered as arrays from counts by expert or from the choices of tokens."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ..machine_code import Functions
from ..schema import TABLES, TEXT
from ..values import MAX_RANK, integer
from .kept_code import functions
from .tally_fast_code import CODE

MAX_EXPERTS = 1 << 16
"""No model has so many experts in a layer: an id from here on is damage, not an expert."""

COUNT_AT_ONCE = 1 << 21
FEW_IDS = 1 << 10
"""Compiled code that is there counts so many and more."""
BATCH_ROWS = 131_072
_COMMON = ("step", "microbatch", "layer", "rank")
_WORDS = ("block", "token_class")
_I32_MAX = (1 << 31) - 1
_I64_MAX = (1 << 63) - 1


class Counted(NamedTuple):
    """The choices of some tokens, by expert."""

    experts: np.ndarray
    """Ids that were chosen, ascending."""
    tokens: np.ndarray
    weights: np.ndarray | None
    """Sum of the gate weights by expert; null where none were given."""
    n_padding: int
    """Tokens that chose no expert at all: fake or padded ones."""
    n_dropped: int
    """Choices that no expert took, of tokens that have another."""
    n_beyond: int
    """Ids that no expert can have."""
    n_bad_weights: int
    """Weights that are no finite number; left out of the sums."""


def count(ids: np.ndarray, weights: np.ndarray | None = None) -> Counted:
    """Counts `ids` [tokens, choices] (integers, -1 for none) and sums `weights` of that shape.

    A column in which no token has a choice is not a choice: some writers fill up to a fixed width.
    """
    fast = None if ids.size < FEW_IDS else functions(CODE, ids.size)
    if fast is not None:
        return _count_fast(fast, ids, weights)
    used = (ids != -1).any(axis=0)
    parts = []
    n_padding = n_dropped = n_beyond = n_bad = 0
    rows = max(1, COUNT_AT_ONCE // max(1, ids.shape[1]))
    for at in range(0, len(ids), rows):
        part = ids[at : at + rows].astype(np.int64, copy=False)
        chosen = part != -1
        good = (part >= 0) & (part < MAX_EXPERTS)
        n_beyond += int((chosen & ~good).sum())
        some = chosen.any(axis=1)
        n_padding += int((~some).sum())
        n_dropped += int((~chosen[some][:, used]).sum())
        flat = part[good]
        w = None
        if weights is not None:
            w = weights[at : at + rows][good].astype(np.float64)
            finite = np.isfinite(w)
            n_bad += int((~finite).sum())
            w = np.where(finite, w, 0.0)
        parts.append(_by_expert(flat, np.ones(len(flat), np.int64), w))
    experts, tokens, sums = parts[0] if parts else _by_expert(*_NOTHING)
    if len(parts) > 1:
        all_sums = None if weights is None else np.concatenate([p[2] for p in parts])
        all_ids, n = (np.concatenate([p[i] for p in parts]) for i in (0, 1))
        experts, tokens, sums = _by_expert(all_ids, n, all_sums)
    kept = None if weights is None else sums
    return Counted(experts, tokens, kept, n_padding, n_dropped, n_beyond, n_bad)


def _count_fast(fast: Functions, ids: np.ndarray, weights: np.ndarray | None) -> Counted:
    """The same by compiled code."""
    if ids.dtype == np.uint8 and weights is None and ids.shape[1]:
        tokens = np.zeros(256, np.int64)
        fast["count_bytes"](ids, tokens)
        experts = np.flatnonzero(tokens)
        return Counted(experts, tokens[experts], None, 0, 0, 0, 0)
    rows = max(1, COUNT_AT_ONCE // max(1, ids.shape[1]))
    scratch = _scratch()
    told = scratch.told
    told[:] = 0
    total = np.zeros(0)
    for at in range(0, len(ids), rows):
        part = _in_order(ids[at : at + rows], np.int64)
        w = _NONE if weights is None else _in_order(weights[at : at + rows], np.float64)
        fast["count_into"](part, w, scratch.tokens, scratch.sums, told)
        if weights is not None:
            # Summed part by part, as above.
            total = added(total, scratch.sums[: told[4]])
            scratch.sums[: told[4]] = 0.0
    n_padding, missing, n_beyond, n_bad, end = told.tolist()
    found = scratch.tokens[:end]
    experts = np.flatnonzero(found)
    tokens = found[experts]
    found[:] = 0
    kept = None if weights is None else total[experts]
    n_dropped = _dropped(fast, ids, rows) if missing else 0
    return Counted(experts, tokens, kept, n_padding, n_dropped, n_beyond, n_bad)


def _dropped(fast: Functions, ids: np.ndarray, rows: int) -> int:
    """Choices of none, of tokens that have another, in columns with any choice."""
    used = np.zeros(ids.shape[1], np.uint8)
    for at in range(0, len(ids), rows):
        if fast["used_columns"](_in_order(ids[at : at + rows], np.int64), used) == len(used):
            break
    return sum(
        fast["dropped"](_in_order(ids[at : at + rows], np.int64), used)
        for at in range(0, len(ids), rows)
    )


def _in_order(values: np.ndarray, kind: type) -> np.ndarray:
    return np.ascontiguousarray(values, kind)


class _Scratch(threading.local):
    """Sums by expert, zero between two counts: pages that were never touched cost more to get than
    a few experts to count."""

    def __init__(self):
        self.tokens = np.zeros(MAX_EXPERTS, np.int64)
        self.sums = np.zeros(MAX_EXPERTS)
        self.told = np.zeros(5, np.int64)


@functools.cache
def _scratch() -> _Scratch:
    return _Scratch()


_NONE = np.zeros((0, 0))
_NOTHING = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))


def _by_expert(
    ids: np.ndarray, n: np.ndarray, weights: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Distinct ids, ascending, with the sums of `n` and of `weights` for each."""
    places, experts = ids, None
    if len(ids) * 8 < int(ids.max(initial=0)):
        # Few ids, one of them large: an array up to it would cost more than they do.
        experts, places = np.unique(ids, return_inverse=True)
    tokens = np.bincount(places, n).astype(np.int64)
    sums = None if weights is None else np.bincount(places, weights)
    if experts is not None:
        return experts, tokens, sums
    experts = np.flatnonzero(tokens)
    return experts, tokens[experts], None if sums is None else sums[experts]


def added(sums: np.ndarray, more: np.ndarray) -> np.ndarray:
    """Sums by expert with more of them; `more` reaches at least as far."""
    out = more.astype(sums.dtype)
    out[: len(sums)] += sums
    return out


def tell_odd(counted: Counted, odd: Callable[..., None], **place: Any) -> None:
    """Notes what `count` left out."""
    if counted.n_beyond:
        told = f"an expert id below -1 or from {MAX_EXPERTS} on; left out of the counts"
        odd("expert_out_of_range", told, "lost", count=counted.n_beyond, **place)
    if counted.n_bad_weights:
        told = "a gate weight that is no finite number; left out of the sum"
        odd("bad_weight", told, count=counted.n_bad_weights, **place)


class Routing:
    """Rows with what groups of them have in common; `full` and `rest` give sorted batches.

    In the arrays -1 is null for `expert`, `physical`, `expert_rank` and `tokens`, NaN for
    `weights`. Scalars are integers that fit the column, or None.
    """

    def __init__(self, kind: str):
        self._kind = kind
        self._clear()

    def _clear(self) -> None:
        self._common: list[tuple] = []
        self._lengths: list[int] = []
        self._arrays: dict[str, list[np.ndarray]] = {
            c: [] for c in ("expert", "physical_expert", "expert_rank", "tokens", "weight_sum")
        }
        self._n = 0

    def add(
        self,
        tokens: np.ndarray,
        *,
        expert: np.ndarray | None = None,
        physical: np.ndarray | None = None,
        expert_rank: np.ndarray | int | None = None,
        weights: np.ndarray | None = None,
        step: int | None = None,
        microbatch: int | None = None,
        block: str | None = None,
        layer: int | None = None,
        rank: int | None = None,
        token_class: str | None = "real",
    ) -> None:
        """A group of rows: one for each element of `tokens`."""
        n = len(tokens)
        if not n:
            return
        arrays = (expert, physical, expert_rank, tokens)
        for name, a in zip(("expert", "physical_expert", "expert_rank", "tokens"), arrays,
                           strict=True):  # fmt: skip
            filled = np.full(n, -1 if a is None else a) if not isinstance(a, np.ndarray) else a
            self._arrays[name].append(filled.astype(np.int64, copy=False))
        w = np.full(n, np.nan) if weights is None else weights.astype(np.float64, copy=False)
        self._arrays["weight_sum"].append(w)
        self._common.append((step, microbatch, layer, rank, block, token_class))
        self._lengths.append(n)
        self._n += n

    def add_counted(
        self,
        counted: Counted,
        *,
        expert: np.ndarray | None = None,
        physical: np.ndarray | None = None,
        expert_rank: np.ndarray | None = None,
        **common: Any,
    ) -> None:
        """Counted choices: real rows, and one each for padding tokens and dropped choices.

        Without `expert` and `physical`, `counted.experts` are logical experts.
        """
        if expert is None and physical is None:
            expert = counted.experts
        self.add(
            counted.tokens,
            expert=expert,
            physical=physical,
            expert_rank=expert_rank,
            weights=counted.weights,
            **common,
        )
        for n, kind in ((counted.n_padding, "padding"), (counted.n_dropped, "dropped")):
            if n:
                self.add(np.array([n]), token_class=kind, **common)

    def full(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """A batch where there are many rows by now: to be asked now and then."""
        if self._n >= BATCH_ROWS or len(self._lengths) >= BATCH_ROWS:
            yield from self.rest()

    def rest(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """All rows that are left, sorted by step and layer, nulls last."""
        if not self._n:
            return
        n_groups = len(self._lengths)
        group = np.repeat(np.arange(n_groups), self._lengths)
        common = list(zip(*self._common, strict=True))
        values, nulls = [], []
        for column in common[: len(_COMMON)]:
            nulls.append(np.array([v is None for v in column]))
            values.append(np.array([0 if v is None else v for v in column], np.int64))
        keys = [np.where(m, _I64_MAX, v) for v, m in zip(values, nulls, strict=True)]
        order = np.lexsort((keys[2][group], keys[0][group]))
        group = group[order]
        data: dict[str, Any] = {}
        for name, v, m in zip(_COMMON, values, nulls, strict=True):
            data[name] = pa.array(v[group], mask=m[group])
        for name, column in zip(_WORDS, common[len(_COMMON) :], strict=True):
            data[name] = words(list(column)).take(pa.array(group))
        for name, parts in self._arrays.items():
            a = np.concatenate(parts)[order]
            if name == "weight_sum":
                data[name] = pa.array(a, mask=np.isnan(a))
            else:
                # A place computed from what a file says may be beyond the column.
                most = _I64_MAX if name == "tokens" else _I32_MAX
                data[name] = pa.array(a, mask=(a < 0) | (a > most))
        data["source"] = words([self._kind]).take(pa.array(np.zeros(self._n, np.int64)))
        self._clear()
        yield "routing", TABLES["routing"].batch(data)


def words(values: list[str | None]) -> pa.DictionaryArray:
    """A column of names as dictionary codes."""
    known = list(dict.fromkeys(v for v in values if v is not None))
    place = {w: i for i, w in enumerate(known)}
    codes = pa.array([None if v is None else place[v] for v in values], pa.int32())
    sound = [w.encode("utf-8", "replace").decode() for w in known]
    return pa.DictionaryArray.from_arrays(codes, pa.array(sound, TEXT.value_type))


def fits_i32(value: Any) -> bool:
    """A plain non-negative integer of 32 bits: a layer, a rank, a microbatch."""
    number = integer(value)
    return number is not None and 0 <= number <= _I32_MAX


def fits_rank(value: Any) -> bool:
    """A plain integer that can be a global rank."""
    return fits_i32(value) and value <= MAX_RANK
