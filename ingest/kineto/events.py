"""Kineto events from raw columns to rows of `events`: kinds, threads, times, names as codes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from .. import classify, kernels
from ..schema import TABLES, TEXT
from .header import LATEST_NS
from .lookup import Lookup
from .problems import Tally
from .rawbatch import NULL, RawBatch, Symbols

DAY_NS = 86_400 * 10**9
MAX_DUR_NS = 7 * DAY_NS
"""A longer duration is a defect of the writer (an unsigned difference below zero, mostly)."""

_KIND_NAMES = (
    "kernel", "memcpy", "memset", "sync", "gpu_annotation",
    "host_op", "runtime", "annotation", "python", "instant", "overhead", "other",
)  # fmt: skip
KIND = {name: code for code, name in enumerate(_KIND_NAMES)}
N_DEVICE_KINDS = 5
"""Kinds with a code below this stand on a device's stream."""
N_WORK_KINDS = 3
"""Kinds with a code below this are work on a device: kernels, copies, sets."""

KIND_ARRAY = pa.array(_KIND_NAMES, pa.string())
COMM = "comm"


class SymbolTexts:
    """The texts of a file's symbols as Arrow dictionaries."""

    def __init__(self, symbols: Symbols):
        self._symbols = symbols

    def dictionary(self, codes: np.ndarray) -> pa.DictionaryArray:
        """Codes as a dictionary array of the texts in use, by their first use; -1 is null."""
        kept, new_code = _by_first_use(codes, len(self._symbols))
        # Not an Arrow `take`: that imports its compute functions, a tenth of a small ingest.
        texts = pa.array([self._symbols.text(k) for k in kept.tolist()], pa.string())
        return pa.DictionaryArray.from_arrays(nullable(new_code[codes], codes >= 0), texts)


