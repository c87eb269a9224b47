"""Makes one input: `python -m benchmarks.suite.make WHAT ...`, as `inputs.Inputs` asks for it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def tiled(path: str, size: str) -> None:
    """A trace of about so many bytes."""
    from benchmarks.tiled import write_tiled

    with _whole(path) as part:
        write_tiled(part, int(float(size)))


def gzipped(path: str, packed: str) -> None:
    """The file's bytes in gzip at level 6."""
    import zlib

    with _whole(packed) as part, open(path, "rb") as source, open(part, "wb") as f:
        packer = zlib.compressobj(6, zlib.DEFLATED, 31)
        while block := source.read(8 << 20):
            f.write(packer.compress(block))
        f.write(packer.flush())


def generated(folder: str, ranks: str, steps: str) -> None:
    """The made-up job of `benchmarks.scale`."""
    from benchmarks.scale.generate import generate
    from benchmarks.scale.shape import shaped

    with _whole(folder) as part:
        generate(part, shaped(int(ranks), steps=int(steps)), len(os.sched_getaffinity(0)))


def warehouse(folder: str, hosts: str, events: str) -> None:
    """A job of many ranks as tables, without traces."""
    from benchmarks.cluster_job import make

    with _whole(folder) as part:
        make(part, "cluster", int(hosts), int(events))


def ingested(folder: str, source: str) -> None:
    """What `retime ingest` makes of a folder."""
    import retime

    with _whole(folder) as part:
        retime.open(str(part)).ingest([source], job="cluster")


def grown(folder: str, small: str, times: str) -> None:
    """A job so many times side by side, with its derived tables and what a replay gives."""
    import retime

    from benchmarks.grown import grow

    with _whole(folder) as part:
        grow(Path(small), part, "cluster", int(times))
        retime.open(str(part)).analyse("cluster")


def routing(folder: str, form: str, tokens: str) -> None:
    """One file of a form of `benchmarks.tables_made`."""
    from benchmarks.tables_made import FORMS

    name, write, weights = next((f[1], f[2], f[3]) for f in FORMS if f[0] == form)
    with _whole(folder) as part:
        path = part / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, int(tokens), weights)


def inspector(path: str, steps: str) -> None:
    """One rank's records; the job's traces are not kept."""
    import gzip
    import shutil
    import tempfile

    from benchmarks.scale.generate import generate
    from benchmarks.scale.shape import shaped

    with _whole(path) as part, tempfile.TemporaryDirectory(dir=part.parent) as scratch:
        generate(Path(scratch) / "job", shaped(16, steps=int(steps)))
        first = min(Path(scratch).rglob("rank0.inspector.log.gz"))
        with gzip.open(first) as packed, open(part, "wb") as f:
            shutil.copyfileobj(packed, f)


def repeated(path: str, longer: str, copies: str) -> None:
    """A text so many times."""
    text = Path(path).read_bytes()
    with _whole(longer) as part, open(part, "wb") as f:
        for _ in range(int(copies)):
            f.write(text)


def nsys(path: str, longer: str, copies: str) -> None:
    """A longer run, by `benchmarks.tables_made`."""
    from benchmarks.tables_made import write_nsys

    with _whole(longer) as part:
        write_nsys(part, Path(path), int(copies))


def warm(*traces: str) -> None:
    """Ingests the traces, and waits until what is compiled beside an ingest is kept."""
    import tempfile
    import time

    import retime
    from retime.ingest import caches

    with tempfile.TemporaryDirectory() as folder:
        for path in traces:
            retime.open(folder).ingest([path], job=Path(path).stem)
    end = time.monotonic() + 120
    while time.monotonic() < end and any(caches.folder().glob("*.making")):
        time.sleep(0.2)


def in_notebooks() -> None:
    """Prints the public views that the notebooks ask more than once."""
    from .ways.queries import in_notebooks as names

    print(" ".join(names()))


@contextmanager
def _whole(goal: str) -> Iterator[Path]:
    """A place to write to, which gets its name when all of it is there."""
    part = Path(goal).with_name(f".part-{Path(goal).name}")
    yield part
    part.rename(goal)


MAKERS = (tiled, gzipped, generated, warehouse, ingested, grown, routing, inspector, repeated, nsys,
          warm, in_notebooks)  # fmt: skip

if __name__ == "__main__":
    {f.__name__: f for f in MAKERS}[sys.argv[1]](*sys.argv[2:])
