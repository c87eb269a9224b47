"""Circuits instead of a packet network: set up when collectives are ready, or in periodic rotation.

A collective's matchings (one for a ring, n-1 for an all-to-all, one a message for the rest) must
each be up for its bytes. Ready-driven: T = sum of delta + w over the switches, evened, and never
longer than what rotation would give it. Rotor: each matching has its turn once a cycle.
"""

from __future__ import annotations

import numpy as np

from ..calibration.hockney import coefficients
from ..costs.circuits import Rotor, checked, least_ns, rotated_ns, scheduled_ns
from ..moe import bvn, demand, routed
from ..policy import Param, Policy, ReplayJob, Stage
from ..quantities import bandwidth_bytes_per_s, time_ns
from ..retiming import altered, by_group, fabric_says, link_rates, transfers

NEUTRAL = {"reconfigure": 0.0, "op": ("all_reduce",)}

RECONFIGURE_NS, HOLD_NS = 20e3, 180e3

SCHEDULES = ("ready", "rotor", "bvn")

ASSUMPTIONS = (
    "a rank's bandwidth is divided over the switches, one uplink to each",
    "collectives that overlap do not hold up each other's circuits",
)


def apply(
    job: ReplayJob,
    *,
    schedule: str,
    switches: int,
    reconfigure: float | None,
    hold: float | None,
    prefetch: bool,
    bandwidth: float | None,
    op: tuple[str, ...] = (),
    dim: tuple[str, ...] = (),
    comm: tuple[str, ...] = (),
) -> ReplayJob:
    """The job with the collectives between hosts over circuits."""
    circuits = job.facts.get("fabric") and job.facts["fabric"].optical
    switches = switches or (circuits.switches if circuits else 1)
    reconfigure, told = fabric_says.value(
        job, "ns to set up a circuit", reconfigure,
        lambda f: f.optical and f.optical.reconfigure_ns, RECONFIGURE_NS,
    )  # fmt: skip
    hold, held = fabric_says.value(
        job, "ns of a matching's turn", hold, lambda f: f.optical and f.optical.hold_ns, HOLD_NS
    )
    checked(switches, reconfigure, hold)
    job, rows = transfers.chosen(job, op=op, dim=dim, comm=comm)
    job, rows = altered.untouched(job, rows, "optical")
    if not len(rows):
        return job
    job, routing = routed.of(job)
    uneven = rows.filter(rows["op"] == "all_to_all")
    matrices = {
        int(c): d.matrix
        for c, d in zip(
            uneven["collective"], demand.of(job, uneven, routing) if len(uneven) else (),
            strict=True,
        )
    }  # fmt: skip
    on_host, unplaced, waits, stored, sums = 0, 0, [], [], []
    carried = np.full(len(rows), np.nan)
    counted = link_rates.counted(job, rows)

    def price(group: by_group.Group) -> np.ndarray | None:
        nonlocal on_host, unplaced
        if group.link.level == "intra host":
            on_host += len(group.rows)
            return None
        unplaced += len(group.rows) if group.link.level == "unknown" else 0
        rate = bandwidth or group.link.bandwidth_bytes_per_s
        messages, volume = coefficients(group.op, group.algo, group.n)
        latency = messages * group.link.alpha_ns
        out = []
        if bandwidth:
            carried[group.rows["at"].to_numpy()] = bandwidth
        rotor = Rotor(max(group.n - 1, 1), hold, reconfigure, switches)
        waits.append(rotor.mean_wait_ns)
        stored.append(rate * rotor.cycle_ns / 1e9)
        for c, size in zip(group.rows["collective"], group.size_bytes, strict=True):
            plain = _matchings(group, volume, size, matrices.get(int(c)))
            # On one uplink of several.
            need = plain * switches * 1e9 / rate
            turns = np.r_[need, np.zeros(max(rotor.matchings - len(need), 0))][: rotor.matchings]
            if len(need) > rotor.matchings:
                turns[-1] += need[rotor.matchings :].sum()
            turned = rotated_ns(turns, rotor)
            ready = scheduled_ns(need.tolist(), switches, reconfigure, up=prefetch)
            if schedule != "ready" and int(c) in matrices:
                parts = [w for w, _ in bvn.decompose(matrices[int(c)])]
                split = [w * switches * 1e9 / rate for w in parts]
                matched = scheduled_ns(split, switches, reconfigure, up=prefetch)
            else:
                matched = ready
            found = {"ready": min(ready, turned), "rotor": turned, "bvn": matched}
            out.append(latency + found[schedule])
            if schedule != "rotor":
                lines = _lines(plain, matrices.get(int(c))) * switches * 1e9 / rate
                least = least_ns(lines, switches, reconfigure, up=prefetch)
                sums.append((least, matched if schedule == "bvn" else ready))
        return np.array(out) / group.time_ns()

    job, ratio = by_group.ratios(job, rows, price)
    job = altered.run_by(job, rows["collective"].filter(ratio != 1), "optical")
    said = []
    if on_host:
        said.append(f"{on_host} collectives stay inside a host, without circuits: as measured")
    if unplaced:
        said.append(
            f"whether {unplaced} collectives leave a host is not known: taken to; record the hosts "
            "of ranks to tell"
        )
    notes = [f"{switches} switches, {reconfigure / 1e3:.4g} us to set up a circuit"]
    if sums:
        least, made = np.sum(sums, axis=0)
        notes.append(
            f"circuits that are set up for each need take {least / 1e6:.4g} ms at least, in "
            f"whatever order; scheduled so they take {made / 1e6:.4g} ms"
        )
    if schedule == "rotor" and waits:
        notes.append(
            f"rotation holds a matching {hold / 1e3:.4g} us; a collective waits "
            f"{np.mean(waits) / 1e3:.4g} us for its circuit on average, and a rank that sends on "
            f"meanwhile fills buffers of {np.max(stored) / 1e6:.3g} MB a cycle"
        )
    wider = link_rates.ratio(counted, carried)
    return transfers.scaled(job, rows, ratio, bandwidth_ratio=wider).note(
        assumptions=(*ASSUMPTIONS, *notes, *told, *held), warnings=tuple(said)
    )


