"""Devices and links of one host from NCCL's topology XML, as rows of `topology`."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from ..schema import MAX_RANK

if TYPE_CHECKING:
    from ..collect import Collector

SOURCE = "nccl-topology"

NVLINK_BYTES_PER_S: dict[int, int] = {
    60: 20_000_000_000,
    70: 25_000_000_000,
    80: 25_000_000_000,
    86: 14_062_500_000,
    90: 25_000_000_000,
    100: 50_000_000_000,
    103: 50_000_000_000,
}
"""Bytes/s of one NVLink in one direction, by compute capability x 10.

From NVIDIA's data sheets, which give all links in both directions: P100 160 GB/s over 4, V100 300
over 6, A100 600 over 12, A6000 112.5 over 4, H100 900 over 18, B200 1800 over 18. Others: null.
"""

XGMI_BYTES_PER_S: dict[str, int] = {
    "gfx908": 46_000_000_000,
    "gfx90a": 50_000_000_000,
    "gfx942": 64_000_000_000,
}
"""Bytes/s of one xGMI link in one direction, from AMD's data sheets (MI100 92 GB/s both ways,
MI250X 100, MI300X 128)."""

_GCN = {"908": "gfx908", "910": "gfx90a", "90a": "gfx90a", "940": "gfx942", "942": "gfx942"}
_SPEED = re.compile(r"(\d{1,4}(?:\.\d{1,4})?) ?GT/s")
_INT = re.compile(r"-?\d{1,18}\Z")
_PLAIN = ("system", "nic", "net", "cpu", "pci", "gpu", "nvlink", "xgmi", "c2c")


def integer(values: dict[str, str], key: str) -> int | None:
    """An attribute as an integer; None where it is missing or none."""
    text = values.get(key, "").strip()
    return int(text) if _INT.match(text) else None


def rank_of(values: dict[str, str]) -> int | None:
    """The attribute `rank` where it is one."""
    rank = integer(values, "rank")
    return rank if rank is not None and 0 <= rank <= MAX_RANK else None


def pci_bandwidth(speed: str, width: int | None) -> int | None:
    """Bytes/s in one direction of a PCI link: transfers/s x lanes, less the line code.

    8b/10b up to 5 GT/s, 128b/130b up to 32 GT/s, 242 of 256 bytes of a flit at 64 GT/s (PCI
    Express base specification). None where the link is not known.
    """
    m = _SPEED.match(speed.strip())
    if m is None or width is None or not 0 < width <= 64:
        return None
    rate = Fraction(m[1])
    code = (
        Fraction(8, 10) if rate <= 5 else Fraction(128, 130) if rate <= 32 else Fraction(242, 256)
    )
    return round(rate * 10**9 * width * code / 8)


def kind_of_class(text: str) -> str | None:
    """`gpu` or `nic` by a PCI device's class (0x03 display, 0x12 accelerator, 0x02 network)."""
    return {"0x03": "gpu", "0x12": "gpu", "0x02": "nic"}.get(text.strip().lower()[:4])


