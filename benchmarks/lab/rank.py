"""A rank: does the steps of a workload in its seat, and writes down what it did and when."""

from __future__ import annotations

import queue
import resource
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from . import all_reduces, cores, exchanges
from .demand import demand_of
from .shape import Shape
from .trace import Clock, Trace
from .wire import UP, Mesh
from .workload import AllReduce, AllToAll, Thing, Wait, Work, Workload


class Rank:
    """One rank of a run; everything that moves bytes happens on one thread at a time."""

    def __init__(self, shape: Shape, load: Workload, rank: int, clock: Clock):
        self.shape, self.load, self.rank, self.clock = shape, load, rank, clock
        self.mesh = Mesh(shape, rank, load.ranks, load.alpha_us * 1e3)
        self.trace = Trace()
        self.took: list[int] = []
        """What each step took, ns, by the machine's clock."""
        self._waited_s = self.waited_s = 0.0
        self._rooms = exchanges.Rooms()
        self._data = np.ones(
            max([t.size // 4 for t in load.step if isinstance(t, AllReduce)], default=1), np.int32
        )
        self._seq: dict[str, int] = {}
        self._groups = {}
        for name, comm in load.comms.items():
            for k, group in enumerate(comm.groups):
                if rank in group:
                    label = name if len(comm.groups) == 1 else f"{name}{k}"
                    self._groups[name] = (label, group)
        self._behind: queue.Queue | None = None
        self._left: list[threading.Event] = []

    def describe(self) -> None:
        """The rows that say who this is."""
        add, shape = self.trace.add, self.shape
        add("ranks", rank=self.rank, world_size=self.load.ranks,
            host=f"host{shape.host_of(self.rank)}", local_rank=self.rank % shape.per_host,
            rail=self.rank % shape.per_host if shape.nics == 1 else None)  # fmt: skip
        for name, (label, group) in self._groups.items():
            add("comms", comm=label, name=label, ranks=list(group), size=len(group),
                dim=self.load.comms[name].dim, backend="lab")  # fmt: skip

    def run(self) -> None:
        """All steps; those of the warm-up leave nothing in the trace."""
        warm = self.load.warmup
        for k in range(-warm, self.load.steps):
            if k == 0:
                self._waited_s = cores.waited_s()
                self.trace = Trace()
                self.describe()
            self._step(k)
        self.waited_s = cores.waited_s() - self._waited_s
        if self._behind is not None:
            self._behind.put(None)

    def _step(self, step: int) -> None:
        began, start = time.monotonic_ns(), self.clock.now_ns()
        for place, thing in enumerate(self.load.step):
            if isinstance(thing, Work):
                self._work(thing, step, place)
            elif isinstance(thing, Wait):
                self._wait()
            elif isinstance(thing, AllReduce) and thing.behind:
                self._later(thing, step)
            elif thing.comm in self._groups:
                self._moves(thing, step, "main")
        self._wait()
        self.trace.add("steps", step=step, start_ns=start, end_ns=self.clock.now_ns())
        if step >= 0:
            self.took.append(time.monotonic_ns() - began)

    def _work(self, work: Work, step: int, place: int) -> None:
        drawn = np.random.default_rng([self.load.seed, self.rank, step + 1000, place])
        ms = work.ms * max(0.2, 1 + work.jitter * drawn.standard_normal())
        ms += work.late.get(self.rank, 0.0)
        start = time.monotonic_ns()
        if (left := start + ms * 1e6 - time.monotonic_ns()) > 0:
            time.sleep(left * 1e-9)
        self._event(work.name, start, step)

    def _event(self, name: str, start_ns: int, step: int) -> None:
        start, end = self.clock.of(start_ns), self.clock.now_ns()
        self.trace.add("events", name=name, start_ns=start, dur_ns=end - start, step=step)

    def _wait(self) -> None:
        for done in self._left:
            done.wait()
        self._left = []

    def _later(self, thing: AllReduce, step: int) -> None:
        if self._behind is None:
            self._behind = queue.Queue()
            threading.Thread(target=self._worker, daemon=True).start()
        done = threading.Event()
        self._left.append(done)
        self._behind.put((thing, step, done))

    def _worker(self) -> None:
        assert self._behind is not None
        while (job := self._behind.get()) is not None:
            thing, step, done = job
            self._moves(thing, step, "comm")
            done.set()

    def _moves(self, thing: Thing, step: int, thread: str) -> None:
        assert isinstance(thing, AllReduce | AllToAll)
        label, group = self._groups[thing.comm]
        seq = self._seq[label] = self._seq.get(label, -1) + 1
        before = dict(self.mesh.sent), dict(self.mesh.got)
        demand = None
        if isinstance(thing, AllToAll):
            demand = demand_of(thing, len(group), [self.load.seed, step + 1000, seq], step + 1)
        start = time.monotonic_ns()
        if isinstance(thing, AllReduce):
            self._reduce(thing, group)
        elif demand is not None:
            self._exchange(thing, group, demand)
        end = time.monotonic_ns()
        i = list(group).index(self.rank)
        self.trace.add(
            "collectives", comm=label, seq=seq, op=thing.op, algo=_recorded(thing),
            in_bytes=thing.size if demand is None else int(demand[i].sum()),
            out_bytes=thing.size if demand is None else int(demand[:, i].sum()),
            group_size=len(group), dtype="int32",
            in_splits=None if demand is None else demand[i].tolist(),
            out_splits=None if demand is None else demand[:, i].tolist(),
            start_ns=self.clock.of(start), end_ns=self.clock.of(end), step=step, thread=thread,
        )  # fmt: skip
        for way, now, was in (("send", self.mesh.sent, before[0]), ("recv", self.mesh.got,
                                                                    before[1])):  # fmt: skip
            for (peer, path), n in now.items():
                moved = n - was.get((peer, path), 0)
                if moved:
                    self.trace.add(
                        "transfers", peer_rank=peer, bytes=moved, direction=way,
                        rail=self._rail(path), nic=None if path == UP else f"rail{path}",
                        via="up" if path == UP else "NET/Socket",
                        start_ns=self.clock.of(start), end_ns=self.clock.of(end),
                    )  # fmt: skip

    def _rail(self, path: int) -> int | None:
        if path == UP:
            return None
        return path if self.shape.nics > 1 else self.shape.leaf_of(self.rank, 0)

    def _reduce(self, thing: AllReduce, group: tuple[int, ...]) -> None:
        data = self._data[: thing.size // 4]
        data[:] = 1
        if thing.algo == "hierarchical":
            all_reduces.hierarchical(self.mesh, data, group, thing.paths, self.shape.per_host)
        else:
            all_reduces.ALGORITHMS[thing.algo](self.mesh, data, group, thing.paths)
        if not (data[0] == data[-1] == len(group)):
            raise RuntimeError(f"rank {self.rank}: {thing.algo} gave {data[0]}, {data[-1]}")

    def _exchange(self, thing: AllToAll, group: tuple[int, ...], demand: np.ndarray) -> None:
        if thing.algo == "balanced":
            exchanges.balanced(self.mesh, demand, group, self.shape.per_host, 0, self._rooms)
            return
        ways = {"direct": exchanges.direct, "pairwise": exchanges.pairwise,
                "waves": exchanges.waves}  # fmt: skip
        more = {"width": thing.width} if thing.algo == "waves" else {}
        ways[thing.algo](self.mesh, demand, group, self._path, self._rooms, **more)

    def _path(self, a: int, b: int) -> int:
        inside = self.shape.per_host > 1 and self.shape.host_of(a) == self.shape.host_of(b)
        return UP if inside else 0


def _recorded(thing: AllReduce | AllToAll) -> str:
    """The algorithm's name in the trace, as the models have it."""
    return {"waves": "pairwise", "balanced": "direct"}.get(thing.algo, thing.algo)


def main(shape: Shape, load: Workload, rank: int, clock: Clock, out: Path) -> dict[str, Any]:
    """Runs a rank to its end; writes its trace; returns what it took of the machine."""
    one = Rank(shape, load, rank, clock)
    one.run()
    one.mesh.close()
    one.trace.write(out)
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "cpu_s": round(used.ru_utime + used.ru_stime, 3),
        "waited_s": round(one.waited_s, 4),
        "step_ns": one.took,
    }