def _lines(matchings: np.ndarray, matrix: np.ndarray | None) -> np.ndarray:
    """What ports need, float64 [lines, circuits]: of the demand, else one line of matchings."""
    if matrix is None:
        return matchings[None, :]
    out = np.array(matrix, np.float64)
    np.fill_diagonal(out, 0.0)
    return out


def _matchings(
    group: by_group.Group, volume: float, size: float, matrix: np.ndarray | None
) -> np.ndarray:
    """Bytes of the largest pair of each matching of a collective, float64 [k]."""
    if matrix is not None:
        n = len(matrix)
        at = np.arange(n)
        return np.array([matrix[at, (at + k) % n].max() for k in range(1, n)])
    if group.algo == "ring":
        return np.array([volume * size])
    messages, _ = coefficients(group.op, group.algo, group.n)
    k = max(round(messages), 1)
    return np.full(k, volume * size / k)


POLICY = Policy(
    name="optical",
    summary="optical circuits for collectives: ready-driven, rotor or Birkhoff-von Neumann",
    source="Flux; Spectra (arXiv 2603.07373); RotorNet; Birkhoff 1946",
    params=(
        Param("schedule", str, "ready", "", "when circuits are set up", SCHEDULES),
        Param("switches", int, 0, "", "circuit switches side by side; 0: the fabric's, else 1"),
        Param(
            "reconfigure",
            time_ns,
            None,
            "ns",
            "to set up a circuit, receiver lock and all (default: the fabric's, else 20us)",
        ),
        Param("hold", time_ns, None, "ns", "that rotation holds a matching (else 180us)"),
        Param("prefetch", bool, False, "", "the first circuits are set up while ranks compute"),
        Param("bandwidth", bandwidth_bytes_per_s, None, "bytes/s", "of a rank (default: as it is)"),
        *transfers.WHICH,
    ),
    assumptions=ASSUMPTIONS,
    apply=apply,
    stage=Stage.ALGORITHM,
    needs=("collectives with sizes between hosts", "the hosts of ranks"),
    valid="set-up of 10 to 25 ms (MEMS, piezo), about 80 us (fast prototypes), ns to us (photonic)",
    checked=(
        "8 nodes, hold 180, set-up 20 us: slot 200 us, cycle 1.4 ms, mean wait 531.6 us; a ring "
        "step of 200 us takes 220 us ready-driven and 1.42 ms by rotation (10x reported of Flux)"
    ),
)
