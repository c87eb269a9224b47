"""The processes of a report and the rank, host and device of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ..errors import RankUnknown, UsageError
from ..schema import MAX_RANK
from .columns import GRAPH, KERNEL, MEMCPY, MEMSET, RUNTIME
from .surroundings import (
    LOCAL_VARIABLES,
    NODE_VARIABLES,
    RANK_VARIABLES,
    WORLD_VARIABLES,
    command_line,
    environment,
    node_in_name,
    number_of,
    rank_in_name,
)
from .tables import Report

TID_MASK = 0xFFFFFF


@dataclass
class Process:
    """A process of the job: `key` is its globalPid (of which the low 24 bits are 0)."""

    key: int
    pid: int
    device: int | None = None
    devices: tuple[int, ...] = ()
    rank: int | None = None
    host: str | None = None
    local_rank: int | None = None
    gpu: str | None = None
    gpu_id: int | None = None
    n_sms: int | None = None
    by_payload: bool = False
    """its rank is its place in its largest communicator"""


@dataclass
class Job:
    """The processes with ranks, and what the report says of the whole job."""

    processes: list[Process]
    world: int | None = None
    hosts: dict[int, str] = field(default_factory=dict)
    """host by the high 16 bits of a global id"""
    spare: set[int] = field(default_factory=set)
    """keys of processes that are no part of the job"""

    @property
    def host(self) -> str | None:
        """The report's only host; None where there are several."""
        names = set(self.hosts.values())
        return names.pop() if len(names) == 1 else None


class Said(NamedTuple):
    """What ranges say of processes, by key."""

    places: dict[int, tuple[int, int]]
    """size of the largest communicator it was seen to join, and its place there"""
    mpi_ranks: dict[int, int]
    keys: set[int]
    """processes with ranges"""


def process_key(global_id: np.ndarray) -> np.ndarray:
    """globalPid of a globalTid or globalPid."""
    return global_id & ~np.int64(TID_MASK)


def pid_of(key: int) -> int:
    """Number of the process on its host."""
    return (key >> 24) & TID_MASK


def job_of(report: Report, name: str, asked: int | None, said: Said) -> Job:
    """The job's processes with their ranks.

    `asked` is the rank that the user gave. Else ranks are what MPI says, a process's place in a
    communicator of the whole job, what its variables or its file's name say, or the order of the
    devices; a place in a smaller communicator only where nothing else tells.

    Raises RankUnknown where nothing tells the ranks, UsageError where one rank was given for
    several processes.
    """
    job = _found(report, said)
    processes = job.processes
    if not processes:
        return job
    variables = environment(report)
    launch = command_line(report)
    _world(job, variables, launch)
    if asked is not None:
        if len(processes) > 1:
            raise UsageError(
                f"{name}: holds {len(processes)} processes with ranks of their own; drop --rank"
            )
        processes[0].rank = asked
    elif not _by_mpi(report, processes, said):
        sizes = [size for size, _ in said.places.values()]
        small = job.world is not None and max(sizes, default=0) < job.world
        if small or not _by_payload(report, job, said):
            _by_surroundings(report, job, name, variables, launch)
        if small and all(p.rank is None for p in processes):
            _by_payload(report, job, said)
    if len(processes) == 1:
        processes[0].local_rank = number_of(variables, LOCAL_VARIABLES)
    known = [p for p in processes if p.rank is not None]
    if not known:
        raise RankUnknown(
            f"nothing says which ranks its {len(processes)} process(es) have; "
            "name the file after the rank (rank3.sqlite) or use --rank",
            path=name,
        )
    for p in processes:
        if p.rank is None:
            report.odd(
                "rank_unknown", f"nothing says which rank process {p.pid} has: left out", "lost"
            )
    if len({p.rank for p in known}) < len(known):
        report.odd(
            "rank_twice",
            "processes of this report claim the same rank: the first of each is taken",
            "lost",
        )
        first: dict[int | None, Process] = {}
        for p in known:
            first.setdefault(p.rank, p)
        known = list(first.values())
    job.spare |= {p.key for p in processes} - {p.key for p in known}
    job.processes = sorted(known, key=lambda p: p.rank or 0)
    return job


def _found(report: Report, said: Said) -> Job:
    """Processes with work on a device; without any, those with calls or ranges."""
    devices: dict[int, dict[int, int]] = {}
    for table in (KERNEL, MEMCPY, MEMSET, GRAPH):
        for batch in report.batches(table, "globalPid", "deviceId"):
            batch = batch.append_column("one", batch["globalPid"])
            for row in (
                batch.group_by(["globalPid", "deviceId"]).aggregate([("one", "count")]).to_pylist()
            ):
                if row["globalPid"] is not None:
                    key = row["globalPid"] & ~TID_MASK
                    seen = devices.setdefault(key, {})
                    if row["deviceId"] is not None:
                        n = row["one_count"]
                        seen[row["deviceId"]] = seen.get(row["deviceId"], 0) + n
    on_host = {key for key in said.keys if key}
    for table in (RUNTIME, "NCCL_GPU_OPERATIONS"):
        for batch in report.batches(table, "globalTid"):
            keys = process_key(batch["globalTid"].drop_null().to_numpy())
            on_host.update(np.unique(keys).tolist())
    keys = sorted(devices) or sorted(on_host)
    spare = on_host - set(keys)
    if spare:
        report.odd(
            "process_without_device",
            "processes without work on a device (launchers, loaders): their rows are left out",
            "info",
            count=len(spare),
        )
    env = report.small("TARGET_INFO_SYSTEM_ENV")
    hosts: dict[int, str] = {}
    for g, name, value in zip(
        *(env[c].to_pylist() for c in ("globalVid", "name", "value")), strict=True
    ):
        if name == "Hostname" and value:
            hosts.setdefault((g or 0) >> 48, value)
    processes = []
    for key in keys:
        used = devices.get(key, {})
        p = Process(key, pid_of(key), devices=tuple(sorted(used)))
        if used:
            p.device = max(used, key=lambda d: (used[d], -d))
        p.host = hosts.get(key >> 48) or (next(iter(hosts.values())) if len(hosts) == 1 else None)
        processes.append(p)
    if any(len(p.devices) > 1 for p in processes):
        report.odd(
            "several_devices",
            "a process used several devices: its rank has them all, its row names the busiest",
            "info",
        )
    _hardware(report, processes)
    return Job(processes, hosts=hosts, spare=spare)


