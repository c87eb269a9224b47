"""A small real training-like job: ranks over gloo, each leaving a Kineto trace.

Run as `python gloo_job.py OUT --world 4 --late-rank 2 --late-ms 50`. Compute is a sleep of known
length, so that the ranks do not compete for the machine's cores.
"""

from __future__ import annotations

import argparse
import os
import socket
import time
from pathlib import Path


def train(rank: int, args: argparse.Namespace) -> None:
    """One rank: `args.steps` profiled steps of sleep, all-reduce, sleep, all-gather."""
    import torch
    import torch.distributed as dist
    from torch.profiler import ProfilerActivity, profile, schedule

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(args.port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=args.world)
    grad = torch.ones(args.elements)
    gathered = torch.empty(args.world * args.elements)
    for _ in range(3):
        dist.all_reduce(grad)

    late_s = args.late_ms / 1e3 if rank == args.late_rank else 0.0
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=0, warmup=1, active=args.steps, repeat=1),
        on_trace_ready=lambda p: p.export_chrome_trace(f"{args.out}/rank{rank}.json"),
    ) as profiler:
        for _ in range(args.steps + 1):
            time.sleep(args.compute_ms / 1e3 + late_s)
            dist.all_reduce(grad)
            time.sleep(args.compute_ms / 5e3)
            dist.all_gather_into_tensor(gathered, grad)
            profiler.step()
    dist.destroy_process_group()


def main() -> None:
    """Start the ranks and wait for them."""
    import torch.distributed
    import torch.multiprocessing as mp
    import torch.profiler  # noqa: F401

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    parser.add_argument("--world", type=int, default=4)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--compute-ms", type=float, default=100.0)
    parser.add_argument("--late-rank", type=int, default=-1)
    parser.add_argument("--late-ms", type=float, default=0.0)
    parser.add_argument("--elements", type=int, default=1 << 16)
    args = parser.parse_args()
    Path(args.out).mkdir(parents=True, exist_ok=True)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        args.port = s.getsockname()[1]
    # Forked, so that what takes seconds to import is imported once, not by each rank.
    mp.start_processes(train, (args,), nprocs=args.world, start_method="fork")


if __name__ == "__main__":
    main()
