"""Whether a fabric's parts fit together: sizes divide, every GPU reaches every other."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .description import Fabric, LinkClass

MAX_GPUS = 1 << 20
"""More endpoints than any one job; the link graph holds arrays of a few numbers each."""

MAX_LINKS = 1 << 25
"""Links of the whole graph: pairwise wiring of huge domains would not fit in memory."""


def check(fabric: Fabric) -> None:
    """Raises BadFabric, one sentence that says what does not fit and what would."""
    for part in (_sizes, _scale_up, _package, _pcie, _nic, _network, _others, _connected):
        part(fabric)


def _bad(said: str):
    from .description import BadFabric

    return BadFabric(said)


def _need(good: bool, said: str) -> None:
    if not good:
        raise _bad(said)


def _sizes(f: Fabric) -> None:
    _need(f.hosts >= 1, f"hosts is {f.hosts}: a fabric has at least one")
    _need(f.gpus_per_host >= 1, f"gpus is {f.gpus_per_host}: a host has at least one")
    _need(f.gpus <= MAX_GPUS, f"{f.gpus} GPUs: at most {MAX_GPUS} can be simulated")


def _link(link: LinkClass, where: str, *, needed: bool = True) -> None:
    rate = link.bandwidth_bytes_per_s
    _need(
        math.isfinite(rate) and (rate > 0 or not needed) and rate >= 0,
        f"{where}.bandwidth is {rate:g} bytes/s: give one above 0",
    )
    _need(0 < link.efficiency <= 1, f"{where}.efficiency is {link.efficiency:g}: above 0, up to 1")
    _need(
        math.isfinite(link.alpha_ns) and link.alpha_ns >= 0,
        f"{where}.alpha is {link.alpha_ns:g} ns: 0 or more",
    )
    _need(
        math.isfinite(link.incast_gamma) and link.incast_gamma >= 0 and link.incast_free >= 0,
        f"{where}: incast_gamma and incast_free are 0 or more",
    )
    _need(
        link.messages_per_s > 0 and 0 <= link.crowded_loss < 1 and link.connections >= 0,
        f"{where}: messages_per_s is above 0, crowded_loss from 0 to below 1",
    )
    _need(
        link.crowded_connections >= link.connections or not link.crowded_loss,
        f"{where}: crowded_connections is not below connections",
    )


def _choice(value: str, known: tuple[str, ...], where: str) -> None:
    _need(value in known, f"{where} is {value!r}: one of {', '.join(known)}")


def _scale_up(f: Fabric) -> None:
    up = f.scale_up
    if up is None:
        return
    _link(up.link, "scale_up")
    _choice(up.shape, ("switch", "full"), "scale_up.shape")
    d, g = up.domain_gpus, f.gpus_per_host
    _need(d >= 2, f"scale_up.domain is {d} GPUs: a domain joins at least 2")
    _need(
        g % d == 0 or d % g == 0,
        f"scale_up.domain is {d} GPUs, which neither divides a host's {g} nor is whole hosts: "
        f"{g} would work",
    )
    _need(
        d <= g or f.gpus < d or f.gpus % d == 0,
        f"{f.gpus} GPUs do not fill domains of {d}: {f.gpus // d * d or d} or "
        f"{(f.gpus // d + 1) * d} would",
    )
    _need(
        up.shape != "full" or (-(-f.gpus // d)) * d * d <= MAX_LINKS,
        f"scale_up.shape full with domains of {d} GPUs is too many links: use switch",
    )


def _package(f: Fabric) -> None:
    p = f.package
    if p is None:
        return
    _link(p.link, "package")
    _choice(p.shape, ("mesh", "tree", "full"), "package.shape")
    _need(p.rows >= 1 and p.columns >= 1, "package: rows and columns are 1 or more")
    _need(
        f.gpus_per_host % p.dies == 0,
        f"package: {p.rows} x {p.columns} = {p.dies} dies do not divide a host's "
        f"{f.gpus_per_host} GPUs",
    )
    _need(p.fanout >= 2, f"package.fanout is {p.fanout}: 2 or more")
    _need(
        p.shape != "full" or f.gpus * p.dies <= MAX_LINKS,
        f"package.shape full with {p.dies} dies is too many links: use mesh",
    )


def _pcie(f: Fabric) -> None:
    p = f.pcie
    if p is None:
        return
    _link(p.link, "pcie")
    for link, name in ((p.switch, "pcie.switch"), (p.socket, "pcie.socket")):
        _link(link, name, needed=False)
    _link(p.memory, "pcie.memory", needed=False)
    g = f.gpus_per_host
    _need(1 <= p.sockets <= 64, f"pcie.sockets is {p.sockets}: 1 to 64")
    _need(g % p.sockets == 0 or p.sockets % g == 0,
          f"pcie.sockets is {p.sockets}, which does not divide a host's {g} GPUs")  # fmt: skip
    _need(
        p.switches >= 0
        and (p.switches == 0 or (g % p.switches == 0 and p.switches % p.sockets == 0)),
        f"pcie.switches is {p.switches}: a number that divides a host's {g} GPUs and is a "
        f"multiple of its {p.sockets} sockets, or 0 for none",
    )
    _need((p.p2p and p.gpu_direct) or p.memory.bandwidth_bytes_per_s > 0,
          "pcie: without p2p or gpu_direct bytes are staged in host memory: give "
          "memory.bandwidth")  # fmt: skip
    _need(p.sockets == 1 or p.socket.bandwidth_bytes_per_s > 0,
          f"pcie: {p.sockets} sockets that no socket.bandwidth joins")  # fmt: skip


def _nic(f: Fabric) -> None:
    n = f.nic
    if n is None:
        return
    _link(n.link, "nic")
    _need(1 <= n.count <= 1024, f"nic.count is {n.count}: 1 to 1024")
    _need(n.rails >= 1 and n.count % n.rails == 0,
          f"nic.count is {n.count}, which does not divide over {n.rails} rails")  # fmt: skip
    _need(
        len(n.serves) == f.gpus_per_host and all(0 <= r < n.rails for r in n.serves),
        f"nic.serves names a rail from 0 to {n.rails - 1} for each of a host's "
        f"{f.gpus_per_host} GPUs",
    )
    _need(set(n.serves) == set(range(n.rails)),
          "nic.serves leaves a rail that no GPU uses: give fewer NICs or name it")  # fmt: skip
    _need(f.pcie is not None or n.rails == f.gpus_per_host,
          "NICs that GPUs share hang under PCIe: add [pcie], or give each GPU a NIC")  # fmt: skip
    under = 1 if f.pcie is None else f.pcie.switches or f.pcie.sockets
    _need(
        all(0 <= a < under for a in n.at),
        f"nic.at names a switch (or, without switches, a socket) from 0 to {under - 1}",
    )
    _need(1 <= n.planes <= 64, f"nic.planes is {n.planes}: 1 to 64")


def _network(f: Fabric) -> None:
    n = f.network
    if n is None:
        return
    _need(f.nic is not None, "a network without NICs: add [nic]")
    _choice(n.wiring, ("rail", "tor"), "network.wiring")
    _choice(n.ecmp, ("spray", "hash"), "network.ecmp")
    _need(n.hosts_per_leaf >= 1, f"network.hosts_per_leaf is {n.hosts_per_leaf}: 1 or more")
    _need(1 <= n.uplinks <= 4096, f"network.uplinks is {n.uplinks}: 1 to 4096")
    for value, name in ((n.oversubscription, ""), (n.core_oversubscription, "core_")):
        _need(0.1 <= value <= 1000,
              f"network.{name}oversubscription is {value:g}: 0.1 to 1000")  # fmt: skip
    _need(
        n.hosts_per_pod >= 0 and n.hosts_per_pod % n.hosts_per_leaf == 0,
        f"network.hosts_per_pod is {n.hosts_per_pod}: a multiple of hosts_per_leaf "
        f"({n.hosts_per_leaf}), or 0 for one pod",
    )
    _need(not (n.isolated_rails and n.wiring == "tor"),
          "network.isolated_rails needs wiring rail: a ToR joins all rails")  # fmt: skip
    _spine_ports(f)
    _link(n.leaf, "network.leaf", needed=False)
    _link(n.core, "network.core", needed=False)


def _spine_ports(f: Fabric) -> None:
    """Every leaf of a pod and plane has a port on each of its spines."""
    n = f.network
    if n is None or n.radix == 0 or f.optical is not None:
        return
    _need(n.radix >= 2, f"network.radix is {n.radix}: a switch has at least 2 ports")
    rails = f.rails if n.wiring == "rail" and not n.isolated_rails else 1
    leaves = -(-(n.hosts_per_pod or f.hosts) // n.hosts_per_leaf) * rails
    most = n.radix // rails * n.hosts_per_leaf
    _need(
        leaves <= n.radix,
        f"{leaves} leaves under spines of {n.radix} ports: pods of up to {most} hosts "
        "(network.hosts_per_pod) and a core would work",
    )


def _others(f: Fabric) -> None:
    o, s = f.optical, f.storage
    if o is not None:
        _need(f.network is not None, "optical circuits join leaves: add [network]")
        _link(o.link, "optical")
        _choice(o.schedule, ("ready", "rotor", "bvn"), "optical.schedule")
        _need(1 <= o.switches <= 4096, f"optical.switches is {o.switches}: 1 to 4096")
        _need(0 <= o.reconfigure_ns < math.inf and 0 <= o.hold_ns < math.inf,
              "optical: reconfigure and hold are 0 or more")  # fmt: skip
        _need(o.schedule != "rotor" or o.hold_ns > 0,
              "optical.schedule rotor needs hold: how long circuits stay up")  # fmt: skip
    if s is not None:
        _choice(s.attach, ("shared", "own"), "storage.attach")
        _link(s.link, "storage", needed=s.attach == "own")
        _link(s.server, "storage.server", needed=False)
        _link(s.staging, "storage.staging", needed=False)
        _need(s.attach == "own" or f.nic is not None,
              "storage.attach shared needs NICs: add [nic], or attach own")  # fmt: skip
    for b in f.background:
        _need(0 <= b.share < 1, f"background of {b.of}: share is {b.share:g}, from 0 to below 1")
    total = sum(t.share for t in f.traffic)
    _need(
        all(0 <= t.share <= 1 for t in f.traffic) and total <= 1 + 1e-9,
        f"traffic: guaranteed shares add up to {total:g}, more than a link has",
    )
    names = [t.name for t in f.traffic]
    _need(len(set(names)) == len(names), "traffic: a class is named twice")


def _connected(f: Fabric) -> None:
    inside = max(f.domain_gpus, 1 if f.package is None else f.package.dies)
    if f.pcie is not None:
        inside = max(inside, f.gpus_per_host)
    _need(
        inside >= f.gpus_per_host,
        f"nothing joins a host's {f.gpus_per_host} GPUs (groups of {inside}): add [pcie], or "
        "let scale_up.domain cover the host",
    )
    _need(
        f.gpus <= inside or f.network is not None,
        f"nothing joins the {f.hosts} hosts: add [nic] and [network], or let scale_up.domain "
        f"cover {f.gpus} GPUs",
    )
