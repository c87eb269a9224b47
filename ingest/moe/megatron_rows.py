"""Rows of Megatron-LM's router trace: tokens by expert of each call."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from ..collect import Collector
from ..errors import UnusableInput
from ..machine_code import Functions
from .counted import Counted, count, count_text, tell_odd
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


def rows_of(source: Source, rank: int | None, hashed: bool) -> Iterator[tuple[str, pa.RecordBatch]]:
    """All calls of a file, which is `hashed` on the way if so said; see `megatron.parse`."""
    c = Collector(source)
    rows = Routing("megatron-router")
    calls = _Calls(c)
    ranks: set[int] = set()
    sides: set[str] = set()
    for at, (r, n_tokens, counted) in records(c, _Reader(), "that is no router call", hashed):
        k = calls.number(r, at)
        ranks.add(r.rank)
        if r.logit_offset is not None:
            sides.add(f"logits_rank{r.rank}.bin")
        if r.hs_offset is not None:
            sides.add(f"hidden_states_rank{r.rank}.bin")
        if r.num_tokens is not None and r.num_tokens != n_tokens:
            told = f"a call says {r.num_tokens} tokens and lists {n_tokens}; those listed count"
            c.odd("token_count_differs", told, offset=at)
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


class _Reader:
    """Gives a line's call, its tokens and its choices; compiled code has the choices of long lines,
    once there is much to read. Raises what the decoder does, and ValueError."""

    def __init__(self) -> None:
        self._fast: Functions | None = None

    def __call__(self, line: bytes) -> tuple[Record, int, Counted]:
        if self._fast is None and len(line) > SHORT_BYTES:
            self._fast = functions(CODE, len(line))
        found = None
        if self._fast is not None and len(line) > SHORT_BYTES:
            quick = _quick_count(line, self._fast)
            if quick is not None:
                return quick
            found = _quick_call(line, self._fast)
        r, ids = _call(line) if found is None else found
        return r, len(ids), count(ids)


def _quick_count(line: bytes, fast: Functions) -> tuple[Record, int, Counted] | None:
    """The same of a line whose choices are ordinary; None of another: where they are not there just
    once, ragged, or anything but experts."""
    begin = _choices_at(line)
    found = None if begin is None else count_text(fast, np.frombuffer(line, np.uint8), begin[1])
    if begin is None or found is None:
        return None
    end, n_tokens, counted = found
    r = _without_choices(line[: begin[0]], line[end:])
    return None if r is None else (r, n_tokens, counted)


def _quick_call(line: bytes, fast: Functions) -> tuple[Record, np.ndarray] | None:
    """As `_call` of a line whose choices are integers; None where that is not said."""
    begin = _choices_at(line)
    if begin is None:
        return None
    ids = np.empty((len(line) - begin[1]) // 2 + 1, np.int64)
    shape = np.zeros(2, np.int64)
    end = fast["rows"](np.frombuffer(line, np.uint8), begin[1], ids, shape)
    r = None if end < 0 else _without_choices(line[: begin[0]], line[end:])
    n, width = shape.tolist()
    return None if r is None else (r, ids[: n * width].reshape(n, width))


def _choices_at(line: bytes) -> tuple[int, int] | None:
    """Where the key of the choices and where they begin; None of a line that does not end as an
    object does: without that a scan might leave the bytes."""
    found = _CHOICES.search(line) if line.endswith(b"}") else None
    return None if found is None else found.span()


def _without_choices(before: bytes, after: bytes) -> Record | None:
    """The call of a line that the choices were taken out of; None where they are not all."""
    if _KEY in before or _KEY in after:
        return None
    try:
        r = _DECODER.decode(before + b'"top_indices": [[%d]]' % _NUMBER + after)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return r if r.top_indices == [[_NUMBER]] else None


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
