"""What a file costs before anything is known of it: its bytes, inflated, and parsed as JSON."""

from __future__ import annotations

import hashlib
import io
import os
from typing import Any

from benchmarks.suite.clock import timed

BLOCK = 8 << 20
SMALL = 512 << 10
"""Stays in the cache: what a limit needs less of, none has to have."""


def read(path: str) -> dict[str, Any]:
    """Every byte read and added up, in blocks."""
    import numpy as np

    def go() -> tuple[int, int]:
        block, whole, total = bytearray(BLOCK), 0, 0
        with open(path, "rb", buffering=0) as f:
            while n := f.readinto(block):
                words = np.frombuffer(block, np.uint64, n // 8)
                total ^= int(np.bitwise_xor.reduce(words)) if len(words) else 0
                whole += n
        return whole, total

    n, _ = timed(go)
    return {"rows": n}


def inflate(path: str) -> dict[str, Any]:
    """A gzip file inflated, in blocks, with the library that retime inflates with."""
    from isal import igzip

    def go() -> int:
        whole = 0
        with igzip.open(path, "rb") as f:
            while block := f.read(BLOCK):
                whole += len(block)
        return whole

    return {"rows": timed(go)}


class _Hashed(io.RawIOBase):
    """A file of which all that is read is hashed."""

    def __init__(self, file: io.FileIO):
        self._file = file
        self._hash = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]
        n = self._file.readinto(view)
        self._hash.update(view[:n])
        return n


def read_hashed(path: str) -> dict[str, Any]:
    """Every byte read, in blocks, and hashed with SHA-256: a source is known by that."""

    def go() -> int:
        block, whole, digest = memoryview(bytearray(SMALL)), 0, hashlib.sha256()
        with open(path, "rb", buffering=0) as f:
            while n := f.readinto(block):
                digest.update(block[:n])
                whole += n
        return whole

    return {"rows": timed(go)}


def inflate_hashed(path: str) -> dict[str, Any]:
    """The same of a gzip file as it is stored, and inflated."""
    from isal import igzip

    def go() -> int:
        block, whole = bytearray(SMALL), 0
        with io.FileIO(path) as stored, igzip.IGzipFile(fileobj=_Hashed(stored)) as f:
            while n := f.readinto(block):
                whole += n
        return whole

    return {"rows": timed(go)}


def forget(path: str) -> None:
    """Has the system let go of what it holds of a file, which is written to disk first."""
    with open(path, "rb") as f:
        os.fsync(f.fileno())
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def held_bytes(path: str) -> int:
    """How much of a file the system holds in memory."""
    import ctypes
    import mmap

    import numpy as np

    size = os.path.getsize(path)
    pages = np.zeros(-(-size // mmap.PAGESIZE), np.uint8)
    with open(path, "rb") as f, mmap.mmap(f.fileno(), size, access=mmap.ACCESS_READ) as m:
        there = np.frombuffer(m, np.uint8)
        libc = ctypes.CDLL(None, use_errno=True)
        failed = libc.mincore(
            ctypes.c_void_p(there.ctypes.data), ctypes.c_size_t(size),
            ctypes.c_void_p(pages.ctypes.data),
        )  # fmt: skip
        del there  # or the map cannot be closed
    if failed:
        raise OSError(ctypes.get_errno(), "mincore", path)
    return int(np.count_nonzero(pages & 1)) * mmap.PAGESIZE


def forgotten_there(path: str) -> dict[str, Any]:
    """Raises SystemExit, which says why, where the system does not let go of a file."""
    with open(path, "rb") as f:
        f.read(1 << 20)
    forget(path)
    if held_bytes(path) > min(1 << 18, os.path.getsize(path) // 2):
        raise SystemExit("the system keeps files of this file system in memory")
    return {"seconds": 0.0}


def simdjson_dom(path: str) -> dict[str, Any]:
    """A file in memory parsed into simdjson's tape, nothing made of it (the package pysimdjson)."""
    import simdjson

    with open(path, "rb") as f:
        data = f.read()
    parser = simdjson.Parser()
    document: Any = None

    def go() -> None:
        nonlocal document
        document = parser.parse(data)

    timed(go)
    return {"rows": len(document["traceEvents"])}


def simdjson_scan(path: str, small: str) -> dict[str, Any]:
    """C++ simdjson on demand: the fields that retime declares into columns, nothing written."""
    from benchmarks.limits import simdjson

    simdjson.scan_seconds(small)
    return {"seconds": simdjson.scan_seconds(path)}


def simdjson_write(path: str, small: str) -> dict[str, Any]:
    """The same scan with retime's conversion to tables and its Parquet writer behind it."""
    from benchmarks.limits import simdjson

    simdjson.scan_and_write_seconds(small)
    return {"seconds": simdjson.scan_and_write_seconds(path)}


def sqlite_copy(path: str) -> dict[str, Any]:
    """The tables of an Nsight export that grow, row by row from sqlite3, into DuckDB in memory."""
    import sqlite3

    import duckdb
    import pyarrow as pa

    from benchmarks.tables_made import NSYS_TABLES

    source = sqlite3.connect(f"file:{path}?mode=ro", uri=True)

    def go() -> int:
        con, whole = duckdb.connect(), 0
        for name in NSYS_TABLES:
            rows = source.execute(f'SELECT * FROM "{name}"')
            names = [d[0] for d in rows.description]
            columns = list(zip(*rows.fetchall(), strict=True))
            table = pa.table(dict(zip(names, columns, strict=True)))
            con.register("arrow", table)
            con.execute(f'CREATE TABLE "{name}" AS FROM arrow')
            con.unregister("arrow")
            whole += table.num_rows
        return whole

    return {"rows": timed(go)}


def simdjson_there() -> dict[str, Any]:
    """Raises SystemExit, which says why, where C++ simdjson cannot be compared with."""
    from benchmarks.limits import simdjson

    why = simdjson.available()
    if why is not None:
        raise SystemExit(why)
    return {"seconds": 0.0}
