"""Mutated fixtures through every parser: rows plus problems, or a clean refusal, and nothing else.

`python tests/fuzz/harness.py --mutations 10000` runs so many for each format and prints a table;
`--format NAME` only one; `--seed N` starts elsewhere. A mutation that ends otherwise (a traceback,
more than 10 s, more than 1 GB) is printed with its fixture and seed, and
`--only FIXTURE:SEED` runs it again with the traceback.
"""

from __future__ import annotations

import argparse
import faulthandler
import io
import json
import resource
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parent))

import fixtures
import mutate
from retime.ingest import detect, dims, steps, transfers
from retime.ingest.bundles import NoBytes
from retime.ingest.errors import RetimeError
from retime.ingest.joining import join
from retime.ingest.joining.ranks import one_a_rank, ranks_with_times
from retime.ingest.matching import resolve
from retime.ingest.schema import TABLES
from retime.ingest.settings import Settings
from retime.ingest.source import Source
from retime.ingest.sources import find_sources

MOST_SECONDS = 10
MOST_BYTES = 1 << 30
DERIVE_EACH = 5
"""Of so many mutations one is derived, too: that takes longer than most parsers."""


@dataclass(frozen=True)
class Bytes:
    """Opens bytes in memory."""

    data: bytes

    def __call__(self):
        return io.BytesIO(self.data)


@dataclass
class Outcome:
    """What became of the mutations of one fixture."""

    rows: int = 0
    problems: int = 0
    refused: int = 0
    slowest_s: float = 0.0
    peak_bytes: int = 0
    failures: list[str] = field(default_factory=list)


def source_of(name: str, files: dict[str, bytes]) -> Source:
    """A source over bytes: one file, or a bundle of several."""
    made = [
        Source(
            f"{name}/{inner}" if inner else name,
            len(data),
            Bytes(data),
            compressed=data[:2] == b"\x1f\x8b",
        )
        for inner, data in files.items()
    ]
    if len(made) == 1 and "" in files:
        return made[0]
    return Source(name, sum(m.size_bytes for m in made), NoBytes(name), members=tuple(made))


def read_all(
    format: str, source: Source, rank: int | None, derive: bool = False
) -> tuple[int, int]:
    """(rows, problems) of a source; raises what its parser raises, and ValueError for bad rows.

    With `derive` the derived tables are made of the rows, too.
    """
    rows = problems = 0
    kept: dict[str, list[pa.RecordBatch]] = {}
    if format == fixtures.ARCHIVES:
        return _read_archive(source)
    # Once, as detection does: the head of a damaged stream takes its time.
    head = b"" if source.members else source.head(detect.HEAD_BYTES)
    for other in detect.FORMATS:
        if not source.members:
            reader = detect.parser(other)
            reader.looks_like(head, source.name)
            further = getattr(reader, "looks_like_further", None)
            if further is not None:
                further(source)
    detect.peek_rank(source, format)
    for table, batch in detect.parser(format).parse(source, rank=rank):
        if batch.schema != TABLES[table].schema:
            raise ValueError(f"a batch of {table} has another schema")
        batch.validate(full=True)
        if table == "problems":
            problems += batch.num_rows
        else:
            rows += batch.num_rows
            _sensible(table, batch)
            if table in DERIVED_FROM:
                kept.setdefault(table, []).append(batch)
    if derive:
        _derive(format, kept)
    return rows, problems


DERIVED_FROM = ("collectives", "ranks", "comms", "steps", "transfers")
"""Tables whose rows the derived ones are made of: an odd row must not end a whole job's making."""


def _derive(format: str, kept: dict[str, list[pa.RecordBatch]]) -> None:
    """The derived tables of one source's rows, as an ingest of it alone makes them."""
    tables = {
        t: pa.Table.from_batches(kept.get(t, []), TABLES[t].schema).unify_dictionaries()
        for t in DERIVED_FROM
    }
    ranks, _ = one_a_rank(
        tables["ranks"], [format] * len(tables["ranks"]), ranks_with_times(tables["collectives"])
    )
    joined = join(tables["collectives"], ranks, tables["comms"])
    resolved = resolve(joined.collectives, joined.ranks, joined.comms, tables["steps"])
    found = steps.find(tables["steps"], resolved.collectives, [])
    dims.decide(resolved.comms, found.collectives, resolved.ranks, found.steps, None, Settings())
    moved, _ = transfers.derived(tables["transfers"], joined, found.collectives)
    if len(moved) != len(tables["transfers"]):
        raise ValueError("a transfer was lost")


def _read_archive(source: Source) -> tuple[int, int]:
    """(bytes, problems) of what an archive gives; nothing may appear on the disk."""
    problems: list = []
    n = 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "in" / "a"
        path.parent.mkdir()
        with source.open_stored() as stored:
            path.write_bytes(stored.read())
        for found in find_sources([str(path)], lambda place, p: problems.append(p)):
            found.head(100)
            with found.open() as f:
                while block := f.read(1 << 16):
                    n += len(block)
        if sorted(p.name for p in Path(folder).rglob("*")) != ["a", "in"]:
            raise ValueError("an archive wrote to the disk")
    return n, len(problems)


