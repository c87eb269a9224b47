"""Which machine each rank ran on, where the traces say so or leave only one reading."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from .. import schema
from .participations import ints

EPOCH = (None, "host", "recorded", "none")
"""Words of `clock` that mean the host's time of day, as far as anybody knows."""


def place(ranks: pa.Table) -> pa.Table:
    """The `ranks` table with host, host_source and local_rank filled, same rows and order.

    A recorded host stays. Otherwise hosts are inferred when every rank's device is its rank
    modulo the devices of a host (the launchers' layout): `host0`, `host1`, ... in rank order. The
    number of devices is what the processes saw; where no process says, the highest device in use,
    and then only if the ranks seen wrap around it or the whole job is no larger. What cannot be
    inferred has a null host and host_source `unknown`: such a rank is on a clock of its own.
    """
    host = ranks.column("host").to_pylist()
    rank = ints(ranks, "rank")
    device = ints(ranks, "device")
    local = ints(ranks, "local_rank")
    source = ["recorded" if h is not None else "unknown" for h in host]
    if not any(h is not None for h in host):
        per_host = _devices_per_host(
            rank, device, ints(ranks, "n_devices"), ints(ranks, "world_size")
        )
        if per_host is not None:
            host = [f"host{r // per_host}" for r in rank.tolist()]
            source = ["inferred"] * len(host)
            local = np.where(local < 0, rank % per_host, local)
    known = np.array([s != "unknown" for s in source], dtype=bool)
    local = np.where((local < 0) & known, device, local)
    for name, values in (
        ("host", pa.array(host, pa.string())),
        ("host_source", pa.array(source, pa.string())),
        ("local_rank", pa.array(local, pa.int32(), mask=local < 0)),
    ):
        ranks = replace_column(ranks, schema.RANKS, name, values)
    return ranks


def clock_domains(ranks: pa.Table) -> np.ndarray:
    """A small integer a row of `ranks`: equal for ranks of one clock, that of their host.

    A rank without a host has its own, and so has one whose times count from a zero of its process.
    What counts from another zero than the host's epoch (since it started) is another clock of that
    host. Numbered by the lowest rank in each, ranks without times after all others, so that domain
    0 holds the lowest rank with any.
    """
    host = ranks.column("host").to_pylist()
    clock = ranks.column("clock").to_pylist()
    rank = ranks.column("rank").to_pylist()
    keys = [
        (c if c not in EPOCH else "", r if h is None or c == "process" else h)
        for h, c, r in zip(host, clock, rank, strict=True)
    ]
    codes: dict[object, int] = {}
    untimed = np.array([c == "none" for c in clock], dtype=bool)
    number = np.array([-1 if r is None else r for r in rank], dtype=np.int64)
    for i in np.lexsort((number, untimed)).tolist():
        codes.setdefault(keys[i], len(codes))
    return np.array([codes[k] for k in keys], dtype=np.int64)


def replace_column(
    table: pa.Table, declared: schema.Table, name: str, values: pa.Array | pa.ChunkedArray
) -> pa.Table:
    """`table` with one column replaced, cast to the type that its schema declares."""
    field = declared.schema.field(name)
    if values.type != field.type:
        values = values.cast(field.type)
    return table.set_column(table.schema.get_field_index(name), field, values)


def _devices_per_host(
    rank: np.ndarray, device: np.ndarray, n_devices: np.ndarray, world: np.ndarray
) -> int | None:
    if len(rank) == 0 or device.min() < 0:
        return None
    if n_devices.min() > 0:
        if n_devices.min() != n_devices.max():
            return None
        per_host = int(n_devices[0])
    elif n_devices.max() > 0:
        return None
    else:
        per_host = int(device.max()) + 1
        wraps = int(rank.max()) >= per_host
        if not wraps and int(world.max()) != per_host:
            return None
    # one visible device a process says nothing: containers show each process its own as number 0
    if per_host < 2 or np.any(device != rank % per_host):
        return None
    return per_host
