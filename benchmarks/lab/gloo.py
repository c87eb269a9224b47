"""A rank under PyTorch: the same steps over gloo, with a Kineto trace from torch.profiler.

All-reduces only. The host's clock is set wrong after the run, by what the trace's times are moved:
PyTorch reads the machine's own. Gloo's connections have buffers of their own.
"""

from __future__ import annotations

import gzip
import json
import os
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np

from . import cores
from .fabric import address
from .shape import Shape
from .trace import Clock
from .workload import AllReduce, Work, Workload

PORT = 7200


def prepare() -> None:
    """Imports what ranks need, in the process that they are forked from."""
    import torch.distributed
    import torch.profiler  # noqa: F401


def main(shape: Shape, load: Workload, rank: int, clock: Clock, out: Path) -> dict[str, Any]:
    """Runs a rank to its end, writes its trace to `out`.gz; what `rank.main` returns."""
    import torch
    import torch.distributed as dist
    from torch.profiler import ProfilerActivity, profile, record_function, schedule

    os.environ["GLOO_SOCKET_IFNAME"] = "rail0"
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://{address(0, 'rail0')}:{PORT}", rank=rank,
        world_size=load.ranks,
    )  # fmt: skip
    grads = {t.size: torch.ones(t.size // 4) for t in load.step if isinstance(t, AllReduce)}
    took: list[int] = []
    waited_s = 0.0

    def one_step(k: int) -> None:
        for place, thing in enumerate(load.step):
            if isinstance(thing, Work):
                with record_function(thing.name):
                    time.sleep(_seconds(thing, load, rank, k, place))
            elif isinstance(thing, AllReduce):
                dist.all_reduce(grads[thing.size])

    for k in range(load.warmup):
        one_step(-1 - k)
    with profile(
        activities=[ProfilerActivity.CPU],
        record_shapes=True,
        schedule=schedule(wait=0, warmup=1, active=load.steps, repeat=1),
        on_trace_ready=lambda p: p.export_chrome_trace(str(out)),
    ) as profiler:
        for k in range(-1, load.steps):
            start = time.monotonic_ns()
            if k == 0:
                waited_s = cores.waited_s()
                # Gloo numbers nothing: what comes once shows where in the rhythm a rank is.
                dist.barrier()
            one_step(k)
            profiler.step()
            if k >= 0:
                took.append(time.monotonic_ns() - start)
    waited_s = cores.waited_s() - waited_s
    dist.destroy_process_group()
    _on_wrong_clock(out, f"host{shape.host_of(rank)}", clock)
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "cpu_s": round(used.ru_utime + used.ru_stime, 3),
        "waited_s": round(waited_s, 4),
        "step_ns": took,
    }


def _seconds(work: Work, load: Workload, rank: int, step: int, place: int) -> float:
    drawn = np.random.default_rng([load.seed, rank, step + 1000, place])
    ms = work.ms * max(0.2, 1 + work.jitter * drawn.standard_normal())
    return (ms + work.late.get(rank, 0.0)) * 1e-3


def _on_wrong_clock(path: Path, host: str, clock: Clock) -> None:
    """The trace moved by its host's offset, with the host's name and no path, as `path`.gz."""
    trace = json.loads(path.read_text())
    trace |= {"host_name": host, "traceName": path.name}
    for event in trace["traceEvents"]:
        if isinstance(event.get("ts"), int | float):
            event["ts"] += clock.offset_ns / 1e3
    with gzip.GzipFile(f"{path}.gz", "wb", mtime=0) as f:
        f.write(json.dumps(trace, separators=(",", ":")).encode())
    path.unlink()