def _by_first_use(codes: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The codes that are used, by their first use, and by code its place among them.

    Whoever read the file numbers its texts as it likes: what is written does not depend on that.
    `n` is the number of codes; code -1 is none.
    """
    first = np.full(n + 1, len(codes), np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    first[-1] = len(codes)
    used = np.flatnonzero(first < len(codes))
    used = used[np.argsort(first[used])]
    place = np.zeros(n + 1, np.int32)
    place[used] = np.arange(len(used), dtype=np.int32)
    return used, place


def nullable(values: np.ndarray, valid: np.ndarray | None = None) -> pa.Array:
    """An Arrow array of integers without a copy; null where `valid` is False (or value is NULL)."""
    valid = np.not_equal(values, NULL) if valid is None else valid
    n, n_valid = len(values), int(np.count_nonzero(valid))
    kind = pa.from_numpy_dtype(values.dtype)
    if n and not n_valid:
        return absent(n, kind)
    values = np.ascontiguousarray(values)
    buffers: list[pa.Buffer | None] = [None, pa.py_buffer(values)]
    if n_valid != n:
        buffers[0] = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(kind, n, buffers, null_count=n - n_valid)


class Names:
    """Everything that is looked up by the names of one file's events."""

    def __init__(self, symbols: Symbols):
        self.symbols = symbols
        self.texts = SymbolTexts(symbols)
        self._categories: dict[str, int] = {}
        self.unknown_categories: set[str] = set()
        self.kind = Lookup(symbols, self._kind_code, KIND["other"])
        self.category = Lookup(symbols, self._category_code, -1)

    def category_code(self, category: str) -> int:
        """The code of a category among those of this file."""
        return self._categories.setdefault(category, len(self._categories))

    def _kind_code(self, category: str) -> int:
        if not classify.is_known(category):
            self.unknown_categories.add(category)
        return KIND[classify.kind_of(category)]

    def _category_code(self, name: str) -> int:
        return self.category_code(kernels.category_of_kernel(name))

    def category_array(self, codes: np.ndarray) -> pa.DictionaryArray:
        """Category codes as a dictionary array; -1 is null."""
        names = list(self._categories)
        kept, new_code = _by_first_use(codes, len(names))
        texts = pa.array([names[k] for k in kept.tolist()], pa.string())
        return pa.DictionaryArray.from_arrays(nullable(new_code[codes], codes >= 0), texts)


class Timed(NamedTuple):
    """Rows of a raw batch that become events: row numbers, absolute start and clean duration."""

    rows: np.ndarray
    start_ns: np.ndarray
    dur_ns: np.ndarray


def timed_rows(batch: RawBatch, base_ns: int, tally: Tally) -> Timed:
    """The complete and instant events of a batch with usable times.

    A negative or absurd duration becomes 0 and a missing one too (instants have none). An event
    without a time, or with one at or before 0 while the batch's are more than a day later, has no
    place on the time line: it is left out and counted as lost.
    """
    ph, ts, dur = batch.cols["ph"], batch.cols["ts_ns"], batch.cols["dur_ns"]
    complete = ph == ord("X")
    wanted = complete | (ph == ord("i")) | (ph == ord("I"))
    rows = np.flatnonzero(wanted)
    at = batch.cols["offset"]
    start = ts[rows]
    bad = start <= 0
    if bad.any():
        odd = start == NULL
        good = start[start > 0]
        if len(good) and np.partition(good, len(good) // 2)[len(good) // 2] > DAY_NS:
            odd |= bad
        tally.add_rows("no_time", at[rows[odd]])
        rows, start = rows[~odd], start[~odd]
    late = start > LATEST_NS - base_ns
    if late.any():
        tally.add_rows("time_out_of_range", at[rows[late]])
        rows, start = rows[~late], start[~late]
    length = dur[rows]
    whole = complete[rows]
    odd = (length < 0) | (length > MAX_DUR_NS)
    if odd.any():
        missing = length == NULL
        tally.add_rows("no_duration", at[rows[missing & whole]])
        tally.add_rows("negative_duration", at[rows[(length < 0) & ~missing]])
        tally.add_rows("absurd_duration", at[rows[length > MAX_DUR_NS]])
        length = np.where(odd, 0, length)
    return Timed(rows, start + base_ns, length)


STRING_THREAD = -(2**62)


def thread_codes(tid: np.ndarray, tid_sym: np.ndarray) -> np.ndarray:
    """One integer a host thread: its number, or from STRING_THREAD down where it is a string."""
    if not len(tid) or tid.min() != NULL:
        return tid
    return np.where(tid != NULL, tid, STRING_THREAD - tid_sym.astype(np.int64))


def thread_array(codes: np.ndarray, symbols: Symbols) -> pa.DictionaryArray:
    """Thread codes as text."""
    encoded = pa.array(codes).dictionary_encode()
    texts = [
        str(c) if c > STRING_THREAD + 1 else _text(symbols, STRING_THREAD - c)
        for c in encoded.dictionary.to_pylist()
    ]
    return pa.DictionaryArray.from_arrays(encoded.indices, pa.array(texts, pa.string()))


def _text(symbols: Symbols, code: int) -> str:
    return symbols.text(code) if code >= 0 else ""


EVENTS = TABLES["events"].schema


_ZEROS = [pa.py_buffer(bytes(1 << 20))]


def absent(n: int, type: pa.DataType) -> pa.Array:
    """`n` nulls of a column's type; all such columns share one piece of memory."""
    if 8 * n > _ZEROS[0].size:
        _ZEROS[0] = pa.py_buffer(bytes(8 * n))
    zeros = _ZEROS[0]
    if isinstance(type, pa.DictionaryType):
        codes = pa.Array.from_buffers(type.index_type, n, [zeros, zeros], null_count=n)
        return pa.DictionaryArray.from_arrays(codes, pa.array([], type.value_type))
    if not pa.types.is_integer(type):
        return pa.nulls(n, type)
    return pa.Array.from_buffers(type, n, [zeros, zeros], null_count=n)


def record_batch(columns: dict[str, pa.Array], n: int) -> pa.RecordBatch:
    """Rows of `events`; columns that are not given are null."""
    arrays = []
    for f in EVENTS:
        v = columns.get(f.name)
        arrays.append(absent(n, f.type) if v is None else v if v.type == f.type else v.cast(f.type))
    return pa.RecordBatch.from_arrays(arrays, schema=EVENTS)


def host_rows(
    batch: RawBatch, timed: Timed, kind: np.ndarray, rank: int, names: Names
) -> pa.RecordBatch | None:
    """Rows of `events` for what ran on host threads, sorted by start; None where nothing did."""
    pick = np.flatnonzero(kind >= N_DEVICE_KINDS)
    n = len(pick)
    if not n:
        return None
    start = timed.start_ns[pick]
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        pick, start = pick[order], start[order]
    rows = timed.rows[pick]
    cols = batch.cols
    kinds = kind[pick]
    threads = thread_codes(cols["tid"][rows], cols["tid_sym"][rows])
    name = cols["name"][rows]
    columns = {
        "rank": constant(rank, n),
        "event_id": pa.array((rank << 40) | cols["offset"][rows]),
        "kind": pa.DictionaryArray.from_arrays(pa.array(kinds), KIND_ARRAY),
        "name": names.texts.dictionary(name),
        "thread": thread_array(threads, batch.symbols),
        "start_ns": pa.array(start),
        "dur_ns": pa.array(timed.dur_ns[pick]),
        "correlation": nullable(cols["correlation"][rows]),
        "external_id": nullable(cols["external_id"][rows]),
    }
    return record_batch(columns, n)


def constant(value: int, n: int) -> pa.Array:
    """`n` times one 32-bit integer."""
    return pa.array(np.full(n, value, np.int32))


class DeviceRows(NamedTuple):
    """Rows on device streams, as columns; `category` and `kind` as codes, NULL where absent."""

    event_id: np.ndarray
    kind: np.ndarray
    name: np.ndarray
    category: np.ndarray
    stream: np.ndarray
    device: np.ndarray
    start_ns: np.ndarray
    dur_ns: np.ndarray
    correlation: np.ndarray
    external_id: np.ndarray
    grid: np.ndarray
    block: np.ndarray
    bytes: np.ndarray
    wait_stream: np.ndarray
    wait_correlation: np.ndarray


class Held:
    """Device rows that wait: columns that are filled, given out and filled again.

    A column that had nothing but NULL yet takes no memory.
    """

    def __init__(self, rows: int):
        self._capacity = rows
        self._columns: list[np.ndarray | None] = [None] * len(DeviceRows._fields)
        self.n = 0

    def __len__(self) -> int:
        return self.n

    def add(self, rows: DeviceRows) -> None:
        """Appends rows; they are copied."""
        a, b = self.n, self.n + len(rows.start_ns)
        if b > self._capacity:
            self._grow(b)
        for i, values in enumerate(rows):
            column = self._columns[i]
            if column is None:
                if values.dtype == np.int64 and not np.any(values != NULL):
                    continue
                column = self._columns[i] = np.empty(self._capacity, values.dtype)
                column[:a] = NULL if values.dtype == np.int64 else 0
            column[a:b] = values
        self.n = b

    def _grow(self, rows: int) -> None:
        self._capacity = max(rows, 2 * self._capacity)
        for i, old in enumerate(self._columns):
            if old is not None:
                new = self._columns[i] = np.empty(self._capacity, old.dtype)
                new[: self.n] = old[: self.n]

    def emptied(self) -> Held:
        """The same memory without rows: what is added overwrites those that were there."""
        self.n = 0
        return self

    def rows(self) -> DeviceRows:
        """The rows, without a copy."""
        nulls = np.broadcast_to(np.int64(NULL), self.n)
        return DeviceRows(*(nulls if c is None else c[: self.n] for c in self._columns))


NO_STREAM = 2**32 - 1
"""CUPTI's invalid stream, as an unsigned number; also written as -1."""


def device_rows(
    batch: RawBatch, timed: Timed, kind: np.ndarray, rank: int, names: Names
) -> tuple[DeviceRows, np.ndarray]:
    """What stands on devices in a batch, and the row numbers in it.

    A kernel is communication by its name, or because the trace gives it collective arguments. The
    stream is the `stream` argument, else the row's tid; a synchronisation on no stream has none.
    """
    pick = np.flatnonzero(kind < N_DEVICE_KINDS)
    rows = timed.rows[pick]
    cols = batch.cols
    kinds = kind[pick]
    name = cols["name"][rows]
    category = np.full(len(pick), -1, np.int32)
    is_kernel = kinds == KIND["kernel"]
    category[is_kernel] = names.category(name[is_kernel])
    category[is_kernel & (cols["coll_name"][rows] >= 0)] = names.category_code(COMM)
    category[kinds == KIND["memcpy"]] = names.category_code("copy")
    category[kinds == KIND["memset"]] = names.category_code("memset")
    stream = cols["stream"][rows]
    sync = kinds == KIND["sync"]
    stream = np.where((stream == NULL) & ~sync, cols["tid"][rows], stream)
    stream[sync & ((stream == -1) | (stream == NO_STREAM))] = NULL
    wait = cols["wait_stream"][rows]
    wait = np.where((wait == -1) | (wait == NO_STREAM), NULL, wait)
    device = cols["device"][rows]
    device = np.where((device == NULL) & ~sync, cols["pid"][rows], device)
    wait_correlation = cols["wait_correlation"][rows]
    wait_correlation = np.where(wait_correlation == -1, NULL, wait_correlation)
    out = DeviceRows(
        (rank << 40) | cols["offset"][rows],
        kinds.astype(np.int8),
        name,
        category,
        stream,
        device,
        timed.start_ns[pick],
        timed.dur_ns[pick],
        cols["correlation"][rows],
        cols["external_id"][rows],
        cols["grid"][rows],
        cols["block"][rows],
        cols["bytes"][rows],
        wait,
        wait_correlation,
    )
    return out, rows


def small(values: np.ndarray) -> pa.Array:
    """As 32-bit integers; null where absent or out of their range."""
    fits = (values >= -(2**31)) & (values < 2**31)
    return nullable(np.where(fits, values, 0).astype(np.int32), fits)


def device_batch(d: DeviceRows, step: np.ndarray, rank: int, names: Names) -> pa.RecordBatch:
    """Rows of `events` from device rows already in order; `step` is NULL where unknown."""
    n = len(d.start_ns)
    columns = {
        "rank": constant(rank, n),
        "event_id": pa.array(d.event_id),
        "kind": pa.DictionaryArray.from_arrays(pa.array(d.kind.astype(np.int32)), KIND_ARRAY),
        "name": names.texts.dictionary(d.name),
        "stream": nullable(d.stream),
        "device": small(d.device),
        "start_ns": pa.array(d.start_ns),
        "dur_ns": pa.array(d.dur_ns),
        "correlation": nullable(d.correlation),
        "external_id": nullable(d.external_id),
        "category": names.category_array(d.category),
        "grid_blocks": nullable(d.grid),
        "block_threads": small(d.block),
        "bytes": nullable(d.bytes),
        "wait_stream": nullable(d.wait_stream),
        "wait_correlation": nullable(d.wait_correlation),
        "step": nullable(step),
    }
    return record_batch(columns, n)


assert KIND_ARRAY.type == TEXT.value_type
