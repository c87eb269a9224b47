"""No peer-to-peer: collectives through host memory, each copy staged, or one shared buffer.

T = max(out/B_d2h, in/B_h2d, 2 staged/B_dram, remote/B_numa) pipelined, else the sum. What was
recorded went from GPU to GPU, or through host memory already, a copy for each reader.
"""

from __future__ import annotations

import numpy as np

from ..calibration import link_sources
from ..costs import staging
from ..policy import BadParam, Param, Policy, ReplayJob, Stage, words
from ..quantities import bandwidth_bytes_per_s, size_bytes
from ..retiming import altered, by_group, fabric_says, link_rates, transfers
from ..retiming.places import Places

NEUTRAL = {"recorded": "copies", "medium": "copies"}

PCIE, DRAM = 25.6e9, 204e9
"""PCIe 4 x16 at 0.8 of what it is sold for; DDR4-3200 on 8 channels, bytes/s."""

TINY = 1e-9
"""Bytes of a chunk that costs no time of its own."""

OPS = ("all_to_all", "all_gather", "reduce_scatter", "all_reduce", "broadcast")

ASSUMPTIONS = (
    "all ranks of a communicator share one host's memory, and each GPU has a PCIe link to itself",
)


def apply(
    job: ReplayJob,
    *,
    op: tuple[str, ...],
    medium: str,
    recorded: str,
    readers: int,
    pcie: float | None,
    duplex: float,
    dram: float | None,
    numa: float | None,
    remote: float,
    chunk: int,
    dim: tuple[str, ...] = (),
    comm: tuple[str, ...] = (),
) -> ReplayJob:
    """The job with chosen collectives through host memory."""
    for one in op:
        if one not in OPS:
            raise BadParam(f"policy host-staged: no way for {one!r}; there is for {', '.join(OPS)}")
    if readers < 1:
        raise BadParam(
            f"policy host-staged: readers={readers}: 1 or more ranks take the same bytes"
        )
    if not 0 < duplex <= 1 or not 0 <= remote <= 1:
        raise BadParam("policy host-staged: duplex is above 0 and at most 1, remote from 0 to 1")
    if chunk < 0:
        raise BadParam(f"policy host-staged: chunk={chunk}: bytes, or 0 for no pipelining")
    job, rows = transfers.chosen(job, op=op, dim=dim, comm=comm)
    job, rows = altered.untouched(job, rows, "host-staged")
    if not len(rows) or medium == recorded:
        return job
    lane, a = fabric_says.value(
        job, "bytes/s of PCIe", pcie, lambda f: f.pcie and f.pcie.link.usable_bytes_per_s, PCIE
    )
    memory, b = fabric_says.value(
        job, "bytes/s of host memory", dram,
        lambda f: f.pcie and f.pcie.memory.usable_bytes_per_s, DRAM,
    )  # fmt: skip
    far, c = fabric_says.value(
        job, "bytes/s between sockets", numa,
        lambda f: f.pcie and f.pcie.sockets > 1 and f.pcie.socket.usable_bytes_per_s, np.inf,
    )  # fmt: skip
    host = staging.Host(lane, duplex, memory, far, remote, chunk)
    places = Places.of(job)
    alpha, rate, peer_words = None, None, ""
    if medium == "p2p":
        # What was recorded went through host memory: a fit of it is of that.
        alpha, rate, peer_words = link_sources.machine(job, "intra host")
    spread, unplaced = 0, 0
    carried = np.full(len(rows), np.nan)
    counted = link_rates.counted(job, rows)
    ideal = host._replace(chunk_bytes=TINY)

    def moves(group: by_group.Group, way: str) -> staging.Bytes:
        return staging.moved(group.op, group.n, group.size_bytes, readers, shared=way == "shared")

    def price(group: by_group.Group) -> np.ndarray | None:
        nonlocal spread, unplaced
        hosts = places.hosts_of(group.rows["ranks"][0].to_numpy())
        if hosts > 1:
            spread += len(group.rows)
            return None
        unplaced += 0 if hosts else len(group.rows)
        new, old = (
            group.time_ns(alpha, rate)
            if way == "p2p"
            else staging.time_ns(moves(group, way), host, group.n)
            for way in (medium, recorded)
        )
        if medium != "p2p":
            # What the floor counts of a rank's bytes, in no less than host memory needs for them.
            at = group.rows["at"].to_numpy()
            least = staging.time_ns(moves(group, medium), ideal, group.n)
            carried[at] = counted.share[at] * group.size_bytes * 1e9 / least
        return new / old

    job, ratio = by_group.ratios(job, rows, price)
    job = altered.run_by(job, rows["collective"].filter(ratio != 1), "host-staged")
    said = ()
    if spread:
        said = (
            f"{spread} collectives are on several hosts, without a memory in common: as measured",
        )
    if unplaced:
        said += (
            f"whether {unplaced} collectives stay on one host is not known: taken to; record the "
            "hosts of ranks to tell",
        )
    notes = (f"{recorded} to {medium}, PCIe at {lane * duplex / 1e9:.3g} GB/s each way", *a, *b, *c)
    if peer_words:
        notes += (f"GPU to GPU: {peer_words}",)
    if readers > 1:
        notes += (
            f"{readers} ranks take the same bytes: where PCIe is the bound both ways together, a "
            f"shared buffer gains {staging.dispatch_gain(readers):.2f} times on dispatch; partial "
            "sums that come back gain nothing (choose dispatch by comm or dim)",
        )
    wider = link_rates.ratio(counted, carried)
    return transfers.scaled(job, rows, ratio, bandwidth_ratio=wider).note(
        assumptions=(*ASSUMPTIONS, *notes), warnings=said
    )


