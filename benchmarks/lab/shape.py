"""What a lab's network looks like: seats, links, their rates; and the same as a fabric of retime.

A seat is a place for one rank: a namespace with NICs (`rail0`, `rail1`, ...), a port into its
host's switch where the host has several seats (`up`), and a port to the storage where storage has a
network of its own (`store`). Rates are bits a second, as `tc` counts them: frames with their
Ethernet header.
"""

from __future__ import annotations

from dataclasses import dataclass, field

MTU_BYTES = 3000
HEADERS_BYTES = 52
"""IPv4 and TCP with time stamps, in each packet."""
ETHERNET_BYTES = 14
EFFICIENCY = (MTU_BYTES - HEADERS_BYTES) / (MTU_BYTES + ETHERNET_BYTES)
"""Payload over what `tbf` counts."""

MBIT = 1_000_000


@dataclass(frozen=True)
class Shape:
    """A network; `slow` has links that are not as the others: (seat, "rail0") -> bits a second."""

    hosts: int = 4
    per_host: int = 1
    """Seats a host; each has a NIC of its own (`nics` of them)."""
    nics: int = 1
    """NICs a seat; each lies on a rail of its own."""
    nic_bps: int = 100 * MBIT
    up_bps: int = 800 * MBIT
    wiring: str = "one"
    """one: all NICs on one leaf; rail: NICs of a place in the host on a leaf of their own; tor:
    the hosts of a rack on one. Leaves meet in a spine."""
    hosts_per_leaf: int = 0
    uplink_bps: int = 0
    """Of a leaf to the spine, one direction; 0: as much as its NICs."""
    storage_bps: int = 0
    """Of the storage server; 0: there is none."""
    store_bps: int = 0
    """Of a seat's own port to the storage; 0: storage comes over `rail0`."""
    queue_bytes: int = 0
    """What a switch's port holds before it drops; 0: enough for all that can be under way."""
    slow: dict[tuple[int, str], int] = field(default_factory=dict)

    @property
    def seats(self) -> int:
        """Places for ranks, numbered host by host."""
        return self.hosts * self.per_host

    def host_of(self, seat: int) -> int:
        """The host that a seat is in."""
        return seat // self.per_host

    def leaf_of(self, seat: int, nic: int) -> int:
        """The leaf that a NIC is on."""
        if self.nics > 1:
            return nic
        if self.wiring == "rail":
            return seat % self.per_host
        if self.wiring == "tor":
            return self.host_of(seat) // self.hosts_per_leaf
        return 0

    @property
    def leaves(self) -> int:
        """Leaf switches."""
        return 1 + max(self.leaf_of(s, n) for s in range(self.seats) for n in range(self.nics))

    @property
    def spined(self) -> bool:
        """Whether leaves meet: those of several NICs a seat are networks of their own."""
        return self.leaves > 1 and self.nics == 1

    def leaf_bps(self, leaf: int) -> int:
        """What a leaf's NICs can send together."""
        return self.nic_bps * sum(
            self.leaf_of(s, n) == leaf for s in range(self.seats) for n in range(self.nics)
        )

    def rate(self, seat: int, port: str) -> int:
        """Bits a second of a seat's port."""
        usual = {"up": self.up_bps, "store": self.store_bps}.get(port, self.nic_bps)
        return self.slow.get((seat, port), usual)

    def toml(self, name: str = "lab", alpha_us: float = 0.0) -> str:
        """The network as a fabric of `retime --fabric`: what is slow is a load of others'."""
        lines = [f'name = "{name}"', f"gpus_per_host = {self.per_host}", f"hosts = {self.hosts}"]
        if self.per_host > 1:
            lines += ["", "[scale_up]", 'link = "up"', *_link(self.up_bps, alpha_us)]
        lines += ["", "[nic]", f"count = {self.per_host * self.nics}"]
        if self.nics > 1:
            lines.append(f"rails = {self.per_host}")
        lines += _link(self.nic_bps, alpha_us)
        rail = self.wiring == "rail" and self.per_host > 1
        per_leaf = self.hosts_per_leaf or self.hosts
        lines += ["", "[network]", f'wiring = "{"rail" if rail else "tor"}"',
                  f"hosts_per_leaf = {per_leaf}"]  # fmt: skip
        if self.spined and self.uplink_bps:
            lines += ["uplinks = 1", f"oversubscription = {self.leaf_bps(0) / self.uplink_bps:g}"]
        if self.storage_bps:
            attach = "own" if self.store_bps else "shared"
            lines += ["", "[storage]", f'attach = "{attach}"']
            lines += _link(self.store_bps, 0) if self.store_bps else []
            lines += ["", "[storage.server]", *_link(self.storage_bps, 0)]
        for (seat, port), bps in sorted(self.slow.items()):
            block = {"up": "scale_up"}.get(port, "nic")
            place = f"host {self.host_of(seat)} rail {seat % self.per_host}"
            share = 1 - bps / (self.up_bps if port == "up" else self.nic_bps)
            for way in ("tx", "rx"):
                of = f"{block}_{way} " + (place if block == "nic" else f"gpu {seat}")
                lines += ["", "[[background]]", f'of = "{of}"', f"share = {share:g}"]
        return "\n".join(lines) + "\n"


def _link(bps: int, alpha_us: float) -> list[str]:
    out = [f'bandwidth = "{bps / MBIT:g}Mb/s"', f"efficiency = {EFFICIENCY:.4f}"]
    return [*out, f'alpha = "{alpha_us:g}us"'] if alpha_us else out