def _sensible(table: str, batch: pa.RecordBatch) -> None:
    """What every reader of the warehouse relies on, whatever the input was."""
    names = batch.schema.names
    if "rank" in names:
        ranks = [r for r in batch["rank"].to_pylist() if r is not None]
        if ranks and not 0 <= min(ranks) <= max(ranks) < 1 << 23:
            raise ValueError(f"{table} has a rank that is none: {min(ranks)}, {max(ranks)}")
    if table == "ranks" and batch["rank"].null_count:
        raise ValueError("a row of ranks without a rank")
    if "dur_ns" in names and table == "events":
        low = min((d for d in batch["dur_ns"].to_pylist() if d is not None), default=0)
        if low < 0:
            raise ValueError("an event that ends before it starts")
    if table == "events" and (batch["start_ns"].null_count or batch["dur_ns"].null_count):
        raise ValueError("an event without a time")


def one(fixture: fixtures.Fixture, seed: int, outcome: Outcome) -> None:
    """One mutation of a fixture, its end noted in `outcome`."""
    inner = sorted(fixture.files)[seed % len(fixture.files)]
    files = {**fixture.files, inner: mutate.mutate(fixture.files[inner], seed)}
    began = time.monotonic()
    faulthandler.dump_traceback_later(3 * MOST_SECONDS, exit=True)
    try:
        source = source_of(fixture.name, files)
        rows, problems = read_all(fixture.format, source, fixture.rank, seed % DERIVE_EACH == 0)
        outcome.rows += rows > 0
        outcome.problems += problems > 0
    except RetimeError as e:
        outcome.refused += 1
        if not str(e).strip():
            outcome.failures.append(f"{fixture.name}:{seed} refused without a word")
    except BaseException as e:
        if isinstance(e, KeyboardInterrupt):
            raise
        last = traceback.extract_tb(e.__traceback__)[-1]
        place = f"{Path(last.filename).name}:{last.lineno}"
        outcome.failures.append(
            f"{fixture.name}:{seed} {type(e).__name__} at {place}: {str(e)[:120]}"
        )
    faulthandler.cancel_dump_traceback_later()
    took = time.monotonic() - began
    outcome.slowest_s = max(outcome.slowest_s, took)
    if took > MOST_SECONDS:
        outcome.failures.append(f"{fixture.name}:{seed} took {took:.1f} s")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if peak > MOST_BYTES >= outcome.peak_bytes:
        outcome.failures.append(f"{fixture.name}:{seed} took memory to {peak >> 20} MiB")
    outcome.peak_bytes = max(outcome.peak_bytes, peak)


def run(fixture: fixtures.Fixture, seeds: range) -> Outcome:
    """So many mutations of a fixture, one after another in this process."""
    outcome = Outcome()
    for seed in seeds:
        one(fixture, seed, outcome)
    return outcome


def _worker(name: str, first: int, n: int) -> None:
    """In a process of its own: prints the outcome as JSON, and where it is on stderr."""
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    fixture = next(f for f in fixtures.load() if f.name == name)
    print(json.dumps(vars(run(fixture, range(first, first + n)))))


def main() -> int:
    """The command line: see the module's text."""
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--mutations", type=int, default=10000)
    ask.add_argument("--format")
    ask.add_argument("--seed", type=int, default=0)
    ask.add_argument("--only", metavar="FIXTURE:SEED")
    ask.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    given = ask.parse_args()
    if given.worker:
        _worker(given.worker[0], int(given.worker[1]), int(given.worker[2]))
        return 0
    known = fixtures.load()
    if given.only:
        name, _, seed = given.only.rpartition(":")
        fixture = next(f for f in known if f.name == name)
        inner = sorted(fixture.files)[int(seed) % len(fixture.files)]
        files = {**fixture.files, inner: mutate.mutate(fixture.files[inner], int(seed))}
        print(read_all(fixture.format, source_of(name, files), fixture.rank, derive=True))
        return 0
    failed = 0
    print(f"{'format':18}{'mutations':>10}{'rows':>8}{'problems':>10}{'refused':>9}"
          f"{'failed':>8}{'slowest':>10}{'peak':>10}")  # fmt: skip
    for format in sorted({f.format for f in known}):
        if given.format not in (None, format):
            continue
        mine = [f for f in known if f.format == format]
        each = -(-given.mutations // len(mine))
        whole, n = Outcome(), 0
        for fixture in mine:
            got = _in_process(fixture.name, given.seed, each)
            n += each
            whole.rows += got.rows
            whole.problems += got.problems
            whole.refused += got.refused
            whole.slowest_s = max(whole.slowest_s, got.slowest_s)
            whole.peak_bytes = max(whole.peak_bytes, got.peak_bytes)
            whole.failures += got.failures
        failed += len(whole.failures)
        print(f"{format:18}{n:10}{whole.rows:8}{whole.problems:10}{whole.refused:9}"
              f"{len(whole.failures):8}{whole.slowest_s:8.2f} s{whole.peak_bytes >> 20:6} MiB",
              flush=True)  # fmt: skip
        seen: set[str] = set()
        for text in whole.failures:
            kind = text.split(" ", 1)[1][:60]
            if kind not in seen and len(seen) < 20:
                seen.add(kind)
                print(f"    {text}")
    return 1 if failed else 0


def _in_process(name: str, first: int, n: int) -> Outcome:
    command = [sys.executable, __file__, "--worker", name, str(first), str(n)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lost = Outcome(failures=[f"{name}:? the process died: {done.stderr[-2000:]}"])
        return lost
    return Outcome(**json.loads(done.stdout.splitlines()[-1]))


if __name__ == "__main__":
    sys.exit(main())
