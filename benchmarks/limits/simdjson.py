"""What C++ simdjson makes of the same file: its scan alone, and with the same Parquet writer.

    python -m benchmarks.limits.simdjson FILE [--scan]

The C++ program (`simdjson_scan.cpp`) is compiled at first use, into the temporary folder, where a
compiler and simdjson's header are there (Debian: g++ and libsimdjson-dev).
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import numpy as np
from retime.ingest.kineto import jsontext, parser
from retime.ingest.kineto.blocks import BATCH_ROWS
from retime.ingest.kineto.envelope import Envelope
from retime.ingest.kineto.rawbatch import (
    FIELDS,
    INT_COLUMNS,
    SYM_COLUMNS,
    BatchBuilder,
    RawBatch,
    Symbols,
)
from retime.ingest.sources import find_sources
from retime.ingest.writer import PartWriter

_SOURCE = Path(__file__).with_name("simdjson_scan.cpp")
_KINDS = {"char": 0, "sym": 1, "us": 2, "int": 3, "id": 4, "product": 5}
_ARGS = 6


def available() -> str | None:
    """Why there is no simdjson to compare with; None where there is one."""
    try:
        _library()
    except RuntimeError as e:
        return str(e)
    return None


@functools.cache
def _library() -> ctypes.CDLL:
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        raise RuntimeError("no C++ compiler (g++ or clang++) on the path")
    digest = hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:16]
    built = Path(tempfile.gettempdir()) / f"retime-simdjson-{os.getuid()}-{digest}.so"
    if not built.exists():
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "scan.so"
            flags = ["-O3", "-march=native", "-std=c++17", "-shared", "-fPIC"]
            done = subprocess.run(
                [compiler, *flags, str(_SOURCE), "-o", str(out), "-lsimdjson"],
                capture_output=True,
                text=True,
            )
            if done.returncode:
                lines = [x for x in done.stderr.splitlines() if "error" in x] or ["it failed"]
                raise RuntimeError(f"simdjson does not compile ({lines[0]}): libsimdjson-dev?")
            shutil.move(out, built)
    library = ctypes.CDLL(str(built))
    library.simdjson_open.restype = ctypes.c_void_p
    library.simdjson_next.restype = library.simdjson_symbols.restype = ctypes.c_int64
    return library


def _keys() -> bytes:
    lines = []
    for f in FIELDS:
        row = (
            0
            if f.kind == "char"
            else (SYM_COLUMNS if f.kind == "sym" else INT_COLUMNS).index(f.column)
        )
        text = SYM_COLUMNS.index(f.column + "_sym") if f.kind == "id" else 0
        lines.append(f"{f.where} {_KINDS[f.kind]} {row} {text} {f.key}\n")
    return "".join([*lines, f"0 {_ARGS} 0 0 args\n"]).encode()


def _batches(path: str, take: Callable[[BatchBuilder, ctypes.c_void_p], object]) -> Iterator:
    """Batches that simdjson filled, as `take` gives them. Raises ValueError for odd text."""
    library = _library()
    scan = ctypes.c_void_p(
        library.simdjson_open(os.fsencode(path), _keys(), len(INT_COLUMNS) + 1, len(SYM_COLUMNS))
    )
    if not scan:
        raise ValueError(f"{path}: simdjson finds no events in it")
    builder = BatchBuilder(BATCH_ROWS)

    def pointer(array: np.ndarray) -> ctypes.c_void_p:
        return array.ctypes.data_as(ctypes.c_void_p)

    try:
        while True:
            n = library.simdjson_next(
                scan, pointer(builder.ph), pointer(builder.ints), pointer(builder.syms),
                ctypes.c_int64(builder.capacity),
            )  # fmt: skip
            if n < 0:
                raise ValueError(f"{path}: text that simdjson refuses")
            if n == 0:
                return
            builder.n = n
            yield take(builder, scan)
    finally:
        library.simdjson_close(scan)


def _no_columns(builder: BatchBuilder, scan: ctypes.c_void_p) -> int:
    n, builder.n = builder.n, 0
    return n


def scan_seconds(path: str | Path) -> float:
    """Seconds for all declared fields of a trace into columns, and nothing with them."""
    _library()
    start = time.perf_counter()
    for _ in _batches(str(path), _no_columns):
        pass
    return time.perf_counter() - start


class _Texts:
    """simdjson's own codes of strings to those of `symbols`."""

    def __init__(self) -> None:
        self.symbols = Symbols()
        self.remap = np.full(1, -1, np.int32)

    def batch(self, builder: BatchBuilder, scan: ctypes.c_void_p) -> RawBatch:
        arena, offsets = ctypes.c_void_p(), ctypes.POINTER(ctypes.c_int64)()
        n = _library().simdjson_symbols(scan, ctypes.byref(arena), ctypes.byref(offsets))
        known = len(self.remap) - 1
        new = np.empty(n + 1, np.int32)
        new[:known] = self.remap[:known]
        for i in range(known, n):
            start, end = offsets[i], offsets[i + 1]
            raw = ctypes.string_at((arena.value or 0) + start, end - start)
            new[i] = self.symbols.code(jsontext.decode_text(raw)[0])
        new[n] = -1
        self.remap = new
        return builder.take(self.symbols, new)


def scan_and_write_seconds(path: str | Path) -> float:
    """Seconds from the file to finished, synced Parquet parts, simdjson in the scan's place.

    The same conversion to tables and the same writer; no digest of the source, no commit, no
    derived tables. Pin the process to one core to compare with an ingest on one core.
    """
    _library()
    source = next(iter(find_sources([str(path)], lambda name, problem: None)))

    def read_events(
        stream, envelope: Envelope, on_problem, *, call_texts: bool
    ) -> Iterator[RawBatch]:
        envelope.head = source.head().partition(b'"traceEvents"')[0] + b'"traceEvents": '
        envelope.tail = b"}"
        return _batches(str(path), _Texts().batch)

    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(parser, "reader", return_value=(read_events, False)),
    ):
        start = time.perf_counter()
        writer = PartWriter(Path(folder))
        for table, batch in parser.parse(source, rank=0):
            writer.write(table, batch)
        writer.close()
        return time.perf_counter() - start


def main() -> None:
    """Prints the seconds of one file."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("path", type=Path)
    options.add_argument("--scan", action="store_true", help="the scan alone")
    args = options.parse_args()
    why_not = available()
    if why_not is not None:
        raise SystemExit(why_not)
    seconds = (scan_seconds if args.scan else scan_and_write_seconds)(args.path)
    print(f"seconds {seconds:.4f}  {args.path.stat().st_size / 1e6 / seconds:.0f} MB/s")


if __name__ == "__main__":
    main()
