"""Ingest of Kineto traces: real ones tiled to sizes, made-up ones, and a folder of real ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.suite.case import LIMIT, OURS, OUT, PEER, Bound, Case, Ratio, Way, cli, stage, way
from benchmarks.suite.inputs import Inputs, without

ONE, TWO = "retime, warm, 1 core", "retime, warm, 2 cores"
ONE_GZ, TWO_GZ = "retime, warm, 1 core, from gzip", "retime, warm, 2 cores, from gzip"
COLD = ", file on disk alone"
"""Behind a name: the system's cache has nothing of the file when the clock starts."""
HASHED, INFLATED = "reading and hashing the file", "reading, hashing and inflating it from gzip"
CLI_ONE, CLI_TWO = "retime ingest, 1 core", "retime ingest, 2 cores"
SCANNED, WRITTEN = "C++ simdjson, to columns", "C++ simdjson, to Parquet"
HTA, DUCKDB = "HolisticTraceAnalysis", "plain DuckDB"
MAX_BYTES = 500e6
OBVIOUS_MB = 100
"""What pandas and Polars are given at most: they hold ten times that, and more."""


@stage("ingest")
def tiled(inputs: Inputs) -> Iterator[Case]:
    """The bundled job's first rank, again and again."""
    sizes = (0.5, 1, 2) if inputs.tiny else (10, 80) if inputs.quick else (10, 80, 400)
    for mb in sizes:
        if not inputs.wants(name := f"ingest, Kineto, {mb:g} MB"):
            continue
        path, small = inputs.tiled(mb), inputs.tiled(sizes[0])
        packed = inputs.gzipped(path)
        n = path.stat().st_size / 1e6
        no_hta = without("hta", HTA)
        peers = [
            Way(HTA, PEER, way("ingest.hta", path), 1, rounds=1 if mb > OBVIOUS_MB else None,
                missing=no_hta),
            Way(DUCKDB, PEER, way("ingest.duckdb", path, OUT), 2),
        ]  # fmt: skip
        if mb <= OBVIOUS_MB:
            peers += [
                Way("plain pandas", PEER, way("ingest.pandas", path, OUT), 1, rounds=1,
                    missing=without("pandas")),
                Way("plain Polars", PEER, way("ingest.polars", path, OUT), 2, rounds=1),
            ]  # fmt: skip
        limits = _limits(inputs, path, packed, small)
        yield Case(
            name, "ingest", n, "MB",
            # Reads come first: no way finds the file out of the system's cache.
            (*limits[:4], *_ours(path, packed, small), *peers, *limits[4:],
             *_cold(inputs, path, packed, small)),
            (*_ratios(mb), *_by_limits(mb)),
            tuple(Bound(w, "peak_bytes", MAX_BYTES, "under 500 MB whatever the size")
                  for w in (ONE, TWO, CLI_TWO, ONE_GZ, TWO_GZ)),
            growth="" if mb < 400 else "ingest, Kineto", grows=(ONE, CLI_TWO),
        )  # fmt: skip
    yield from _growing(inputs)


def _ours(path: Path, packed: Path, small: Path) -> list[Way]:
    return [
        Way(ONE, OURS, way("ingest.ours", path, small, OUT, 1), 1, "inside_s"),
        Way(TWO, OURS, way("ingest.ours", path, small, OUT, 2), 2, "inside_s"),
        Way(ONE_GZ, OURS, way("ingest.ours", packed, small, OUT, 1), 1, "inside_s"),
        Way(TWO_GZ, OURS, way("ingest.ours", packed, small, OUT, 2), 2, "inside_s"),
        *(Way(name, OURS, cli("ingest", path, "--job", "big", "--warehouse", OUT, "--workers", k),
              k)
          for name, k in ((CLI_ONE, 1), (CLI_TWO, 2))),
    ]  # fmt: skip


def _cold(inputs: Inputs, path: Path, packed: Path, small: Path) -> list[Way]:
    """Our ways of a file that lies on disk alone, as what was just uploaded may."""
    missing = inputs.no_cold(path)
    return [
        Way(name + COLD, OURS, way("ingest.cold", file, small, OUT, k), k, "inside_s",
            missing=missing)
        for name, file, k in ((ONE, path, 1), (ONE_GZ, packed, 1), (TWO, path, 2),
                              (TWO_GZ, packed, 2))
    ]  # fmt: skip


def _limits(inputs: Inputs, path: Path, packed: Path, small: Path) -> list[Way]:
    missing = without("simdjson", "pysimdjson")
    simdjson = inputs.no_simdjson
    return [
        Way("reading the file", LIMIT, way("limits.files.read", path), 1, "inside_s"),
        Way("inflating it from gzip", LIMIT, way("limits.files.inflate", packed), 1, "inside_s"),
        Way(HASHED, LIMIT, way("limits.files.read_hashed", path), 1, "inside_s"),
        Way(INFLATED, LIMIT, way("limits.files.inflate_hashed", packed), 1, "inside_s"),
        Way("simdjson, parsed only", LIMIT, way("limits.files.simdjson_dom", path), 1, "inside_s",
            missing=missing),
        Way(SCANNED, LIMIT, way("limits.files.simdjson_scan", path, small), 1, "inside_s",
            missing=simdjson),
        Way(WRITTEN, LIMIT, way("limits.files.simdjson_write", path, small), 1, "inside_s",
            missing=simdjson),
    ]  # fmt: skip


