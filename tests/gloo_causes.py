"""A small real job whose ranks are late for three reasons, each rank leaving a Kineto trace.

Run as `python gloo_causes.py OUT`. In each step rank 1 waits for its data loader before the first
all-reduce, rank 2 collects garbage on a big heap before the second, and rank 3 multiplies larger
matrices before the third.
"""

from __future__ import annotations

import argparse
import gc
import time
from pathlib import Path

RANKS = 4


def train(rank: int, args: argparse.Namespace) -> None:
    """One rank: profiled steps of load, collect, multiply, with an all-reduce after each."""
    import torch
    import torch.distributed as dist
    from torch._C._profiler import _ExperimentalConfig
    from torch.profiler import ProfilerActivity, profile, schedule

    class Batches(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return 2 * args.steps + 4

        def __getitem__(self, index: int):
            time.sleep(args.late_ms / 1e3 if rank == 1 else 0.0)
            return torch.ones(8)

    torch.set_num_threads(1)
    meet = f"file://{Path(args.out).resolve()}/meet"
    dist.init_process_group("gloo", rank=rank, world_size=RANKS, init_method=meet)
    heap = [[i] for i in range(args.objects if rank == 2 else 0)]
    side = 1400 if rank == 3 else 64
    left, grad = torch.ones(side, side), torch.ones(1024)
    batches = iter(torch.utils.data.DataLoader(Batches(), batch_size=1))
    gc.disable()
    dist.all_reduce(grad)
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=0, warmup=1, active=args.steps, repeat=1),
        with_stack=True,
        experimental_config=_ExperimentalConfig(record_python_gc_info=True),
        on_trace_ready=lambda p: p.export_chrome_trace(f"{args.out}/rank{rank}.json"),
    ) as profiler:
        for _ in range(args.steps + 1):
            next(batches)
            dist.all_reduce(grad)
            if rank == 2:
                gc.collect()
            dist.all_reduce(grad)
            torch.mm(left, left)
            dist.all_reduce(grad)
            profiler.step()
    dist.barrier()
    dist.destroy_process_group()
    del heap


def main() -> None:
    """Start the ranks and wait for them."""
    import torch.distributed
    import torch.multiprocessing as mp
    import torch.profiler  # noqa: F401

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--late-ms", type=float, default=200.0)
    parser.add_argument("--objects", type=int, default=1_500_000)
    args = parser.parse_args()
    Path(args.out).mkdir(parents=True, exist_ok=True)
    # Forked, so that what takes seconds to import is imported once, not by each rank.
    mp.start_processes(train, (args,), nprocs=RANKS, start_method="fork")


if __name__ == "__main__":
    main()
