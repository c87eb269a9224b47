"""One host's devices out of `topology` rows: where its GPUs and NICs hang, what joins GPUs."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import polars as pl

TREE_KINDS = ("cpu", "pci", "gpu", "nic", "nvlink", "xgmi")

_MOST_ROWS = 100_000


class Place(NamedTuple):
    """Where a device hangs: its NUMA node and the PCI bridge nearest its root ("" for neither)."""

    name: str
    numa: int
    bridge: str
    pci_bytes_per_s: float
    """Of its own PCI link; 0 where it is not known."""
    bytes_per_s: float
    """Of the device itself (a NIC's port); 0 where it is not known."""


class Tree(NamedTuple):
    """A host: GPUs and NICs in the order of their numbers, links between GPUs, bridges."""

    gpus: tuple[Place, ...]
    nics: tuple[Place, ...]
    peers: tuple[dict[int, float], ...]
    """By GPU: bytes/s of the direct links to each other GPU of the host; -1: into a switch."""
    links: str
    """`nvlink`, `xgmi` or "" where no link is told."""
    bridge_bytes_per_s: float
    """The usual PCI link of those bridges; 0 where it is not known."""


def tree(rows: pl.DataFrame) -> Tree:
    """The host that the rows of one topology describe; rows told more than once count once."""
    columns = ("kind", "device", "peer", "bandwidth_bytes_per_s", "numa")
    texts = [pl.col(c).cast(pl.String) for c in columns[:3]]
    rows = rows.select(*texts, *columns[3:]).filter(pl.col("kind").is_in(TREE_KINDS))
    rows = rows.unique(maintain_order=True).head(_MOST_ROWS)
    found: dict[str, list[dict]] = {kind: [] for kind in TREE_KINDS}
    for row in rows.iter_rows(named=True):
        found[row["kind"]].append(row)
    pci = {r["device"]: r for r in found["pci"] if r["device"]}
    gpus = tuple(sorted((_place(r, pci) for r in _once(found["gpu"])), key=_number))
    nics = tuple(_place(r, pci) for r in _once(found["nic"]))
    names = {g.name: i for i, g in enumerate(gpus)}
    peers: list[dict[int, float]] = [{} for _ in gpus]
    said = ""
    for kind in ("nvlink", "xgmi"):
        for row in found[kind]:
            me = names.get(row["device"])
            if me is None:
                continue
            said = kind
            other = names.get(row["peer"], -1)
            rate = float(row["bandwidth_bytes_per_s"] or 0)
            peers[me][other] = peers[me].get(other, 0.0) + rate
    bridges = Counter(
        pci[p.bridge]["bandwidth_bytes_per_s"] for p in gpus if p.bridge in pci
    )  # fmt: skip
    usual = bridges.most_common(1)[0][0] if bridges else None
    return Tree(gpus, nics, tuple(peers), said, float(usual or 0))


def _once(rows: list[dict]) -> list[dict]:
    """The rows of different devices, the first of each."""
    return list({r["device"]: r for r in reversed(rows) if r["device"]}.values())[::-1]


def _number(place: Place) -> tuple[int, int]:
    """gpu7 by its number; devices without one as they come (a stable sort)."""
    digits = place.name.removeprefix("gpu")
    return (0, int(digits)) if digits.isascii() and digits.isdigit() else (1, 0)


def _place(row: dict, pci: dict[str, dict]) -> Place:
    """Climbs from a device to the bridge under its root; a loop in the rows ends the climb."""
    own = pci.get(row["peer"])
    top, seen = own, set()
    while top is not None and top["peer"] in pci and top["device"] not in seen:
        seen.add(top["device"])
        top = pci[top["peer"]]
    bridge = top["device"] if top is not None and top is not own else ""
    return Place(
        row["device"],
        -1 if row["numa"] is None else row["numa"],
        bridge,
        float((own or {}).get("bandwidth_bytes_per_s") or 0),
        float(row["bandwidth_bytes_per_s"] or 0),
    )
