"""What a fabric is: the parts of a machine that bytes pass through, as plain data.

GPUs are numbered host by host: GPU `h * gpus_per_host + i` is the i-th of host h. Bandwidths are
bytes a second in one direction; `bandwidth_bytes_per_s` is nominal, what a flow can get of it is
that times `efficiency`. `links.graph` makes the link graph that flows run over.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from ...ingest.errors import UsageError


class BadFabric(UsageError):
    """A fabric that cannot be: parts that do not fit, or that nothing connects."""


@dataclass(frozen=True)
class LinkClass:
    """What all links of one kind share.

    `alpha_ns` is what crossing the class once costs a message, in and out together: where a
    crossing takes two links (up and down, tx and rx) each carries half. Incast: a port into which
    k flows' senders push at once has `1 / (1 + incast_gamma * max(0, k - incast_free))` of its
    bandwidth; gamma 0 (the default) is none.
    """

    name: str
    bandwidth_bytes_per_s: float = 0.0
    efficiency: float = 1.0
    alpha_ns: float = 0.0
    incast_gamma: float = 0.0
    incast_free: float = 1.0
    messages_per_s: float = math.inf
    """Messages one port starts a second, with few connections."""
    connections: float = math.inf
    """Connections up to which that rate holds (contexts that the NIC caches)."""
    crowded_connections: float = math.inf
    """Connections from which `crowded_loss` of the rate is lost; in between, linearly."""
    crowded_loss: float = 0.0

    @property
    def usable_bytes_per_s(self) -> float:
        """What flows can get of one link."""
        return self.bandwidth_bytes_per_s * self.efficiency

    def message_rate_per_s(self, connections: float) -> float:
        """Messages a second of one port that holds so many connections."""
        if connections <= self.connections or not self.crowded_loss:
            return self.messages_per_s
        if math.isinf(self.crowded_connections):
            return self.messages_per_s
        span = max(self.crowded_connections - self.connections, 1.0)
        share = min((connections - self.connections) / span, 1.0)
        return self.messages_per_s * (1.0 - self.crowded_loss * share)


@dataclass(frozen=True)
class ScaleUp:
    """NVLink, UB or xGMI: what joins the GPUs of a domain. `link` is one GPU's port into it.

    shape: `switch` (each GPU has one port up and one down) or `full` (a direct link a pair, the
    port's bandwidth divided over the others of the domain).
    """

    link: LinkClass
    domain_gpus: int
    shape: str = "switch"


@dataclass(frozen=True)
class Package:
    """Dies of one package or wafer; each die is a GPU here, row by row.

    shape: `mesh` (XY routing: along the row first), `tree` (`fanout` dies a node, `fanout` nodes
    a node above) or `full` (a direct link a pair). `link` is one die-to-die link, one direction.
    """

    link: LinkClass
    rows: int
    columns: int
    shape: str = "mesh"
    fanout: int = 2

    @property
    def dies(self) -> int:
        """Dies a package."""
        return self.rows * self.columns


@dataclass(frozen=True)
class Pcie:
    """The inside of a host: GPUs under `switches` PCIe switches under `sockets` root complexes.

    GPUs are spread evenly over the switches, and switches over the sockets. `switches` 0: each
    GPU hangs off its socket directly.
    """

    link: LinkClass
    """Of one GPU."""
    sockets: int = 1
    switches: int = 0
    switch: LinkClass = LinkClass("pcie_switch")
    """From one switch up to its socket; without bandwidth: as one GPU's link."""
    socket: LinkClass = LinkClass("socket")
    """From one socket to another (UPI, xGMI)."""
    memory: LinkClass = LinkClass("memory")
    """Of one socket's host memory, reads and writes together; 0: never the limit."""
    p2p: bool = True
    """False: GPUs cannot write into each other over PCIe; bytes are staged in host memory."""
    gpu_direct: bool = True
    """False: NICs cannot read GPU memory; bytes are staged in host memory."""


@dataclass(frozen=True)
class Nic:
    """The NICs of a host. `link` is one NIC, all its ports together.

    `serves[g]` is the rail of the host's g-th GPU. NICs of one rail are used together (a GPU with
    four of them sprays over the four): `count // rails` a rail. `at[r]` is the PCIe switch (or,
    without switches, the socket) that rail r hangs under.
    """

    link: LinkClass
    count: int
    serves: tuple[int, ...]
    at: tuple[int, ...]
    planes: int = 1
    """Planes that the ports of a NIC are spread over evenly."""

    @property
    def rails(self) -> int:
        """Groups of NICs of a host that serve different GPUs."""
        return len(self.at)


@dataclass(frozen=True)
class Network:
    """Leaf, spine and core. Each plane is a network of its own; a NIC's plane never mixes.

    wiring `rail`: NICs of rail k of a segment's hosts on leaf k; `tor`: all of them on one leaf.
    A segment is `hosts_per_leaf` hosts; a pod `hosts_per_pod` hosts (0: all in one pod).
    """

    wiring: str
    hosts_per_leaf: int
    uplinks: int
    """Uplinks of one leaf of one plane, each to another spine."""
    oversubscription: float = 1.0
    """What a leaf can get from below over what it can send up."""
    isolated_rails: bool = False
    """Rails have no spine in common: bytes change rails inside a host only."""
    hosts_per_pod: int = 0
    core_oversubscription: float = 1.0
    leaf: LinkClass = LinkClass("leaf")
    """alpha, efficiency and incast of a crossing leaf-spine-leaf; its bandwidth is derived."""
    core: LinkClass = LinkClass("core")
    ecmp: str = "spray"
    """spray: a flow is spread over all uplinks and planes (fluid); hash: one of them, seeded."""
    radix: int = 0
    """Ports of a switch where known: for the counts of switches only."""


@dataclass(frozen=True)
class Optical:
    """Optical circuit switches in place of the spine.

    A leaf has one port on each of `switches` switches, `link` a circuit. Schedule: `ready` (set up
    when a collective asks), `rotor` (in turn, `hold_ns` each) or `bvn` (Birkhoff-von Neumann: by
    demand). The link graph takes a leaf's circuits to be where its bytes go, for the share of time
    that circuits are up.
    """

    link: LinkClass
    switches: int
    reconfigure_ns: float
    hold_ns: float = 0.0
    schedule: str = "ready"

    @property
    def duty(self) -> float:
        """Share of time that circuits are up: 1 where they are set up only when needed."""
        if self.schedule != "rotor" or self.hold_ns <= 0:
            return 1.0
        return self.hold_ns / (self.hold_ns + self.reconfigure_ns)


@dataclass(frozen=True)
class Storage:
    """Where data and checkpoints are. attach: `shared` (over the NICs of collectives) or `own`."""

    attach: str = "shared"
    link: LinkClass = LinkClass("storage")
    """`own`: one host's storage port; `shared`: unused."""
    server: LinkClass = LinkClass("storage_server")
    """All servers together; without bandwidth they are never the limit."""
    staging: LinkClass = LinkClass("nvme")
    """One host's local drives together; without bandwidth there are none."""


@dataclass(frozen=True)
class Background:
    """Others' load: `share` of the bandwidth of a link class, or of one link by its name."""

    of: str
    share: float


@dataclass(frozen=True)
class TrafficClass:
    """A class of traffic with a guaranteed share of every link that it contends on."""

    name: str
    share: float


@dataclass(frozen=True)
class Fabric:
    """A whole machine: `hosts` hosts alike. Raises BadFabric where the parts do not fit."""

    name: str
    hosts: int
    gpus_per_host: int
    scale_up: ScaleUp | None = None
    package: Package | None = None
    pcie: Pcie | None = None
    nic: Nic | None = None
    network: Network | None = None
    optical: Optical | None = None
    storage: Storage | None = None
    background: tuple[Background, ...] = ()
    traffic: tuple[TrafficClass, ...] = ()
    device: str = ""
    """Model of the GPU."""
    assumptions: tuple[str, ...] = field(default=(), compare=False)
    """What was taken for granted when it was built."""

    def __post_init__(self) -> None:
        from .check import check

        check(self)

    @property
    def gpus(self) -> int:
        """GPUs of all hosts."""
        return self.hosts * self.gpus_per_host

    @property
    def domain_gpus(self) -> int:
        """GPUs of a scale-up domain; 1 without one."""
        return 1 if self.scale_up is None else self.scale_up.domain_gpus

    @property
    def rails(self) -> int:
        """Rails of a host; 0 without NICs."""
        return 0 if self.nic is None else self.nic.rails

    @property
    def segments(self) -> int:
        """Groups of hosts that share leaves; 0 without a network."""
        return 0 if self.network is None else -(-self.hosts // self.network.hosts_per_leaf)

    @property
    def pods(self) -> int:
        """Groups of segments that share spines; 0 without a network."""
        if self.network is None:
            return 0
        return -(-self.hosts // (self.network.hosts_per_pod or self.hosts))

    @property
    def rail_bytes_per_s(self) -> float:
        """Nominal bandwidth of all NICs of one rail of one host."""
        if self.nic is None:
            return 0.0
        return self.nic.link.bandwidth_bytes_per_s * self.nic.count / self.nic.rails
