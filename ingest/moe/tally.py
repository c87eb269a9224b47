"""Rows of `routing`, gathered as arrays from counts by expert or from the choices of tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from ..schema import TABLES, TEXT
from ..values import MAX_RANK, integer
from .counted import Counted

BATCH_ROWS = 131_072
_COMMON = ("step", "microbatch", "layer", "rank")
_WORDS = ("block", "token_class")
_I32_MAX = (1 << 31) - 1
_I64_MAX = (1 << 63) - 1


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
