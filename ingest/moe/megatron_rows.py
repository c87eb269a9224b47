"""Rows of Megatron-LM's router trace: tokens by expert of each call."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from ..collect import Collector
from ..errors import UnusableInput
from .counted import count, tell_odd
from .kept_code import functions
from .megatron_lines import I64, Small, block_name, records, tell_layers
from .tally import Routing
from .tally_fast_code import CODE

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sources import Source

MAX_KEYS = 1 << 16
SHORT_BYTES = 512
"""A line no longer than this is read as it is."""

_CHOICES = re.compile(rb'(?<!\\)"top_indices"[ \t]*:[ \t]*(?=\[)')
_KEY = b'"top_indices"'
_NUMBER = -(1 << 62)
"""What stands in the line for the choices that were taken out of it."""


class Record(msgspec.Struct):
    """One router call as written."""

    step: I64
    layer: Small
    rank: Small
    top_indices: list[list[I64]]
    block: str | None = None
    mtp_idx: Small | None = None
    num_tokens: I64 | None = None
    logit_offset: I64 | None = None
    hs_offset: I64 | None = None


_DECODER = msgspec.json.Decoder(Record)


def rows_of(source: Source, rank: int | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """All calls of a file; see `megatron.parse`."""
    c = Collector(source)
    rows = Routing("megatron-router")
    calls = _Calls(c)
    ranks: set[int] = set()
    sides: set[str] = set()
    for at, (r, ids) in records(c, _read, "that is no router call"):
        k = calls.number(r, at)
        ranks.add(r.rank)
        if r.logit_offset is not None:
            sides.add(f"logits_rank{r.rank}.bin")
        if r.hs_offset is not None:
            sides.add(f"hidden_states_rank{r.rank}.bin")
        if r.num_tokens is not None and r.num_tokens != len(ids):
            told = f"a call says {r.num_tokens} tokens and lists {len(ids)}; those listed count"
            c.odd("token_count_differs", told, offset=at)
        counted = count(ids)
        tell_odd(counted, c.odd, offset=at)
        rows.add_counted(
            counted,
            step=r.step,
            microbatch=k,
            block=block_name(r.block, r.mtp_idx),
            layer=r.layer,
            rank=r.rank,
        )
        yield from rows.full()
    if not ranks:
        raise UnusableInput("no line of it is a router call", path=source.name)
    for found in sorted(ranks):
        c.add("ranks", rank=found, clock="none", source=source.name)
    if rank is not None and ranks != {rank}:
        told = f"the records say rank {sorted(ranks)[:3]}, not {rank}; theirs is kept"
        c.odd("rank_differs", told)
    tell_layers(c)
    calls.tell()
    if sides:
        told = f"side files with bfloat16 tensors are not read: {', '.join(sorted(sides)[:4])}"
        c.odd("side_files", told, "info")
    yield from rows.rest()
    yield from c.rest()


def _read(line: bytes) -> tuple[Record, np.ndarray]:
    """A call and its choices: compiled code has those of long lines, once there is much to read."""
    fast = functions(CODE, len(line)) if len(line) > SHORT_BYTES else None
    quick = None if fast is None else _quick_call(line, fast["rows"])
    return _call(line) if quick is None else quick


def _quick_call(line: bytes, rows: Callable[..., Any]) -> tuple[Record, np.ndarray] | None:
    """As `_call` of a line whose choices are ordinary (`rows` of `tally_fast` reads them); None of
    another: where they are not there just once, ragged, or anything but integers."""
    found = _CHOICES.search(line)
    if found is None:
        return None
    # No line's end is within a line: with one behind it the scan cannot leave the bytes.
    buf = np.frombuffer(line + b"\n", np.uint8)
    ids = np.empty((len(line) - found.end()) // 2 + 1, np.int64)
    shape = np.zeros(2, np.int64)
    end = rows(buf, found.end(), ids, shape)
    before, after = line[: found.start()], line[end:]
    if end < 0 or _KEY in before or _KEY in after:
        return None
    try:
        r = _DECODER.decode(before + b'"top_indices": [[%d]]' % _NUMBER + after)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    n, width = shape.tolist()
    return (r, ids[: n * width].reshape(n, width)) if r.top_indices == [[_NUMBER]] else None


def _call(line: bytes) -> tuple[Record, np.ndarray]:
    """A call and its choices [tokens, choices]. Raises ValueError where they are no such array."""
    r = _DECODER.decode(line)
    ids = np.array(r.top_indices, np.int64)
    if ids.ndim != 2:
        if any(r.top_indices):
            raise ValueError("tokens with no choice at all")
        ids = ids.reshape(len(r.top_indices), 0)
    return r, ids


class _Calls:
    """Numbers the calls of a layer within their step, in file order."""

    def __init__(self, c: Collector):
        self._c = c
        self._last: dict[tuple, tuple[int, int]] = {}
        self._most = 0

    def number(self, r: Record, at: int) -> int:
        """The number of a call, from 0; `at` is its place in the file."""
        key = (r.block, r.mtp_idx, r.layer, r.rank)
        last, k = self._last.get(key, (None, -1))
        k = k + 1 if last == r.step else 0
        if last is not None and r.step < last:
            told = "steps go back: two runs in one file? Their microbatches are numbered anew"
            self._c.odd("step_goes_back", told, offset=at)
        if len(self._last) > MAX_KEYS:
            self._last.clear()
        self._last[key] = (r.step, k)
        self._most = max(self._most, k)
        return k

    def tell(self) -> None:
        """Notes that the numbers are of the file's order, where there are any."""
        if self._most:
            told = (
                f"up to {self._most + 1} calls of a layer in a step are numbered as microbatches "
                "in file order; activation recomputation and virtual chunks add calls of their own"
            )
            self._c.odd("microbatch_by_order", told, "info")