POLICY = Policy(
    name="host-staged",
    summary="no peer-to-peer: collectives through host memory, copied or in one shared buffer",
    source="ThunderEP; NCCL's SHM transport",
    params=(
        Param("op", words, ("all_to_all",), "", "operations to change, joined by +"),
        Param(
            "medium",
            str,
            "copies",
            "",
            "p2p: GPU to GPU; copies: through host memory, one a reader; shared: written once",
            ("p2p", "copies", "shared"),
        ),
        Param(
            "recorded", str, "p2p", "", "how they went when recorded", ("p2p", "copies", "shared")
        ),
        Param("readers", int, 1, "ranks", "that take the same bytes (top-k of dispatch)"),
        Param(
            "pcie", bandwidth_bytes_per_s, None, "bytes/s", "of a GPU (the fabric's, else 25.6GB/s)"
        ),
        Param(
            "duplex", float, 1.0, "", "share that each direction keeps while both run: 0.44 to 1"
        ),
        Param(
            "dram",
            bandwidth_bytes_per_s,
            None,
            "bytes/s",
            "of the memory (default: the fabric's, else 204GB/s: DDR4-3200, 8 channels)",
        ),
        Param(
            "numa",
            bandwidth_bytes_per_s,
            None,
            "bytes/s",
            "between sockets (default: the fabric's, else one socket)",
        ),
        Param("remote", float, 0.5, "", "share of bytes that crosses between sockets, with numa"),
        Param("chunk", size_bytes, 1 << 20, "bytes", "in which bytes follow each other; 0: not"),
        *transfers.WHERE,
    ),
    assumptions=ASSUMPTIONS,
    apply=apply,
    stage=Stage.ALGORITHM,
    needs=("collectives with sizes on ranks of one host", "the hosts of ranks"),
    valid="hosts whose GPUs have a PCIe link each; PCIe 4 x16: 25.6 GB/s, duplex 0.44 seen on A100",
    checked=(
        "256 MB at 25.6 GB/s: 20 ms one after another, 10 ms and a chunk pipelined; dispatch with "
        "8 readers 1.78 times, towards 2 (2.00x and 1.53x reported: the order, not the figures)"
    ),
)