def _ratios(mb: float) -> list[Ratio]:
    large, middle = mb >= 400, mb in (10, 80)
    return [
        Ratio(ONE, HTA, 40 if large else None, "40 times the peer, one core", "inside_s"),
        Ratio(TWO, HTA, 75 if large else None, "75 times the peer, two cores", "inside_s"),
        Ratio(CLI_TWO, HTA, 35 if large else 1 if middle else None,
              "35 times the peer, whole process" if large else "ahead of the peer", "wall_s"),
        Ratio(CLI_ONE, HTA, clock="wall_s"),
        Ratio(CLI_TWO, DUCKDB, 1 if middle else None, "ahead of a plain DuckDB read", "wall_s"),
        Ratio(TWO, DUCKDB, clock="inside_s"),
        Ratio(ONE_GZ, ONE, 1, "gzip no slower than plain", instead=(HASHED, INFLATED)),
        Ratio(TWO_GZ, TWO),
        *(Ratio(gz + COLD, plain + COLD) for gz, plain in ((ONE_GZ, ONE), (TWO_GZ, TWO))),
        *((Ratio(CLI_TWO, peer, clock="wall_s") for peer in ("plain pandas", "plain Polars"))
          if mb <= OBVIOUS_MB else ()),
    ]  # fmt: skip


def _by_limits(mb: float) -> list[Ratio]:
    return [
        Ratio(ONE, "reading the file"),
        Ratio(ONE_GZ, "inflating it from gzip"),
        Ratio(ONE, "simdjson, parsed only"),
        Ratio(ONE, SCANNED),
        Ratio(ONE, WRITTEN, 0.9 if mb >= 400 else None, "0.9 of C++ simdjson to Parquet"),
    ]


def _growing(inputs: Inputs) -> Iterator[Case]:
    """A quarter and a sixteenth of the largest size, ours alone."""
    sizes = (0.5, 2) if inputs.tiny else (5, 20, 80) if inputs.quick else (25, 100)
    for mb in sizes:
        if not inputs.wants(name := f"ingest, Kineto, {mb:g} MB, for growth"):
            continue
        path, small = inputs.tiled(mb), inputs.tiled(0.5 if inputs.tiny else 10)
        ways = {w.name: w for w in _ours(path, path, small)}
        yield Case(
            name, "ingest", path.stat().st_size / 1e6, "MB",
            tuple(ways[n] for n in (ONE, CLI_TWO)), growth="ingest, Kineto", grows=(ONE, CLI_TWO),
        )  # fmt: skip


@stage("ingest")
def generated(inputs: Inputs) -> Iterator[Case]:
    """A host of a made-up job: eight gzipped traces, written by what knows their truth."""
    for steps in (1,) if inputs.tiny else (2,) if inputs.quick else (1, 4, 16):
        if not inputs.wants(name := f"ingest, made-up host, {steps} steps"):
            continue
        folder = inputs.generated(16, steps)
        host = min(p for p in folder.iterdir() if p.is_dir())
        files = sorted(host.glob("*.json.gz"))
        ours = cli("ingest", *files, "--job", "made", "--warehouse", OUT, "--workers", 2)
        packed = sum(f.stat().st_size for f in files) / 1e6
        yield Case(
            name, "ingest", packed, "MB of gzip",
            (Way(CLI_TWO, OURS, ours, 2),
             Way(HTA, PEER, way("ingest.hta", *files), 1, missing=without("hta", HTA), rounds=1)),
            (Ratio(CLI_TWO, HTA, clock="wall_s"),),
            growth="ingest, made-up host", grows=(CLI_TWO,),
        )  # fmt: skip


@stage("ingest")
def real(inputs: Inputs) -> Iterator[Case]:
    """Kineto files of a folder that is given, each a job of its own."""
    if inputs.traces is None:
        return
    files = sorted(
        f for f in inputs.traces.rglob("*.json*")
        if f.suffix in (".json", ".gz") and f.stat().st_size > 100_000 and "kineto" in str(f)
    )  # fmt: skip
    if not files:
        return
    name = "retime, warm, 1 core"
    yield Case(
        f"ingest, {len(files)} real files, one by one", "ingest",
        sum(f.stat().st_size for f in files) / 1e6, "MB as they lie",
        (Way(name, OURS, way("ingest.each", OUT, *files), 1, "inside_s"),
         Way(HTA, PEER, way("ingest.hta_each", *files), 1, "inside_s",
             missing=without("hta", HTA))),
        (Ratio(name, HTA),),
    )  # fmt: skip
