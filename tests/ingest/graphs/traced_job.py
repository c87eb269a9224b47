"""A real job of two gloo ranks: each leaves a Kineto trace and an execution trace of one profile.

Run as `python traced_job.py OUT`.
"""

from __future__ import annotations

import sys

SENT = {0: [3, 5], 1: [1, 2]}
"""Rows that each rank sends to each."""

WIDTH = 4


def work(rank: int, out: str) -> None:
    """One rank: the collectives under both observers."""
    import torch
    import torch.distributed as dist
    from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile

    torch.set_num_threads(1)
    # By a file: a port that was free a moment ago may be taken.
    dist.init_process_group("gloo", init_method=f"file://{out}/meet", rank=rank, world_size=2)
    x = torch.ones(64)
    dist.all_reduce(x)
    sent, got = SENT[rank], [SENT[0][rank], SENT[1][rank]]
    rows = torch.ones(sum(sent), WIDTH)
    into = torch.empty(sum(got), WIDTH)
    gathered = torch.empty(128)
    observer = ExecutionTraceObserver().register_callback(f"{out}/job_et_{rank}.json")
    with profile(
        activities=[ProfilerActivity.CPU], execution_trace_observer=observer, record_shapes=True
    ) as profiler:
        dist.all_reduce(x)
        dist.all_to_all_single(into, rows, got, sent)
        dist.broadcast(x, src=1)
        dist.all_gather_into_tensor(gathered, x)
        if rank == 0:
            dist.send(x, 1)
        else:
            dist.recv(x, 0)
    profiler.export_chrome_trace(f"{out}/rank{rank}.json")
    dist.barrier()  # whoever leaves first would end the other's last receive
    dist.destroy_process_group()


def main() -> None:
    """Start both ranks and wait for them."""
    import torch.distributed
    import torch.multiprocessing as mp
    import torch.profiler  # noqa: F401

    # Forked, so that what takes seconds to import is imported once, not by each rank.
    mp.start_processes(work, (sys.argv[1],), nprocs=2, start_method="fork")


if __name__ == "__main__":
    main()
