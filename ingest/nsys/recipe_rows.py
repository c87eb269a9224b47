"""Rows of a recipe's projected NVTX ranges, with what the metadata tables beside it say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from .. import classify, parquet_in
from ..collect import Collector
from ..errors import UnusableInput, line_of
from ..kineto.steps import HostSteps, device_windows, host_steps, numbers_of, steps_batch
from ..kineto.steps import step_index_at as index_at
from ..parquet_in import Parquet
from ..schema import MAX_RANK, event_id
from . import stepnames
from .columns import INT, TEXT
from .comms import MOST_MEMBERS, WORLD
from .encode import coded, same
from .fit import OnOdd, fit
from .recipe_meta import device_of, pairs, ranks_of
from .rows import events
from .surroundings import WORLD_VARIABLES, number_of
from .times import LATEST_NS, MAX_DUR_NS

if TYPE_CHECKING:
    from ..sources import Source

TRACE = {
    "Name": TEXT, "Projected Start": INT, "Projected Duration": INT, "Orig Start": INT,
    "Orig Duration": INT, "PID": INT, "TID": INT, "NumGPUOps": INT, "Rank": INT,
}  # fmt: skip
NEEDED = ("Name", "Projected Start", "Projected Duration")

_HLO_OP = re.compile(
    r"[#,]hlo_op=(all-reduce|all-gather|reduce-scatter|all-to-all|ragged-all-to-all|"
    r"collective-permute|collective-broadcast)(?:-start)?[.\d]{0,20}(?=[,#])"
)
_OPS = {
    "all-reduce": "all_reduce", "all-gather": "all_gather", "reduce-scatter": "reduce_scatter",
    "all-to-all": "all_to_all", "ragged-all-to-all": "all_to_all",
    "collective-permute": "send_recv", "collective-broadcast": "broadcast",
}  # fmt: skip
_MODULE = re.compile(r"TSL:XlaModule:#(?:[^#]{0,400},)?hlo_module=([^,#]{1,400})[,#]")
_NCCL = re.compile(r"(?:NCCL:)?nccl([A-Z][A-Za-z]{1,30})")

MOST_NAME = 2000


def tables_of(source: Source, asked: int | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yields (table, batch); the rows of `events` by rank in order of start."""
    c = Collector(source)
    tables = _read(source, c.odd)
    trace = tables.get("trace")
    if trace is None or not trace.num_rows:
        raise UnusableInput(
            "no nvtx_gpu_proj_trace/trace.parquet with rows: is it the output of "
            "nsys recipe nvtx_gpu_proj_trace?",
            path=source.name,
        )
    system = pairs(tables.get("system-metadata"))
    variables: dict[str, str] = {}
    for part in system.get("DeviceEnvironment", "").replace("\0", ";").split(";"):
        key, _, text = part.partition("=")
        variables.setdefault(key, text)
    device = device_of(tables.get("device-metadata"))
    of_file = trace["Rank"].fill_null(0).to_numpy()
    row, start, end = _spans(trace, c.odd)
    world = number_of(variables, WORLD_VARIABLES, MAX_RANK + 1)
    ranks = ranks_of(source.name, np.unique(of_file).tolist(), asked, tables, variables, device, c)
    c.odd(
        "no_session_start",
        "recipe tables do not say when their session began: times count from a zero of their own, "
        "comparable between ranks only as far as their collectives align them; export the reports "
        "for more (nsys export)",
        "info",
    )
    for number, rank in ranks.items():
        mine = np.flatnonzero(of_file[row] == number)
        mine = mine[np.argsort(start[mine], kind="stable")]
        if not len(mine):
            continue
        part = trace.take(pa.array(row[mine]))
        comm = WORLD if world is not None and 1 < world <= MOST_MEMBERS else None
        yield from _of_rank(c, rank, comm, part, row[mine], start[mine], end[mine])
        pids = part["PID"].drop_null().to_pylist()
        c.add(
            "ranks",
            rank=rank,
            host=system.get("Hostname") or None,
            host_source="recorded" if system.get("Hostname") else "unknown",
            local_rank=number_of(variables, ("SLURM_LOCALID", "LOCAL_RANK"))
            if len(ranks) == 1 else None,
            device=device.get("deviceId"),
            device_name=device.get("name"),
            n_sms=device.get("smCount"),
            world_size=world,
            start_ns=int(start[mine].min()),
            end_ns=int(end[mine].max()),
            clock="process",
            pid=pids[0] if pids else None,
            source=source.name,
        )  # fmt: skip
    if world is not None and 1 < world <= MOST_MEMBERS:
        c.add(
            "comms", comm=WORLD, ranks=list(range(world)), size=world, dim="world",
            dim_source="members", backend="nccl",
        )  # fmt: skip
    yield from c.rest()


