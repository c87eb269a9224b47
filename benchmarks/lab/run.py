"""One run of a workload on a network: ranks started, waited for, their traces gathered.

The ranks are children of a process of their own (`python -m benchmarks.lab.run SPEC`), which has
few modules and one thread, so that they start within moments and end with it.
"""

from __future__ import annotations

import gzip
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from . import cores, enter
from .errors import LabError
from .fabric import Fabric
from .shape import Shape
from .trace import Clock
from .workload import Workload

LONGEST_S = 180.0


class Ran(NamedTuple):
    """What a run left: its traces' folder, and what only a check may know."""

    folder: Path
    truth: dict[str, Any]

    @property
    def step_ns(self) -> np.ndarray:
        """float64 [steps]: what each step took, the mean over ranks."""
        return np.array(self.truth["step_ns"], float)


def run(shape: Shape, load: Workload, folder: Path) -> Ran:
    """Builds the network, runs the workload on it, and removes the network."""
    folder.mkdir(parents=True, exist_ok=True)
    with Fabric(shape) as net:
        return run_on(net, load, folder)


def run_on(net: Fabric, load: Workload, folder: Path) -> Ran:
    """Runs a workload on a network that stands; traces are `folder/rank<R>.jsonl.gz`."""
    if load.ranks > net.shape.seats:
        raise LabError(f"{load.ranks} ranks do not fit in {net.shape.seats} seats")
    seats = [net.seat(s) for s in range(load.ranks)]
    clocks = skews(net.shape, load)
    spec = (net.shape, load, seats, net.storage if load.storage else "", clocks, folder)
    meter = cores.Meter()
    child = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.lab.run"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=enter.die_with_parent,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1",
             "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )  # fmt: skip
    try:
        out, err = child.communicate(pickle.dumps(spec), timeout=LONGEST_S)
    except subprocess.TimeoutExpired as e:
        raise LabError(f"a run took more than {LONGEST_S:g} s") from e
    finally:
        child.kill()
    if child.returncode:
        raise LabError(f"the ranks failed: {err.decode(errors='replace').strip()[-2000:]}")
    use = meter.use()
    truth = json.loads(out)
    truth |= {
        "clock_offset_ns": {str(r): c.offset_ns for r, c in enumerate(clocks)},
        "clock_drift_ppm": {str(r): c.drift_ppm for r, c in enumerate(clocks)},
        "cores_busy": round(use.busy, 4), "cores_stolen": round(use.stolen, 4),
        "seconds": round(use.seconds, 3), "trouble": _trouble(truth),
        "dropped_packets": net.dropped(),
    }  # fmt: skip
    (folder / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")
    return Ran(folder, truth)


def _trouble(truth: dict[str, Any]) -> str:
    """What makes a run say nothing about a network; empty for nothing. Step times do not count."""
    if truth["held_up_s"] > cores.HELD_UP_S:
        return f"the machine stood still for {truth['held_up_s']:.2f} s"
    waited = max(r["waited_s"] for r in truth["ranks"].values()) * 1e9 / sum(truth["step_ns"])
    if waited > cores.MOST_WAITED:
        return f"a rank waited for a core for {100 * waited:.1f} % of the time"
    return ""


def skews(shape: Shape, load: Workload) -> list[Clock]:
    """The clock of each rank: that of its host, off by a drawn offset and drift."""
    rng = np.random.default_rng([load.seed, 7])
    offsets = rng.uniform(-load.skew_ms, load.skew_ms, shape.hosts) * 1e6
    drifts = rng.uniform(-load.drift_ppm, load.drift_ppm, shape.hosts)
    zero = time.monotonic_ns()
    hosts = [shape.host_of(r) for r in range(load.ranks)]
    return [Clock(round(offsets[h]), float(drifts[h]), zero) for h in hosts]


def _launch() -> None:
    """The process between: forks the ranks and storage, and prints the truth as JSON."""
    from . import rank, storage

    shape, load, seats, store, clocks, folder = pickle.load(sys.stdin.buffer)
    streams = []
    if store:
        streams.append(_fork(store, lambda: storage.serve(load.storage.port)))
        far = time.monotonic_ns() + LONGEST_S * 1e9
        for s in load.storage.seats:
            into = folder / f"storage{s}.jsonl"
            one = partial(storage.read, load.storage, s, clocks[s], far, into)
            streams.append(_fork(seats[s], one))
        time.sleep(0.3)

    what, ending = rank.main, "jsonl"
    if load.engine == "gloo":
        from . import gloo

        gloo.prepare()
        what, ending = gloo.main, "json"

    def main(r: int) -> None:
        spent = what(shape, load, r, clocks[r], folder / f"rank{r}.{ending}")
        (folder / f"spent{r}.json").write_text(json.dumps(spent))

    children = [_fork(name, lambda r=r: main(r)) for r, name in enumerate(seats)]
    enter.before_others(2)
    bad, late_s = _waited(children)
    for pid in streams:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    if bad:
        sys.exit("a rank ended with an error")
    print(json.dumps({**_gathered(load, folder), "held_up_s": round(late_s, 3)}))


def _waited(children: list[int]) -> tuple[bool, float]:
    """Whether one failed (the others are ended then), and the latest that a sleep woke up."""
    left, bad = set(children), False
    worst_s, last = 0.0, time.monotonic()
    while left:
        time.sleep(0.01)
        now = time.monotonic()
        worst_s, last = max(worst_s, now - last - 0.01), now
        for pid in list(left):
            done, status = os.waitpid(pid, os.WNOHANG)
            if not done:
                continue
            left.discard(pid)
            if status and not bad:
                bad = True
                for other in left:
                    os.kill(other, signal.SIGKILL)
    return bad, worst_s


def _fork(namespace: str, what) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        enter.die_with_parent()
        enter.namespace(namespace)
        enter.before_others()
        what()
        os._exit(0)
    except BaseException as e:
        print(f"{type(e).__name__}: {e}", file=sys.stderr, flush=True)
        os._exit(1)


def _gathered(load: Workload, folder: Path) -> dict[str, Any]:
    """Ranks' and storage's rows in one file a rank; each step's time, the mean over ranks.

    A step's time on a rank is its own clock's difference: no offset is in it.
    """
    took, spent = [], {}
    for r in range(load.ranks):
        used = folder / f"spent{r}.json"
        said = json.loads(used.read_text())
        took.append(said.pop("step_ns"))
        spent[str(r)] = said
        used.unlink()
        part, more = folder / f"rank{r}.jsonl", folder / f"storage{r}.jsonl"
        if part.exists():
            with gzip.GzipFile(folder / f"rank{r}.jsonl.gz", "wb", mtime=0) as f:
                f.write(part.read_bytes() + (more.read_bytes() if more.exists() else b""))
        for old in (part, more):
            old.unlink(missing_ok=True)
    return {"step_ns": [round(t) for t in np.mean(took, axis=0)], "ranks": spent}


if __name__ == "__main__":
    _launch()
