"""Tasks on a Ray cluster, by the contract of `workers.run`: one a CPU, run again if one is lost."""

from __future__ import annotations

import contextlib
import importlib
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

from .. import compile_beside
from ..errors import line_of
from ..workers import WorkerDied, portable
from . import nodes
from .connection import ClusterError

CRASHES = 3
"""So often a task's worker may end under it (killed, out of memory) before it is given up."""

LOSSES = 20
"""So often its node may be lost: machines come and go, and that is no fault of the task."""

TICK_S = 1.0
"""How often the driver looks up while nothing finishes; a task tells its progress as often."""

NO_NODES_S = 60.0
"""So long a cluster may be without any CPU (a new node may be on its way) while work waits."""

AHEAD = 2
"""Tasks in flight for each CPU: one that runs, one that is there when it ends."""


class Unfit(NamedTuple):
    """A task's answer from a node that cannot do it."""

    said: str


def cpus(ray: Any) -> int:
    """CPUs of the cluster's nodes as they stand, for tasks of one each."""
    return sum(int(n["Resources"].get("CPU", 0)) for n in ray.nodes() if n["Alive"])


def run(
    ray: Any,
    function: str,
    tasks: Sequence[tuple],
    n_workers: int | None,
    on_progress: Callable[[int, int], None] | None,
    *,
    shared: tuple = (),
    wanted: Sequence[nodes.Seen] = (),
) -> Generator[tuple[int, Any]]:
    """Calls `function` ("module:name") with each task's arguments on a node of the cluster.

    As `workers.run`: yields (task index, result or exception) as they finish. The function gets
    `shared` (sent once), the task's arguments, and a `progress(amount)`, which becomes
    `on_progress(task index, amount)` here, where that is given. A task whose worker or node is
    lost is run again, so it must not mind what an earlier try of it left; after CRASHES it gives
    WorkerDied. `n_workers` bounds tasks in flight (None: as many as the CPUs need). `wanted` is
    what a node must see before it runs anything. Exceptions of the function are results, never
    tried again.

    Raises ClusterError where a node cannot do the work, or none is left to do it.
    """
    nodes.check(ray, wanted)
    exceptions = ray.exceptions
    again = (
        exceptions.WorkerCrashedError,
        exceptions.OutOfMemoryError,
        exceptions.NodeDiedError,
        exceptions.ObjectLostError,
    )
    call = ray.remote(num_cpus=1, max_retries=0, scheduling_strategy="SPREAD")(_call)
    common = ray.put((function, shared, [tuple(w) for w in wanted]))
    told = _Told(ray) if on_progress is not None else None
    waiting = deque(range(len(tasks)))
    flying: dict[Any, int] = {}
    crashes, losses = [0] * len(tasks), [0] * len(tasks)
    size = _Size(ray)
    try:
        while waiting or flying:
            most = n_workers or max(1, AHEAD * size.cpus())
            while waiting and len(flying) < most:
                k = waiting.popleft()
                handle = None if told is None else told.actor
                flying[call.remote(common, k, tasks[k], handle)] = k
            asked = list(flying) if told is None else [*flying, *told.asked()]
            done, _ = ray.wait(asked, num_returns=1, timeout=TICK_S)
            if not done:
                size.check()
            for ref in done:
                if ref not in flying:
                    assert told is not None
                    assert on_progress is not None
                    for k, amount in told.answer(ref):
                        on_progress(k, amount)
                    continue
                k = flying.pop(ref)
                try:
                    value = ray.get(ref)
                except again as e:
                    lost = _node_is_gone(exceptions, e)
                    count = losses if lost else crashes
                    count[k] += 1
                    if count[k] >= (LOSSES if lost else CRASHES):
                        yield k, WorkerDied(_why(exceptions, e, count[k]))
                    else:
                        waiting.appendleft(k)
                    continue
                except exceptions.RayError as e:
                    raise ClusterError(f"a task on the Ray cluster failed: {line_of(e)}") from e
                if isinstance(value, Unfit):
                    raise ClusterError(value.said)
                yield k, value
    finally:
        for ref in flying:
            with contextlib.suppress(Exception):
                ray.cancel(ref, force=True)
        if told is not None:
            told.close()


def _call(common: tuple, task: int, arguments: tuple, told: Any) -> Any:
    """On the node: one task. Gives its result, the exception that it raised, or Unfit."""
    compile_beside.none_from_here()
    function, shared, wanted = common
    if cannot := nodes.unseen_once(wanted):
        return Unfit(nodes.refusal(nodes.here(), cannot))
    last = time.monotonic()

    def progress(amount: int) -> None:
        nonlocal last
        now = time.monotonic()
        if told is not None and now - last >= TICK_S:
            last = now
            told.tell.remote(task, amount)

    try:
        module, _, name = function.partition(":")
        call = getattr(importlib.import_module(module), name)
        return call(*shared, *arguments, progress)
    except Exception as e:
        return portable(e)


def _node_is_gone(exceptions: Any, error: Exception) -> bool:
    return isinstance(error, exceptions.NodeDiedError | exceptions.ObjectLostError)


def _why(exceptions: Any, error: Exception, times: int) -> str:
    if isinstance(error, exceptions.OutOfMemoryError):
        why = "its node ran out of memory: give the cluster fewer CPUs a node, or more memory"
    elif _node_is_gone(exceptions, error):
        why = "its node was lost"
    else:
        why = "its worker was killed or crashed, perhaps because memory ran out"
    return f"{why} ({times} times)"


class _Size:
    """How large the cluster is, asked now and then; notices that no node is left to do the work."""

    def __init__(self, ray: Any):
        self._ray = ray
        self._cpus, self._asked, self._seen = 0, 0.0, time.monotonic()

    def cpus(self) -> int:
        now = time.monotonic()
        if now - self._asked >= TICK_S:
            self._cpus, self._asked = cpus(self._ray), now
            self._seen = now if self._cpus else self._seen
        return self._cpus

    def check(self) -> None:
        """Raises ClusterError after NO_NODES_S without a CPU: Ray itself would wait for ever."""
        if not self.cpus() and time.monotonic() - self._seen > NO_NODES_S:
            raise ClusterError(
                f"the Ray cluster has had no node with a CPU for {NO_NODES_S:g} s; what was "
                "finished stays: run the same command again"
            )


class _Book:
    """An actor that tasks tell how far they are, and that the driver asks now and then."""

    def __init__(self) -> None:
        self._news: dict[int, int] = {}

    def tell(self, task: int, amount: int) -> None:
        self._news[task] = amount

    def news(self) -> list[tuple[int, int]]:
        news, self._news = self._news, {}
        return list(news.items())


class _Told:
    """The driver's side of the book: one question at a time, never waited for."""

    def __init__(self, ray: Any):
        self._ray = ray
        actor = ray.remote(num_cpus=0, max_restarts=10, max_task_retries=0)(_Book)
        self.actor = actor.remote()
        self._ref: Any = None
        self._next = 0.0

    def asked(self) -> list[Any]:
        if self._ref is None and time.monotonic() >= self._next:
            self._next = time.monotonic() + TICK_S
            self._ref = self.actor.news.remote()
        return [] if self._ref is None else [self._ref]

    def answer(self, ref: Any) -> list[tuple[int, int]]:
        self._ref = None
        try:
            return self._ray.get(ref)
        except self._ray.exceptions.RayError:
            return []  # its node was lost: the book begins anew on another

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._ray.kill(self.actor)