def _hardware(report: Report, processes: list[Process]) -> None:
    """Name and size of each process's device."""
    gpus = {r["id"]: r for r in report.small("TARGET_INFO_GPU").to_pylist()}
    by_cuda = {r["cuDevice"]: r for r in gpus.values() if r["cuDevice"] is not None}
    if len(by_cuda) < len(gpus):
        by_cuda = {}
    seen = {(r["pid"], r["cudaId"]): r for r in report.small("TARGET_INFO_CUDA_DEVICE").to_pylist()}
    for p in processes:
        one = seen.get((p.pid, p.device))
        gpu = gpus.get(one["gpuId"]) if one else by_cuda.get(p.device)
        if gpu is None and len(gpus) == 1 and p.device == 0:
            gpu = next(iter(gpus.values()))
        if one:
            p.n_sms = one["numMultiprocessors"]
        if gpu:
            p.gpu, p.gpu_id = gpu["name"], gpu["id"]
            p.n_sms = p.n_sms or gpu["smCount"]


def _world(job: Job, variables: dict[str, str], launch: dict[str, int]) -> None:
    """The job's size: what torchrun was told, else the launcher's variables."""
    each = launch.get("nproc_per_node")
    if each:
        nodes = launch.get("nnodes", 1)
        job.world = each * nodes or None
    elif len(job.processes) == 1:
        job.world = number_of(variables, WORLD_VARIABLES, MAX_RANK + 1) or None
    if job.world is not None and job.world < len(job.processes):
        job.world = None


def _by_mpi(report: Report, processes: list[Process], said: Said) -> bool:
    ranks = dict(said.mpi_ranks)
    table = report.small("MPI_RANKS")
    for g, rank in zip(table["globalTid"].to_pylist(), table["rank"].to_pylist(), strict=True):
        if g is not None and rank is not None and 0 <= rank <= MAX_RANK:
            ranks[g & ~TID_MASK] = rank
    for p in processes:
        rank = ranks.get(p.key)
        p.rank = rank if rank is None or rank <= MAX_RANK else None
    return any(p.rank is not None for p in processes)


def _by_payload(report: Report, job: Job, said: Said) -> bool:
    """By place in the largest communicator, where that gives each process a rank of its own."""
    places = {p.key: said.places[p.key][1] for p in job.processes if p.key in said.places}
    if not places or len(set(places.values())) < len(places):
        return False
    for p in job.processes:
        p.rank = places.get(p.key)
        p.by_payload = p.rank is not None
    report.odd(
        "rank_from_communicator",
        "a process's rank is its rank in its largest communicator",
        "info",
        count=len(places),
    )
    return True


def _by_surroundings(
    report: Report, job: Job, name: str, variables: dict[str, str], launch: dict[str, int]
) -> None:
    """From the variables of a process alone in its report, its file's name, or device order."""
    processes = job.processes
    if len(processes) == 1:
        rank = number_of(variables, RANK_VARIABLES)
        if rank is None or (job.world is not None and rank >= job.world):
            rank = rank_in_name(name)
        if rank is not None:
            processes[0].rank = rank if rank <= MAX_RANK else None
            return
    one_each = all(len(p.devices) == 1 for p in processes)
    places = sorted({(p.host or "", p.devices[0]) for p in processes}) if one_each else []
    if not one_each or len(places) < len(processes):
        return
    if job.world is not None and job.world > 1 and len(processes) == 1:
        return  # one of many, and nothing says which
    base = _first_rank(report, job, name, variables, launch)
    if base is None:
        return
    for p in processes:
        p.rank = base + places.index((p.host or "", p.devices[0]))
    report.odd(
        "rank_from_device",
        f"the ranks from {base} on follow the order of the devices, as nothing names them: one "
        "process a GPU",
    )


def _first_rank(
    report: Report, job: Job, name: str, variables: dict[str, str], launch: dict[str, int]
) -> int | None:
    """Rank of the report's first device: 0 on one node, else by the node's number."""
    n = len(job.processes)
    nodes = launch.get("nnodes") or number_of(variables, ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"))
    node = launch.get("node_rank")
    if node is None:
        node = number_of(variables, NODE_VARIABLES)
    if node is None:
        node = node_in_name(name)
    if nodes is not None and nodes > 1:
        return None if node is None else node * n
    return 0 if nodes == 1 or node is None else node * n