class Devices:
    """Follows the elements of a `system` and adds a row for each device and link."""

    def __init__(self, c: Collector):
        self.c = c
        self.n_rows = 0
        self._parents: list[str | None] = []
        self._hosts: list[str | None] = [None]
        self._numas: list[int | None] = [None]
        self._gpu: dict[str, str] = {}
        self._links: list[dict[str, Any]] = []
        self._gpu_of_bus: dict[str, tuple[str, int | None]] = {}
        self._bare: list[str | None] = []

    def begin(self, name: str, values: dict[str, str]) -> None:
        """One element with its attributes."""
        parent = next((p for p in reversed(self._parents) if p is not None), None)
        device = None
        bare: str | None = None
        if name in ("pci", "gpu", "nic", "net"):
            self._bare = [None] * len(self._bare)
        if name == "cpu":
            numa = integer(values, "numaid")
            self._hosts.append(values.get("host_hash") or None)
            self._numas.append(numa if numa is not None and numa >= 0 else None)
            device = f"cpu{values.get('numaid', '')}"
            self._add(kind="cpu", device=device)
        elif name == "pci":
            device = values.get("busid") or None
            bare = kind_of_class(values.get("class", ""))
            width = integer(values, "link_width")
            width = width if width is not None and width > 0 else None
            bandwidth = pci_bandwidth(values.get("link_speed", ""), width)
            if bandwidth is None:
                self.c.odd("pci_speed_unknown", "PCI links whose speed or width the file does not "
                           "give; their bandwidth is null", "info")  # fmt: skip
            self._add(kind="pci", device=device, peer=parent, via="PCIe", count=width,
                      bandwidth_bytes_per_s=bandwidth)  # fmt: skip
        elif name == "gpu":
            self._gpu = values
            device = f"gpu{values.get('dev', '')}"
            self._add(kind="gpu", device=device, peer=parent, rank=rank_of(values))
            if parent is not None:
                self._gpu_of_bus[parent] = (device, rank_of(values))
        elif name == "net":
            self._net(values, parent)
        elif name in ("nvlink", "xgmi", "c2c"):
            self._link(name, values, parent)
        elif name not in _PLAIN:
            self.c.odd("unknown_element", f"elements that give no row, first: {name}", "info")
        self._parents.append(device)
        self._bare.append(bare)

    def end(self, name: str) -> None:
        """The innermost element ends; a GPU or NIC that only its PCI class tells gets its row."""
        if self._parents:
            bus, kind = self._parents.pop(), self._bare.pop()
            if bus is not None and kind is not None:
                self._add(kind=kind, device=f"{kind}@{bus}", peer=bus)
        if name == "cpu" and len(self._hosts) > 1:
            self._hosts.pop()
            self._numas.pop()

    def finish(self) -> None:
        """Adds the links between GPUs, whose other ends may come later in the file."""
        for row in self._links:
            device, rank = self._gpu_of_bus.get(row["peer"] or "", (None, None))
            if device is not None:
                row |= {"peer": device, "peer_rank": rank}
            self.c.add("topology", **row)
        if any(rank is not None for _, rank in self._gpu_of_bus.values()):
            self.c.odd("rank_in_communicator", "ranks of GPUs are those of the communicator that "
                       "wrote the file (the host's first ones in a template)", "info")  # fmt: skip

    def _add(self, **row: Any) -> None:
        self.n_rows += 1
        self.c.add("topology", host=self._hosts[-1], numa=self._numas[-1], source=SOURCE, **row)

    def _net(self, values: dict[str, str], parent: str | None) -> None:
        speed = integer(values, "speed")
        bandwidth = speed * 125_000 if speed is not None and 0 < speed < 10**12 else None
        name = values.get("name") or f"net{values.get('dev', '')}"
        port = integer(values, "port")
        if port is not None and port > 1:
            name = f"{name}:{port}"
        self._add(kind="nic", device=name, peer=parent, bandwidth_bytes_per_s=bandwidth,
                  rail=integer(values, "rail"), plane=integer(values, "plane"))  # fmt: skip

    def _link(self, name: str, values: dict[str, str], parent: str | None) -> None:
        count = integer(values, "count")
        count = count if count is not None and 0 < count < 1 << 20 else None
        each: int | None = None
        via = "NVLink"
        if name == "nvlink":
            each = NVLINK_BYTES_PER_S.get(integer(self._gpu, "sm") or 0)
        elif name == "xgmi":
            via = "xGMI"
            gcn = self._gpu.get("gcn", "")
            each = XGMI_BYTES_PER_S.get(_GCN.get(gcn.removeprefix("gfx"), ""))
        else:
            via = "NVLink-C2C"
            megabytes = integer(values, "bw")
            if megabytes is not None and 0 < megabytes < 10**9:
                each = megabytes * 1_000_000
        if each is None:
            self.c.odd("link_speed_unknown", f"{name} links of GPUs whose speed is not known; "
                       "their bandwidth is null", "info")  # fmt: skip
        self.n_rows += 1
        self._links.append({
            "host": self._hosts[-1], "numa": self._numas[-1], "kind": name, "device": parent,
            "peer": values.get("target") if name != "c2c" else self._cpu(),
            "rank": rank_of(self._gpu), "count": count, "via": via, "source": SOURCE,
            "bandwidth_bytes_per_s": None if each is None or count is None else each * count,
        })  # fmt: skip

    def _cpu(self) -> str | None:
        numa = self._numas[-1]
        return None if numa is None else f"cpu{numa}"
