"""Small traces as a profiler writes them: a few ranks' steps, kernels and all-reduces."""

import json


def kineto(rank, world=4, salt=0, steps=3):
    """The text of one rank's trace; `salt` gives another run's durations."""
    events = []
    for step in range(steps):
        at = 1000.0 + 100.0 * step
        kernel = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
        said = {"Collective name": "allreduce", "dtype": "Float", "In msg nelems": 1024,
                "Out msg nelems": 1024, "Group size": world, "Process Group Name": "0",
                "Process Group Description": "default_pg",
                "Process Group Ranks": str(list(range(world)))}  # fmt: skip
        for cat, name, tid, start, dur, args in (
            ("user_annotation", f"ProfilerStep#{step}", 7, at, 90.0, {}),
            ("kernel", "gemm", 7, at + 5, 10.0 + rank + salt, {"device": 0, "stream": 7}),
            ("kernel", kernel, 9, at + 20 + rank, 30.0 - rank, {"device": 0, "stream": 9, **said}),
        ):
            pid = 7 if cat == "user_annotation" else 0
            events.append({"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid,
                           "ts": start, "dur": dur, "args": args})  # fmt: skip
    return json.dumps(
        {
            "schemaVersion": 1,
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world},
            "deviceProperties": [{"id": 0, "name": "a GPU"}],
            "traceEvents": events,
        }
    )


def write(folder, ranks, **said):
    """Traces `rank<n>.json` of these ranks in a folder; gives their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"rank{rank}.json" for rank in ranks]
    for rank, path in zip(ranks, paths, strict=True):
        path.write_text(kineto(rank, **said))
    return paths