def _read(source: Source, odd: OnOdd) -> dict[str, pa.Table]:
    """The tables by the stem of their file; one that cannot be read is a problem."""
    out: dict[str, pa.Table] = {}
    for member in source.members:
        stem = member.name.replace("!", "/").rsplit("/", 1)[-1].removesuffix(".parquet")
        if stem == "thread-metadata":
            continue
        try:
            with member.as_file() as path, parquet_in.opened(path) as file:
                if stem == "trace":
                    out[stem] = _declared(file, member.name, odd)
                else:
                    out[stem] = file.table(text=False)
        except parquet_in.TROUBLE as e:
            odd("damaged_table", f"{stem}.parquet cannot be read ({line_of(e)})", "lost")
    return out


def _declared(file: Parquet, name: str, odd: OnOdd) -> pa.Table:
    present = file.schema.names
    lack = [n for n in NEEDED if n not in present]
    if lack:
        raise UnusableInput(f"trace.parquet has no column {', '.join(lack)}", path=name)
    read = file.table([n for n in TRACE if n in present], text=False)
    n = read.num_rows
    return pa.table(
        {
            c: fit(read[c], kind, odd, f"trace.{c}") if c in present
            else pa.nulls(n, pa.string() if kind == TEXT else pa.int64())
            for c, kind in TRACE.items()
        }
    )  # fmt: skip


def _spans(trace: pa.Table, odd: OnOdd) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    start = trace["Projected Start"].fill_null(-1).to_numpy()
    duration = trace["Projected Duration"].fill_null(-1).to_numpy()
    good = (start >= 0) & (start < LATEST_NS) & (duration >= 0) & (duration < MAX_DUR_NS)
    if not good.all():
        odd(
            "row_without_time",
            "ranges without a usable projected time: left out",
            "lost",
            count=int((~good).sum()),
        )
    row = np.flatnonzero(good)
    return row, start[row], start[row] + duration[row]


