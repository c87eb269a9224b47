"""Arrow columns of event rows: texts as dictionaries, codes as names, sizes as products."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from ..kineto.rawbatch import NULL
from .arrow import compute as pc
from .strings import Strings

NO_STREAM = 0xFFFFFFFF

COPY_KINDS = {
    1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD",
    9: "HtoH", 10: "PtoP", 11: "UVM HtoD", 12: "UVM DtoH", 13: "UVM DtoD",
}  # fmt: skip
MEMORY_KINDS = {
    0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed", 5: "Device Static",
    6: "Managed Static",
}  # fmt: skip
SYNC_KINDS = {
    1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync",
}  # fmt: skip


def same(word: str, n: int) -> pa.DictionaryArray:
    """One text n times."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), pa.array([word]))


def coded(codes: np.ndarray, name_of: Callable[[int], str]) -> pa.DictionaryArray:
    """Texts of small integers, each made once."""
    known, at = np.unique(codes, return_inverse=True)
    words = pa.array([name_of(c) for c in known.tolist()], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(at.astype(np.int32)), words)


def names_of(ids: np.ndarray, strings: Strings, unknown: str) -> pa.DictionaryArray:
    """The names of ids (NULL none), each once; ids without a text keep their number."""
    known, at = np.unique(ids, return_inverse=True)
    texts = strings.of(pa.array(known)).to_pylist()
    words = [
        t if t is not None else (unknown if i == NULL else f"{unknown} {i}")
        for i, t in zip(known.tolist(), texts, strict=True)
    ]
    # Each text once (ids may share one), in order of its first row.
    first = np.full(len(words), len(at), np.int64)
    first[at[::-1]] = np.arange(len(at) - 1, -1, -1)
    place, new = np.zeros(len(words), np.int32), {}
    for one in np.argsort(first).tolist():
        place[one] = new.setdefault(words[one], len(new))
    return pa.DictionaryArray.from_arrays(pa.array(place[at]), pa.array(list(new), pa.string()))


def small(column: pa.ChunkedArray) -> np.ndarray:
    """A code of an enumeration; 255 where it is none."""
    plain = column.fill_null(255).to_numpy()
    return np.where((plain >= 0) & (plain < 255), plain, 255)


def copy_name(code: int) -> str:
    """As Kineto names copies, from kind << 16 | source << 8 | target."""
    way = COPY_KINDS.get(code >> 16)
    ends = MEMORY_KINDS.get(code >> 8 & 255), MEMORY_KINDS.get(code & 255)
    name = f"Memcpy {way}" if way else "Memcpy"
    return f"{name} ({ends[0]} -> {ends[1]})" if all(ends) else name


def set_name(code: int) -> str:
    """Name of a memset by its kind of memory."""
    memory = MEMORY_KINDS.get(code)
    return f"Memset ({memory})" if memory else "Memset"


def stream_of(column: pa.ChunkedArray) -> pa.Array:
    """Streams; null for the number that stands for none."""
    plain = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    none = pc.equal(plain, NO_STREAM)
    return pc.if_else(none, pa.scalar(None, pa.int64()), plain)


def int32(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """As 32-bit integers; null beyond them."""
    plain = column.fill_null(-1 << 40).to_numpy(zero_copy_only=False)
    fits = (plain >= -(1 << 31)) & (plain < 1 << 31)
    return pa.array(np.where(fits, plain, 0).astype(np.int32), mask=~fits)


def nullable(values: np.ndarray) -> pa.Array:
    """As Arrow; NULL is null."""
    return pa.array(values, mask=values == NULL)


def categories(names: pa.DictionaryArray, category: dict[str, str]) -> pa.DictionaryArray:
    """The category of each name."""
    words = [category[w] for w in names.dictionary.to_pylist()]
    short = sorted(set(words)) or [""]
    place = {w: i for i, w in enumerate(short)}
    code = np.array([place[w] for w in words] or [0], np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(code[names.indices.to_numpy()]), pa.array(short))


def product(t: pa.Table, *names: str) -> pa.Array:
    """Product of three sizes; null where one is missing or it is absurd."""
    out = np.ones(t.num_rows, np.float64)
    whole = np.ones(t.num_rows, np.int64)
    good = np.ones(t.num_rows, bool)
    for name in names:
        v = t[name].fill_null(0).to_numpy()
        good &= (v > 0) & (v < 1 << 31)
        out *= np.where(good, v, 1)
        whole = np.where(good & (out < 2.0**62), whole * np.where(good, v, 1), 0)
    good &= whole > 0
    return pa.array(whole, mask=~good)
