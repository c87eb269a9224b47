"""Small real files of every format for the fuzz harness, cut down so that a parse takes moments."""

from __future__ import annotations

import functools
import gzip
import io
import json
import os
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[2]
MOST_LINES_BYTES = 24_000
MOST_EVENTS = 60


ARCHIVES = "(archives)"
"""Stands where a format would, for files that are containers of others."""


class Fixture(NamedTuple):
    """A file to mutate (`files` has one entry named "") or a bundle of several."""

    name: str
    format: str
    files: dict[str, bytes]
    rank: int | None = None


def traces() -> Path | None:
    """The folder of real traces, if it is there."""
    for candidate in (os.environ.get("RETIME_TRACES"), ROOT.parent / "shared" / "traces"):
        if candidate and Path(candidate).is_dir():
            return Path(candidate)
    return None


@functools.cache
def load() -> tuple[Fixture, ...]:
    """Every fixture, by name; those from real traces only where these are."""
    import fixtures_formats  # noqa: F401

    found: list[Fixture] = []
    here = traces()
    for make in _MAKERS:
        found += list(make(here))
    return tuple(found)


_MAKERS: list[Callable[[Path | None], Iterator[Fixture]]] = []


def maker(make):
    """Registers a function from the folder of traces (or None) to fixtures."""
    _MAKERS.append(make)
    return make


def plain(path: Path) -> bytes:
    """A file's bytes, decompressed."""
    data = path.read_bytes()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def top(path: Path, most: int = MOST_LINES_BYTES) -> bytes:
    """The first lines of a text file."""
    data = plain(path)
    return data[: data.rfind(b"\n", 0, most) + 1] if len(data) > most else data


def fewer(path: Path, key: str, most: int = MOST_EVENTS) -> bytes:
    """A JSON file with a long list cut to a sample that keeps both ends."""
    whole = json.loads(plain(path))
    rows = whole[key]
    keep = rows[: most // 2] + rows[len(rows) // 2 : len(rows) // 2 + most // 2]
    return json.dumps({**whole, key: keep}, indent=1).encode()


@maker
def kineto(here: Path | None) -> Iterator[Fixture]:
    demo = sorted((ROOT / "analysis" / "demo_job").glob("*.json.gz"))[0]
    yield Fixture("kineto-h100", "kineto", {"": fewer(demo, "traceEvents")})
    if here is None:
        return
    hta = here / "kineto" / "HolisticTraceAnalysis"
    nccl = hta / "nccl_parser_config" / "nccl_data.json.gz"
    yield Fixture("kineto-nccl", "kineto", {"": fewer(nccl, "traceEvents")})
    cpu = min((hta / "cpu_only").glob("*.json.gz"))
    yield Fixture("kineto-cpu", "kineto", {"": plain(cpu)})
    amd = min((hta / "amd_trace").glob("*.json.gz"))
    yield Fixture("kineto-rocm", "kineto", {"": fewer(amd, "traceEvents")}, 0)
    yield Fixture("kineto-gz", "kineto", {"": cpu.read_bytes()})


@maker
def archives(here: Path | None) -> Iterator[Fixture]:
    files = {"a/rank0.json": b'{"traceEvents": []}' * 40, "b.json.gz": gzip.compress(b"{}" * 99)}
    for mode in ("w", "w:gz"):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode=mode) as tar:
            for name, data in files.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
        yield Fixture(f"archive-{mode}", ARCHIVES, {"": out.getvalue()})
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
        for name, data in files.items():
            z.writestr(name, data)
    yield Fixture("archive-zip", ARCHIVES, {"": out.getvalue()})


@maker
def recorded(here: Path | None) -> Iterator[Fixture]:
    if here is None:
        return
    path = here / "straggler" / "StragglerAnalysis" / "trace-ST.parquet"
    out = io.BytesIO()
    pq.write_table(pq.read_table(path).slice(0, 300), out, compression="none")
    yield Fixture("recorded-st", "recorded", {"": out.getvalue()})


def members(path: Path) -> Iterator[tuple[str, bytes]]:
    """The files of a tar, small ones first."""
    with tarfile.open(path) as tar:
        for info in sorted((m for m in tar if m.isreg()), key=lambda m: m.size):
            data = tar.extractfile(info)
            if data is not None:
                yield info.name, data.read()
