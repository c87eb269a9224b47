"""The parsed tables of a fabric file as the parts of a Fabric, with defaults that follow."""

from __future__ import annotations

from typing import Any

from .description import (
    Background,
    BadFabric,
    Fabric,
    LinkClass,
    Network,
    Nic,
    Optical,
    Package,
    Pcie,
    ScaleUp,
    Storage,
    TrafficClass,
)

LINK_FIELDS = {
    "link": "name",
    "bandwidth": "bandwidth_bytes_per_s",
    "efficiency": "efficiency",
    "alpha": "alpha_ns",
    "incast_gamma": "incast_gamma",
    "incast_free": "incast_free",
    "messages_per_s": "messages_per_s",
    "connections": "connections",
    "crowded_connections": "crowded_connections",
    "crowded_loss": "crowded_loss",
}
"""What a link's keys in a file are called in LinkClass."""


def _need(table: dict[str, Any], name: str, *keys: str) -> None:
    for key in keys:
        if key not in table:
            raise BadFabric(f"[{name}] has no {key}: add one" if name else f"no {key}: add one")


def _link(table: dict[str, Any], name: str, **default: Any) -> LinkClass:
    """The class that a table's link keys describe."""
    given = {field: table[key] for key, field in LINK_FIELDS.items() if key in table}
    return LinkClass(**{"name": name, **default, **given})


def fabric(found: dict[str, Any], gpus: int | None) -> Fabric:
    """The fabric of a file's tables (by dotted name, values parsed). Raises BadFabric."""
    top = found[""]
    _need(top, "", "name", "gpus_per_host")
    per_host = top["gpus_per_host"]
    nic = _nic(found, per_host)
    return Fabric(
        name=top["name"],
        device=top.get("device", ""),
        hosts=hosts_of(top.get("gpus"), per_host, top.get("hosts")) if gpus is None
        else hosts_of(gpus, per_host),
        gpus_per_host=per_host,
        scale_up=_scale_up(found.get("scale_up"), per_host),
        package=_package(found.get("package")),
        pcie=_pcie(found),
        nic=nic,
        network=_network(found, nic),
        optical=_optical(found.get("optical"), nic),
        storage=_storage(found),
        background=tuple(Background(**row) for row in found["background"]),
        traffic=tuple(TrafficClass(**row) for row in found["traffic"]),
    )  # fmt: skip


def hosts_of(gpus: int | None, per_host: int, hosts: int | None = None) -> int:
    """How many hosts `gpus` fill; less than a host is one. Raises BadFabric where they do not."""
    if gpus is None:
        return 1 if hosts is None else hosts
    if hosts is not None and hosts * per_host != gpus:
        raise BadFabric(
            f"gpus is {gpus}, but {hosts} hosts of {per_host} have {hosts * per_host}: give one of "
            "hosts and gpus"
        )
    if gpus < 1:
        raise BadFabric(f"gpus is {gpus}: 1 or more would work")
    if gpus > per_host and gpus % per_host:
        below = gpus // per_host * per_host
        raise BadFabric(
            f"{gpus} GPUs do not fill hosts of {per_host}: {below} or {below + per_host} would"
        )
    return max(1, gpus // per_host)


def _scale_up(table: dict[str, Any] | None, per_host: int) -> ScaleUp | None:
    if table is None:
        return None
    _need(table, "scale_up", "bandwidth")
    return ScaleUp(
        _link(table, "scale_up"), table.get("domain", per_host), table.get("shape", "switch")
    )


def _package(table: dict[str, Any] | None) -> Package | None:
    if table is None:
        return None
    _need(table, "package", "bandwidth", "rows", "columns")
    more = {k: table[k] for k in ("shape", "fanout") if k in table}
    return Package(_link(table, "die"), table["rows"], table["columns"], **more)


def _pcie(found: dict[str, Any]) -> Pcie | None:
    table = found.get("pcie")
    if table is None:
        return None
    _need(table, "pcie", "bandwidth")
    link = _link(table, "pcie")
    kept = {k: table[k] for k in ("sockets", "switches", "p2p", "gpu_direct") if k in table}
    inner = {
        "switch": {"name": "pcie_switch", "efficiency": link.efficiency},
        "socket": {"name": "socket"},
        "memory": {"name": "memory"},
    }
    for key, default in inner.items():
        below = found.get(f"pcie.{key}")
        if below is not None:
            _need(below, f"pcie.{key}", "bandwidth")
            kept[key] = _link(below, **default)
    return Pcie(link, **kept)


def _nic(found: dict[str, Any], per_host: int) -> Nic | None:
    table, pcie = found.get("nic"), found.get("pcie") or {}
    if table is None:
        return None
    _need(table, "nic", "bandwidth")
    count = table.get("count", per_host)
    serves = table.get("serves")
    rails = table.get("rails") or (min(count, per_host) if serves is None else max(serves) + 1)
    if rails > count:
        raise BadFabric(f"[nic] count is {count}, fewer than its {rails} rails")
    if serves is None:
        serves = tuple(g * rails // per_host for g in range(per_host))
    at = table.get("at")
    if at is None:
        under = pcie.get("switches") or pcie.get("sockets") or 1
        first = [serves.index(r) if r in serves else 0 for r in range(rails)]
        at = tuple(g * under // per_host for g in first)
    if len(at) != rails:
        raise BadFabric(f"[nic] at has {len(at)} places for {rails} rails: give one a rail")
    return Nic(_link(table, "nic"), count, serves, at, table.get("planes", 1))


def _network(found: dict[str, Any], nic: Nic | None) -> Network | None:
    table = found.get("network")
    if table is None:
        return None
    if nic is None:
        raise BadFabric("[network] without NICs: add [nic]")
    _need(table, "network", "wiring")
    kept = dict(table)
    rails = 1 if table["wiring"] == "rail" else nic.rails
    if "hosts_per_leaf" not in kept:
        _need(table, "network", "radix")
        kept["hosts_per_leaf"] = max(1, table["radix"] // 2 // rails)
    if "uplinks" not in kept:
        ports = kept["hosts_per_leaf"] * (nic.count // nic.rails) * rails
        kept["uplinks"] = max(1, round(ports / table.get("oversubscription", 1.0)))
        if kept["uplinks"] > 4096:
            raise BadFabric("[network] has no uplinks: give how many a leaf has, up to 4096")
    for key in ("leaf", "core"):
        below = found.get(f"network.{key}", {})
        kept[key] = _link(below, key, efficiency=nic.link.efficiency)
    return Network(**kept)


def _optical(table: dict[str, Any] | None, nic: Nic | None) -> Optical | None:
    if table is None:
        return None
    _need(table, "optical", "switches", "reconfigure")
    default = {} if nic is None else {"bandwidth_bytes_per_s": nic.link.bandwidth_bytes_per_s,
                                      "efficiency": nic.link.efficiency}  # fmt: skip
    return Optical(
        _link(table, "optical", **default),
        table["switches"],
        table["reconfigure"],
        table.get("hold", 0.0),
        table.get("schedule", "ready"),
    )


def _storage(found: dict[str, Any]) -> Storage | None:
    table = found.get("storage")
    if table is None:
        return None
    return Storage(
        table.get("attach", "shared"),
        _link(table, "storage"),
        _link(found.get("storage.server", {}), "storage_server"),
        _link(found.get("storage.staging", {}), "nvme"),
    )