def _of_rank(
    c: Collector,
    rank: int,
    comm: str | None,
    part: pa.Table,
    row: np.ndarray,
    start: np.ndarray,
    end: np.ndarray,
) -> Iterator[tuple[str, pa.RecordBatch]]:
    names = part["Name"].fill_null("all work of the thread").to_pylist()
    host = part["Orig Start"].fill_null(-1).to_numpy()
    length = part["Orig Duration"].fill_null(-1).to_numpy()
    on_host = (host >= 0) & (host < LATEST_NS) & (length >= 0) & (length < MAX_DUR_NS)
    steps, chosen = _steps(names, start, end, host, length, on_host)
    ids = event_id(rank, "nsys-recipe", 0) + 2 * row.astype(np.int64)
    words = pa.array(names, pa.string()).dictionary_encode()
    device_step = numbers_of(steps, index_at(steps, np.where(on_host, host, start)))
    null = np.iinfo(np.int64).min
    n = len(row)
    yield from _as(
        events(
            {
                "rank": np.full(n, rank, np.int32),
                "event_id": ids,
                "kind": same("gpu_annotation", n),
                "name": words,
                "start_ns": start,
                "dur_ns": end - start,
                "step": pa.array(device_step, mask=device_step == null),
            }
        )
    )
    at = np.flatnonzero(on_host)
    at = at[np.argsort(host[at], kind="stable")]
    tid = part["TID"].fill_null(0).to_numpy()
    yield from _as(
        events(
            {
                "rank": np.full(len(at), rank, np.int32),
                "event_id": ids[at] + 1,
                "kind": same("annotation", len(at)),
                "name": words.take(pa.array(at)),
                "thread": coded(tid[at], str),
                "start_ns": host[at],
                "dur_ns": length[at],
                "step": pa.array(device_step[at], mask=device_step[at] == null),
            }
        )
    )
    if len(steps.number):
        begin, stop = device_windows(
            steps, np.arange(len(steps.number)), start[chosen], end[chosen]
        )
        yield "steps", steps_batch(steps, begin, stop, rank)
    seen = _collectives(c, rank, comm, part, names, ids, start, end, device_step)
    c.odd(
        "kernels_not_in_it",
        "recipe tables hold the device time of ranges and no kernels: compute cannot be told from "
        "idle, so what is no collective shows as idle; export the report for kernels (nsys export)",
        rank=rank,
    )
    if seen:
        c.odd(
            "collective_from_range",
            "collectives are the device time of the ranges that launched them: their groups and "
            "sizes are not known",
            "info",
            rank=rank,
            count=seen,
        )


def _as(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
    for batch in batches:
        yield "events", batch


def _steps(
    names: list[str], start: np.ndarray, end: np.ndarray, host: np.ndarray, length: np.ndarray,
    on_host: np.ndarray,
) -> tuple[HostSteps, np.ndarray]:  # fmt: skip
    """Steps by their ranges on the host, and the row of each; XLA's compiled step counts too."""
    families: dict[str, int] = {}
    found: list[tuple[int, int, int]] = []
    for i in np.flatnonzero(on_host).tolist():
        name = names[i][:MOST_NAME]
        module = _MODULE.match(name)
        if module:
            step = (module.group(1), -1) if "step" in module.group(1) else None
        else:
            step = stepnames.step_of(name.rpartition(":")[2])
        if step:
            found.append((i, families.setdefault(step[0], len(families)), step[1]))
    at, family, number = np.array(found, np.int64).reshape(-1, 3).T
    rows, numbers = stepnames.choose(
        family, np.zeros(len(at), np.int64), number, host[at], host[at] + length[at]
    )
    chosen = at[rows]
    steps, _ = host_steps(numbers, host[chosen], host[chosen] + length[chosen])
    order: dict[int, int] = {}
    for n, i in zip(numbers.tolist(), chosen.tolist(), strict=True):
        order.setdefault(n, i)
    return steps, np.array([order[n] for n in steps.number.tolist()], np.int64)


def _collectives(
    c: Collector, rank: int, comm: str | None, part: pa.Table, names: list[str], ids: np.ndarray,
    start: np.ndarray, end: np.ndarray, step: np.ndarray,
) -> int:  # fmt: skip
    n_ops = part["NumGPUOps"].fill_null(0).to_numpy()
    xla = [_HLO_OP.search(n[:MOST_NAME]) if n.startswith("TSL:Thunk") else None for n in names]
    seen = 0
    for i, found in enumerate(xla):
        if found:
            op = _OPS[found.group(1)]
        elif (call := _NCCL.fullmatch(names[i])) and not any(xla):
            op = classify.op_of_collective_name(call.group(1)) or "unknown"
            if op in ("unknown", "barrier"):
                continue
        else:
            continue
        if n_ops[i] < 1:
            continue
        seen += 1
        c.add(
            "collectives",
            rank=rank,
            op=op,
            comm=comm,
            start_ns=int(start[i]),
            end_ns=int(end[i]),
            step=None if step[i] == np.iinfo(np.int64).min else int(step[i]),
            event_id=int(ids[i]),
            coalesced=int(n_ops[i]) if n_ops[i] > 1 else None,
            timing="kernel",
            clock="process",
            source="nsys",
        )
    return seen
