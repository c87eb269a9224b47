"""Which reader a trace gets: the compiled scan, the one that starts at once, or one after another.

The rows are the same. Machine code that is kept loads in a fiftieth of a second. Where there is
none, small traces do without it, and large ones are begun without it while a process makes it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from typing import Protocol, cast

from .. import machine_code
from ..schema import Problem
from ..sources import Source
from .blocks import BATCH_ROWS, BLOCK_BYTES, ByteStream, Window, read_array
from .bytescan_code import CODE
from .rawbatch import BatchBuilder, Envelope, ProblemTally, RawBatch, Symbols

WORTH_LOADING_BYTES = 512 << 10
"""From so many bytes (decompressed, estimated) on, loading machine code that is kept pays."""

WORTH_COMPILING_BYTES = 24 << 20
"""From so many on, making it pays, beside reading them without."""

USUAL_RATIO = 14
"""Decompressed to compressed size of a Kineto trace, for that estimate."""


class Reader(Protocol):
    """What gives the batches of a stream: see `scanner.read_events`."""

    def __call__(
        self,
        stream: ByteStream,
        envelope: Envelope,
        on_problem: Callable[[Problem], None],
        *,
        call_texts: bool = False,
    ) -> Generator[RawBatch]: ...


def prepare(n_bytes: int) -> None:
    """Told how many (decompressed) bytes this process is about to parse, in all files together.

    Many small files are worth the compiled scan's start as much as one large one.
    """
    if n_bytes < WORTH_LOADING_BYTES:
        return
    if machine_code.load(CODE) is None and n_bytes >= WORTH_COMPILING_BYTES:
        machine_code.start(CODE)


def reader(source: Source) -> tuple[Reader, bool]:
    """The reader for a source, and whether it is one that runs beside its consumer."""
    size = source.size_bytes * (USUAL_RATIO if source.compressed else 1)
    if size >= WORTH_LOADING_BYTES or machine_code.is_loaded(CODE) or _compiled_here():
        if machine_code.load(CODE) is not None or _compiled_here():
            from . import scanner

            return cast(Reader, scanner.read_events), True
        if machine_code.is_making(CODE) or (
            size >= WORTH_COMPILING_BYTES and machine_code.start(CODE)
        ):
            return cast(Reader, read_both), True
        if size >= WORTH_COMPILING_BYTES:
            from . import scanner

            return cast(Reader, scanner.read_events), True
    from . import quick

    return cast(Reader, quick.read_events), False


def _compiled_here() -> bool:
    """Whether numba is there already, or wanted."""
    return f"{__package__}.bytescan" in sys.modules


def read_both(
    stream: ByteStream,
    envelope: Envelope,
    on_problem: Callable[[Problem], None],
    *,
    batch_rows: int = BATCH_ROWS,
    block_bytes: int = BLOCK_BYTES,
    call_texts: bool = False,
    ready: Callable[[], bool] | None = None,
) -> Generator[RawBatch]:
    """As `quick.read_events`, and from the batch on at whose start the code is there, compiled.

    `ready` says whether it is.
    """
    from . import quick

    symbols = Symbols()
    builder = BatchBuilder(batch_rows, call_texts)
    tally = ProblemTally()
    steps = quick.steps(symbols, builder, tally, block_bytes)
    waiting = True

    def scan(window: Window, pos: int) -> tuple[int, int]:
        nonlocal steps, waiting
        if waiting and not builder.n and (ready or _ready)():
            from . import scanner

            steps, waiting = scanner.steps(symbols, builder, tally), False
        return steps.scan(window, pos)

    def take() -> RawBatch:
        return steps.take()

    return read_array(stream, envelope, on_problem, scan, builder, take, tally, block_bytes)


def _ready() -> bool:
    # A maker that failed leaves it to this process, which can say why.
    return machine_code.load(CODE) is not None or not machine_code.is_making(CODE)
