"""Writes the made-up job: a folder a host, and `truth.json`.

    python -m benchmarks.scale.generate FOLDER [--ranks 64] [--steps 4] [--layers 8]
        [--microbatches 2] [--seed 1] [--late slow-kernels|gc] [--processes 2]

A host's folder has a Kineto trace (gzip) and Inspector's records of each of its ranks, and the
routing of their tokens. The same arguments give the same bytes. Memory holds one step of all
ranks; the steps lie in files, 40 bytes an operation, until the texts are written.
"""

from __future__ import annotations

import argparse
import gzip
import json
import multiprocessing
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from isal import isal_zlib

from .inspector_text import RankRecords
from .kineto_text import RankText
from .program import Op, program
from .shape import DIMS, FIRST_STEP, HOST_RANKS, Shape, shaped
from .simulate import Step, received, splits, steps

KEPT = ("start", "end", "launch", "cost", "ready")
TRUTH = "truth.json"


def generate(folder: Path, shape: Shape, processes: int = 1) -> dict[str, Any]:
    """Writes the job below `folder`; gives the truth, with `events` and `bytes` of the files."""
    folder.mkdir(parents=True, exist_ok=True)
    ops = program(shape)
    truth = shape.truth()
    with tempfile.TemporaryDirectory(dir=folder, prefix=".steps-") as scratch:
        truth |= _simulated(Path(scratch), shape, ops)
        write = partial(_host, folder, Path(scratch), shape, ops)
        if processes > 1:
            with multiprocessing.get_context("spawn").Pool(processes) as pool:
                events = sum(pool.imap_unordered(write, range(shape.hosts)))
        else:
            events = sum(map(write, range(shape.hosts)))
    truth["events"] = events
    truth["bytes"] = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
    (folder / TRUTH).write_text(json.dumps(truth, indent=1) + "\n")
    return truth


def host_folders(folder: Path) -> list[Path]:
    """The folders of the hosts, in order."""
    return sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))


def _simulated(scratch: Path, shape: Shape, ops: list[Op]) -> dict[str, Any]:
    """Keeps each step's times in `scratch`; gives the truth that only the simulation knows."""
    waits = np.zeros((len(DIMS), shape.ranks), np.int64)
    wholes: list[int] = []
    of = np.array([DIMS.index(o.dim) if o.dim else -1 for o in ops])
    for step in steps(shape, ops):
        np.save(scratch / f"{step.number}.npy", _packed(step))
        np.save(
            scratch / f"{step.number}-alone.npy",
            np.stack([step.host_start_ns, step.host_end_ns, step.gc_ns], 1),
        )
        sent = np.stack([[splits(shape, t) for t in layer] for layer in step.tokens])
        got = np.stack([[received(shape, t) for t in layer] for layer in sent])
        rows = np.stack([sent, got], 3).transpose(2, 0, 1, 3, 4)
        np.save(scratch / f"{step.number}-rows.npy", np.ascontiguousarray(rows))
        np.save(scratch / f"{step.number}-tokens.npy", step.tokens.sum(1))
        took = step.end_ns - step.start_ns
        wait = np.clip(step.ready_ns - step.start_ns, 0, took)
        for d in range(len(DIMS)):
            waits[d] += wait[:, of == d].sum(1)
        wholes.append(int((step.host_end_ns - step.host_start_ns).mean()))
    return {
        "step_ns": wholes,
        "collectives": int(sum(o.dim != "" for o in ops)) * shape.steps,
        "wait_ns": {d: waits[i].tolist() for i, d in enumerate(DIMS)},
    }


def _packed(step: Step) -> np.ndarray:
    """int64[ranks, kept, operations]"""
    return np.stack([getattr(step, f"{k}_ns") for k in KEPT], 1)


def _host(folder: Path, scratch: Path, shape: Shape, ops: list[Op], host: int) -> int:
    """Writes one host's files; gives the number of events in its traces."""
    place = folder / shape.host_name(host)
    place.mkdir(exist_ok=True)
    ahead, drift = shape.clocks()
    parts = [np.load(scratch / f"{s}.npy", mmap_mode="r") for s in range(shape.steps)]
    alone = [np.load(scratch / f"{s}-alone.npy") for s in range(shape.steps)]
    rows = [np.load(scratch / f"{s}-rows.npy", mmap_mode="r") for s in range(shape.steps)]
    tokens = [np.load(scratch / f"{s}-tokens.npy", mmap_mode="r") for s in range(shape.steps)]
    mine = range(host * HOST_RANKS, (host + 1) * HOST_RANKS)
    events = 0

    def clock(true_ns: np.ndarray) -> np.ndarray:
        return true_ns + ahead[host] + np.rint(true_ns * (drift[host] * 1e-6)).astype(np.int64)

    for rank in mine:
        text, records = RankText(shape, ops, rank), RankRecords(shape, ops, rank)
        packer = isal_zlib.compressobj(1, isal_zlib.DEFLATED, 31)
        network = isal_zlib.compressobj(1, isal_zlib.DEFLATED, 31)
        with (
            open(place / f"rank{rank}.pt.trace.json.gz", "wb") as trace,
            open(place / f"rank{rank}.inspector.log.gz", "wb") as log,
        ):
            trace.write(packer.compress(text.head(host)))
            for s in range(shape.steps):
                kept = dict(zip(KEPT, np.asarray(parts[s][rank]), strict=True))
                local = {k: v if k == "cost" else clock(v) for k, v in kept.items()}
                begun, ended, gc = (alone[s][rank, i] for i in range(3))
                own = {"host_start": int(clock(begun)), "host_end": int(clock(ended)),
                       "gc": int(gc)}  # fmt: skip
                trace.write(packer.compress(text.step(s, local, own, rows[s][rank])))
                off = clock(kept["ready"]) - kept["ready"]
                log.write(network.compress(records.step(kept["ready"], rows[s][rank], off)))
            trace.write(packer.compress(text.tail()) + packer.flush())
            log.write(network.flush())
        events += text.events_a_step * shape.steps
    _routing(place / "routing.csv.gz", shape, tokens, mine)
    return events


def _routing(path: Path, shape: Shape, tokens: list[np.ndarray], mine: range) -> None:
    """Tokens by step, layer, rank and expert, of a step's microbatches together."""
    lines = ["step,layer,rank,expert,count\n"]
    for s, of_step in enumerate(tokens):
        for layer in range(shape.layers):
            for rank in mine:
                lines += [
                    f"{FIRST_STEP + s},{layer},{rank},{e},{n}\n"
                    for e, n in enumerate(of_step[layer, rank].tolist())
                ]
    with gzip.GzipFile(path, "wb", 1, mtime=0) as f:
        f.write("".join(lines).encode())


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options that make a shape."""
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--microbatches", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--late", default="slow-kernels", help="why a rank is late: or gc")


def shape_of(asked: argparse.Namespace, ranks: int) -> Shape:
    """The shape that the options say. Ends the program where they say none."""
    try:
        return shaped(
            ranks, steps=asked.steps, layers=asked.layers, microbatches=asked.microbatches,
            seed=asked.seed, late_cause=asked.late,
        )  # fmt: skip
    except ValueError as e:
        raise SystemExit(str(e)) from e


def main() -> None:
    """Write the job, print what is in it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--processes", type=int, default=2)
    arguments(parser)
    asked = parser.parse_args()
    made = generate(asked.folder, shape_of(asked, asked.ranks), asked.processes)
    print(f"{made['events']:,} events, {made['bytes'] / 1e6:,.0f} MB in {asked.folder}")


if __name__ == "__main__":
    main()
