"""Sums of blocks as compiled code gives them, and those of many blocks as one frame."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from .plain_columns import CLASSES, GROUP_KEYS, NULL, PLACE_KEYS

KEYS = ("step", "microbatch", "block", "layer", "rank", "expert", "physical_expert",
        "expert_rank", "token_class", "source")  # fmt: skip
_TEXTS = [PLACE_KEYS.index("block"), PLACE_KEYS.index("source")]


class Sums(NamedTuple):
    """Sums of the rows of a block, in the order of the first of each.

    Texts are codes in `words`, -1 for none; `NULL` is null.
    """

    places: np.ndarray
    """[n, PLACE_KEYS]"""
    groups: np.ndarray
    """[n, GROUP_KEYS]"""
    weights: np.ndarray
    """sum by group"""
    words: list[str]


def frame_of(parts: Iterable[Sums]) -> pl.DataFrame:
    """The rows of all parts, one after another: `KEYS`, `tokens` and `weight_sum`."""
    code_of: dict[str, int] = {}
    places, groups, weights = [], [], []
    n = 0
    for part in parts:
        its = part.places
        if part.words:
            its = its.copy()
            # The last is what the code of none points to.
            codes = [code_of.setdefault(w, len(code_of)) for w in part.words]
            its[:, _TEXTS] = np.array([*codes, -1])[its[:, _TEXTS]]
        group = part.groups.copy()
        group[:, 0] += n
        n += len(its)
        places.append(its)
        groups.append(group)
        weights.append(part.weights)
    return _frame(
        np.concatenate(places), np.concatenate(groups), np.concatenate(weights), list(code_of)
    )


def _frame(
    places: np.ndarray, groups: np.ndarray, sums: np.ndarray, words: list[str]
) -> pl.DataFrame:
    place = groups[:, 0]
    texts = pa.array([*words, None], pa.large_string())
    kinds = pa.array(["routing", *(f"routing:{w}" for w in words)], pa.large_string())
    out: dict[str, pa.Array] = {}
    for i, name in enumerate(PLACE_KEYS):
        values = places[:, i][place]
        if name == "source":
            out[name] = kinds.take(pa.array(values + 1))
        elif name == "block":
            out[name] = texts.take(pa.array(np.where(values < 0, len(words), values)))
        else:
            out[name] = pa.array(values, mask=values == NULL)
    for i, name in enumerate(GROUP_KEYS):
        values = np.ascontiguousarray(groups[:, i])
        if name in ("expert", "physical_expert"):
            out[name] = pa.array(values, mask=values == NULL)
        elif name == "token_class":
            out[name] = pa.array(CLASSES, pa.large_string()).take(pa.array(values))
        elif name == "tokens":
            out[name] = pa.array(values)
    out["weight_sum"] = pa.array(sums, mask=groups[:, GROUP_KEYS.index("weights")] == 0)
    made = pl.from_arrow(pa.table({n: out[n] for n in (*KEYS, "tokens", "weight_sum")}))
    assert isinstance(made, pl.DataFrame)
    return made
