"""The processes of a report and the rank, host and device of each."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np

from ..errors import RankUnknown, UsageError
from ..schema import MAX_RANK
from .arrow import compute as pc
from .columns import GRAPH, KERNEL, MEMCPY, MEMSET, NVTX, RUNTIME
from .tables import Report

RANK_VARIABLES = (
    "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID",
)  # fmt: skip
WORLD_VARIABLES = (
    "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_NTASKS",
)  # fmt: skip
LOCAL_VARIABLES = (
    "LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_LOCAL_RANK",
    "SLURM_LOCALID",
)  # fmt: skip
NODE_VARIABLES = ("GROUP_RANK", "NODE_RANK", "SLURM_NODEID")

TID_MASK = 0xFFFFFF

_NAMED = re.compile(r"(?<![a-z])(?:rank|proc|process|r)[-_.=]?(\d{1,7})(?!\d)", re.I)
_NODE = re.compile(r"(?<![a-z])(?:node|host)[-_.=]?(\d{1,6})(?!\d)", re.I)


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


def process_key(global_id: np.ndarray) -> np.ndarray:
    """globalPid of a globalTid or globalPid."""
    return global_id & ~np.int64(TID_MASK)


def pid_of(key: int) -> int:
    """Number of the process on its host."""
    return (key >> 24) & TID_MASK


def environment(report: Report) -> dict[str, str]:
    """Variables of the session: that of the program nsys was started with."""
    out: dict[str, str] = {}
    for name, value in report.pairs("TARGET_INFO_SYSTEM_ENV").items():
        if name == "DeviceEnvironment":
            for part in value.replace("\0", ";").split(";"):
                key, _, text = part.partition("=")
                out.setdefault(key, text)
    capture = report.small("META_DATA_CAPTURE")
    for name, value in zip(capture["name"].to_pylist(), capture["value"].to_pylist(), strict=True):
        if name and name.endswith("ENVIRONMENT_VARIABLE") and value:
            key, _, text = value.partition("=")
            out.setdefault(key, text.strip('"'))
    return out


def number_of(
    variables: dict[str, str], names: tuple[str, ...], most: int = MAX_RANK
) -> int | None:
    """The first of these variables that is a number."""
    for name in names:
        text = variables.get(name, "").strip()
        if text.isascii() and text.isdigit() and len(text) < 9 and int(text) <= most:
            return int(text)
    return None


def rank_in_name(name: str) -> int | None:
    """The rank that a file's own name tells (`report_rank3.sqlite`, `proc1`); None for none."""
    for part in reversed(name.replace("!", "/").split("/")[-3:]):
        found = _NAMED.search(part)
        if found:
            return int(found.group(1))
    return None


def job_of(report: Report, name: str, asked: int | None, said: dict[int, int]) -> Job:
    """The job's processes with their ranks.

    `asked` is the rank that the user gave, `said` what payloads of communicator creation say:
    place in its largest communicator by process. Raises RankUnknown where nothing tells the
    ranks, UsageError where one rank was given for several processes.
    """
    job = _found(report)
    processes = job.processes
    if not processes:
        return job
    variables = environment(report)
    launch = _launch(report)
    _world(job, variables, launch)
    if asked is not None:
        if len(processes) > 1:
            raise UsageError(
                f"{name}: holds {len(processes)} processes with ranks of their own; drop --rank"
            )
        processes[0].rank = asked
    elif not (_by_mpi(report, processes) or _by_payload(report, job, said)):
        _by_surroundings(report, job, name, variables, launch)
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


def _found(report: Report) -> Job:
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
    on_host: set[int] = set()
    for table in (RUNTIME, NVTX, "NCCL_GPU_OPERATIONS"):
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


def _launch(report: Report) -> dict[str, int]:
    """Numbers of a torchrun command line: nnodes, nproc_per_node, node_rank."""
    capture = report.small("META_DATA_CAPTURE")
    words = [
        v or ""
        for n, v in zip(capture["name"].to_pylist(), capture["value"].to_pylist(), strict=True)
        if n and ":ARGUMENT_" in n
    ]
    out: dict[str, int] = {}
    for i, word in enumerate(words):
        key, _, value = word.lstrip("-").partition("=")
        key = key.replace("-", "_")
        if key in ("nnodes", "nproc_per_node", "node_rank") and word.startswith("--"):
            value = value or (words[i + 1] if i + 1 < len(words) else "")
            if value.isascii() and value.isdigit() and len(value) < 8:
                out.setdefault(key, int(value))
    return out


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


def _by_mpi(report: Report, processes: list[Process]) -> bool:
    ranks: dict[int, int] = {}
    table = report.small("MPI_RANKS")
    for g, rank in zip(table["globalTid"].to_pylist(), table["rank"].to_pylist(), strict=True):
        if g is not None and rank is not None and 0 <= rank <= MAX_RANK:
            ranks.setdefault(g & ~TID_MASK, rank)
    for batch in report.batches(NVTX, "eventType", "text", "globalTid"):
        # MPI tracing names the thread; it is all that exports before MPI_RANKS have.
        for row in batch.filter(pc.equal(batch["eventType"], 39)).to_pylist():
            found = re.fullmatch(r"MPI Rank (\d{1,7})", row["text"] or "")
            if found and row["globalTid"] is not None:
                ranks.setdefault(row["globalTid"] & ~TID_MASK, int(found.group(1)))
    for p in processes:
        p.rank = ranks.get(p.key)
    return any(p.rank is not None for p in processes)


def _by_payload(report: Report, job: Job, said: dict[int, int]) -> bool:
    for p in job.processes:
        p.rank = said.get(p.key)
        p.by_payload = p.rank is not None
    if not any(p.rank is not None for p in job.processes):
        return False
    report.odd(
        "rank_from_communicator",
        "a process's rank is its rank in its largest communicator",
        "info",
        count=len(job.processes),
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
        found = _NODE.search(name.replace("!", "/").rsplit("/", 1)[-1])
        node = int(found.group(1)) if found else None
    if nodes is not None and nodes > 1:
        return None if node is None else node * n
    return 0 if nodes == 1 or node is None else node * n
