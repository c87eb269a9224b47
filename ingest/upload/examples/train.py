"""A small training loop under torch.profiler whose traces go to a warehouse by themselves.

Start it with `torchrun --nproc-per-node=4 --rdzv-backend=c10d --rdzv-endpoint=localhost:0
train.py`, with RETIME_WAREHOUSE and RETIME_JOB in the environment. One rank of it is late.
"""

import os
import time

import retime
import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, schedule

LATE_RANK, LATE_S, STEPS = 2, 0.05, 6

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
weights = torch.ones(1 << 16)
gradient = torch.ones(1 << 16)

with profile(
    activities=[ProfilerActivity.CPU],
    schedule=schedule(wait=1, warmup=1, active=STEPS, repeat=1),
    on_trace_ready=retime.trace_handler(),
) as profiler:
    for _ in range(STEPS + 2):
        time.sleep(0.05 + (LATE_S if rank == LATE_RANK else 0.0))
        dist.all_reduce(gradient)
        weights -= 1e-3 * gradient
        profiler.step()

dist.destroy_process_group()
print(f"rank {rank} of {os.environ['WORLD_SIZE']} is done")
