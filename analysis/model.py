"""`retime model`: what a collective costs by algorithm and size, without a trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..ingest.errors import UsageError
from ..replay import models
from ..replay.calibration import machines, messages
from ..replay.models import curves, hierarchical, nccl, nccl_machines, traffic
from ..replay.models.hierarchical import Level
from ..replay.quantities import bandwidth_bytes_per_s, size_bytes, time_ns

LOW_BYTES, HIGH_BYTES = 64.0, float(1 << 34)
"""Sizes of the curves."""

SHOWN_BYTES = tuple(1 << k for k in (10, 15, 20, 25, 30))
"""Sizes of the table: 1 KiB, 32 KiB, 1 MiB, 32 MiB, 1 GiB."""

Quantity = str | float | None


class Links(NamedTuple):
    """What messages and bytes cost, inside hosts and between them."""

    inside: tuple[float, float]
    """alpha in ns, bandwidth in bytes/s."""
    outside: tuple[float, float] | None
    """None where all ranks are on one host."""
    nodes: int
    nics: int | None
    source: str
    """given, fabric or assumed."""
    words: str


def model(
    op: str,
    ranks: int,
    *,
    bytes: Quantity = None,
    alpha: Quantity = None,
    bandwidth: Quantity = None,
    algo: Sequence[str] = (),
    fabric: Any = None,
    nodes: int | None = None,
    inter_alpha: Quantity = None,
    inter_bandwidth: Quantity = None,
    nics: int | None = None,
    machine: str | None = None,
    channels: int | None = None,
    channel_bandwidth: Quantity = None,
    cpu: str = "intel",
) -> dict[str, Any]:
    """Costs of a collective by algorithm: closed forms, or NCCL's tuning model with `machine`.

    Quantities are numbers (ns, bytes, bytes/s) or text with units. `alpha` and `bandwidth` are of
    the links inside a host, `inter_*` of a NIC between hosts (`nodes` of them, `nics` each);
    `fabric` (a Fabric, file or preset) says all of them; what nobody says is assumed and marked.
    `algo` are the algorithms to compare (default: all that need no special hardware). `machine`
    (h100, ...) asks for NCCL's model; then alpha and bandwidth are its own, `channels` and
    `channel_bandwidth` replace those of the machine.

    Returns `op`, `n_ranks`, `n_nodes`, `model` (alpha-beta or nccl), links (`alpha_ns`,
    `bandwidth_bytes_per_s`, `inter_alpha_ns`, `inter_bandwidth_bytes_per_s`, `source`), `bytes` and
    `best` there, where asked; `algorithms` (each `algo`, `protocol`, `messages`, `volume`,
    `latency_ns`, `asymptotic_bytes_per_s`, `time_ns` at `bytes`, `times_ns` at `sizes_bytes`,
    `compared`, `needs`, `meaning`); `ranges` (`algo`, `protocol`, `from_bytes`, `to_bytes`: where
    it is best); `crossover_bytes` of the pair `crossover_of`; `crossovers` of every two compared;
    `curve` (`sizes_bytes` and `times_ns` by algorithm); `assumptions`. Raises UsageError.
    """
    size = _quantity("bytes", bytes, size_bytes)
    if size is not None and size < 0:
        raise UsageError(f"bytes={bytes}: a collective has 0 bytes or more")
    if ranks < 1:
        raise UsageError(f"{ranks} ranks: a collective has 1 or more")
    chosen = tuple(models.named(a) for a in algo)
    if machine is not None:
        if alpha is not None or bandwidth is not None or fabric is not None:
            raise UsageError(
                "NCCL's model has its own latencies and bandwidths: leave out alpha, bandwidth and "
                "fabric, or nccl"
            )
        gbps = _quantity("channel bandwidth", channel_bandwidth, bandwidth_bytes_per_s)
        found = nccl_machines.comm(
            machine,
            ranks,
            nodes or _nodes(machine, ranks),
            channels=channels,
            channel_gbps=None if gbps is None else gbps / 1e9,
            cpu=cpu,
        )
        return _by_nccl(op, found, machine, size, chosen)
    if channels is not None or channel_bandwidth is not None:
        raise UsageError("channels are of NCCL's model: say which machine, with nccl")
    links = _links(
        ranks,
        _quantity("alpha", alpha, time_ns),
        _quantity("bandwidth", bandwidth, bandwidth_bytes_per_s),
        _quantity("inter alpha", inter_alpha, time_ns),
        _quantity("inter bandwidth", inter_bandwidth, bandwidth_bytes_per_s),
        nodes,
        nics,
        fabric,
    )
    return _by_form(op, ranks, links, size, chosen)


def _quantity(name: str, value: Quantity, parse: Callable[[str], float]) -> float | None:
    if not isinstance(value, str):
        return value
    try:
        return parse(value)
    except ValueError as e:
        raise UsageError(f"{name} {value!r}: {e}") from e


def _nodes(machine: str, ranks: int) -> int:
    gpus = nccl.constants()["machines"].get(machine, {"gpus": 8})["gpus"]
    return 1 if ranks <= gpus else -(-ranks // gpus)


def _links(
    ranks: int,
    alpha: float | None,
    bandwidth: float | None,
    inter_alpha: float | None,
    inter_bandwidth: float | None,
    nodes: int | None,
    nics: int | None,
    fabric: Any,
) -> Links:
    if nodes is not None and (nodes < 1 or ranks % nodes):
        raise UsageError(f"{ranks} ranks do not divide over {nodes} nodes")
    inside = (machines.INTRA_ALPHA_NS, machines.GENERAL.intra_bytes_per_s)
    outside = (machines.INTER_ALPHA_NS, machines.GENERAL.nic_bytes_per_s)
    source, words = "assumed", f"links of an {machines.GENERAL.name} host, assumed"
    if fabric is not None:
        described = _described(fabric)
        inside, outside, per_host, nics_there = _of_fabric(described, inside, ranks)
        nodes = int(nodes or (-(-ranks // per_host) if ranks > per_host else 1))
        if ranks % nodes:
            raise UsageError(
                f"{ranks} ranks do not fill hosts of {per_host} GPUs evenly: give nodes"
            )
        nics = nics or min(nics_there, ranks // nodes) or None
        source, words = "fabric", f"links of fabric {described.name}"
    nodes = nodes or 1
    given = [alpha, bandwidth] + ([inter_alpha, inter_bandwidth] if nodes > 1 else [])
    if None not in given:
        source, words = "given", "links as given"
    elif any(g is not None for g in given):
        words += ", but for what is given"
    inside = tuple(
        g if g is not None else d for g, d in zip((alpha, bandwidth), inside, strict=True)
    )
    outside = tuple(
        g if g is not None else d
        for g, d in zip((inter_alpha, inter_bandwidth), outside, strict=True)
    )
    if any(b <= 0 for _, b in (inside, outside)) or any(a < 0 for a, _ in (inside, outside)):
        raise UsageError("alpha is 0 or more, and a bandwidth more than 0")
    return Links(inside, outside if nodes > 1 else None, nodes, nics, source, words)  # type: ignore[arg-type]


def _described(fabric: Any) -> Any:
    if hasattr(fabric, "gpus_per_host"):
        return fabric
    from ..replay import fabric as fabrics

    return fabrics.load(fabric)  # type: ignore[attr-defined]


def _of_fabric(fabric: Any, default: tuple[float, float], ranks: int):
    """(inside, outside, GPUs a host, NICs a host) of a described fabric that holds so many."""
    scale_up = fabric.scale_up or fabric.package or fabric.pcie
    inside = default
    if scale_up is not None:
        inside = (messages.inside_ns(fabric), scale_up.link.usable_bytes_per_s)
    per_host = max(fabric.gpus_per_host, fabric.domain_gpus)
    if fabric.nic is None:
        return inside, inside, per_host, 0
    alpha = messages.outside_ns(fabric, -(-ranks // fabric.gpus_per_host))
    outside = (alpha, fabric.nic.link.usable_bytes_per_s)
    domains = per_host // fabric.gpus_per_host
    return inside, outside, per_host, fabric.nic.count * domains


def _by_form(
    op: str, n: int, links: Links, size: float | None, chosen: tuple[str, ...]
) -> dict[str, Any]:
    flat = links.outside or links.inside
    nest = None
    if links.outside is not None and op in hierarchical.OPS and n > links.nodes:
        local = n // links.nodes
        nest = (
            Level(local, *links.inside),
            Level(links.nodes, *links.outside, ports=links.nics),
        )
    names = [a for a in models.algorithms(op) if models.fits(op, a, n)]
    names += ["hierarchical"] if nest else []
    for one in chosen:
        if one not in names:
            models.row(op, one)
            raise models.NoModel(f"{op} by {one} is not defined for {n} ranks")

    def cost(name: str, sizes: np.ndarray) -> np.ndarray:
        if name == "hierarchical":
            assert nest is not None
            return hierarchical.time_ns(op, nest, sizes)
        return models.time_ns(op, name, n, sizes, *flat)

    rows = [{"algo": name, "protocol": None, **_described_form(op, name, n)} for name in names]
    compared = chosen or tuple(r["algo"] for r in rows if not r["needs"]) or tuple(names)
    assumptions = [links.words]
    if links.outside is not None:
        assumptions.append(
            "every step of a flat algorithm is as slow as one NIC (NCCL runs a ring for each NIC, "
            "which share the bytes: --nccl)"
        )
    assumptions.append("a flat fabric: every two ranks are equally far, and no links are shared")
    out = {
        "op": op,
        "n_ranks": n,
        "n_nodes": links.nodes,
        "model": "alpha-beta",
        "alpha_ns": links.inside[0],
        "bandwidth_bytes_per_s": links.inside[1],
        "inter_alpha_ns": links.outside[0] if links.outside else None,
        "inter_bandwidth_bytes_per_s": links.outside[1] if links.outside else None,
        "source": links.source,
    }
    if op == "all_reduce" and size is not None:
        server = traffic.parameter_server(n, size)
        out["parameter_server"] = {"worker_bytes": server.worker_bytes, **server._asdict()}
    pair = ("ring", "tree") if {"ring", "tree"} <= {*names} and not chosen else None
    return out | _over_sizes(rows, cost, compared, size, pair) | {"assumptions": assumptions}


def _described_form(op: str, name: str, n: int) -> dict[str, Any]:
    if name == "hierarchical":
        return {
            "messages": None,
            "volume": None,
            "needs": "",
            "meaning": "level by level: inside hosts, between hosts, and back",
        }
    row, line = models.row(op, name), models.form(op, name)
    return {
        "messages": line.messages(n),
        "volume": line.volume(n),
        "needs": row.needs,
        "meaning": row.meaning,
    }


def _by_nccl(
    op: str, comm: nccl.Comm, machine: str, size: float | None, chosen: tuple[str, ...]
) -> dict[str, Any]:
    table = nccl.tuning(comm, op)
    rows, at = [], {}
    for a, algo in enumerate(nccl.ALGORITHMS):
        for p, proto in enumerate(nccl.PROTOCOLS):
            name = algo.replace("_", "-")
            if table.bandwidth_gbps[a, p] <= 0 or (chosen and name not in chosen):
                continue
            at[f"{name} {proto}"] = (a, p)
            rows.append(
                {
                    "algo": name,
                    "protocol": proto,
                    "latency_ns": table.latency_us[a, p] * 1e3,
                    "asymptotic_bytes_per_s": table.bandwidth_gbps[a, p] * 1e9,
                    "needs": "",
                    "meaning": "",
                }
            )
    if not rows:
        raise models.NoModel(f"NCCL offers none of {', '.join(chosen) or 'its algorithms'} here")

    def cost(name: str, sizes: np.ndarray) -> np.ndarray:
        return nccl.priced_ns(comm, table, sizes)[at[name]]

    out = {
        "op": op,
        "n_ranks": comm.n_ranks,
        "n_nodes": comm.n_nodes,
        "model": "nccl",
        "machine": machine,
        "channels": comm.channels,
        "source": "nccl",
    }
    assumptions = [
        "NCCL's tuning model: what it reckons with to choose, not what the collective will take",
        f"channels and what they carry are those of {machine} hosts, or given",
    ]
    return out | _over_sizes(rows, cost, tuple(at), size, None) | {"assumptions": assumptions}


def _name(row: dict[str, Any]) -> str:
    return row["algo"] if row["protocol"] is None else f"{row['algo']} {row['protocol']}"


def _over_sizes(
    rows: list[dict[str, Any]],
    cost: curves.Cost,
    compared: tuple[str, ...],
    size: float | None,
    pair: tuple[str, str] | None,
) -> dict[str, Any]:
    shown = np.array(SHOWN_BYTES, np.float64)
    sizes = curves.grid(LOW_BYTES, HIGH_BYTES, 4)
    by_name = {_name(r): r for r in rows}
    for name, r in by_name.items():
        r["compared"] = name in compared
        r["times_ns"] = cost(name, shown).tolist()
        if size is not None:
            r["time_ns"] = float(cost(name, np.array([size]))[0])
    best = curves.ranges(cost, compared)
    found = []
    for i, first in enumerate(compared):
        for second in compared[i + 1 :]:
            at = curves.crossing(cost, first, second)
            if at is not None:
                found.append({"first": first, "second": second, "crossover_bytes": at})
    if pair is None:
        ends = [r.name for r in best]
        pair = (ends[0], next((e for e in ends[1:] if e != ends[0]), ends[0]))
    out: dict[str, Any] = {
        "crossover_bytes": None if pair[0] == pair[1] else curves.crossing(cost, *pair),
        "crossover_of": None if pair[0] == pair[1] else list(pair),
        "ranges": [
            {
                "algo": by_name[r.name]["algo"],
                "protocol": by_name[r.name]["protocol"],
                "from_bytes": r.from_bytes,
                "to_bytes": r.to_bytes,
            }
            for r in best
        ],
        "crossovers": found,
        "algorithms": rows,
        "sizes_bytes": list(SHOWN_BYTES),
        "curve": {
            "sizes_bytes": sizes.tolist(),
            "times_ns": {name: cost(name, sizes).tolist() for name in by_name},
        },
    }
    if size is not None:
        fastest = min((by_name[name] for name in compared), key=lambda r: r["time_ns"])
        out |= {"bytes": size, "best": _name(fastest)}
    return out
