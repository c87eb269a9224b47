"""All GPUs to all GPUs over a fabric: simulated, and by the obvious progressive filling."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.suite.clock import timed


def exchange(gpus: str, preset: str) -> dict[str, Any]:
    """One even all-to-all of 1 GB a GPU; compiled code is loaded by 64 GPUs before."""
    from retime.replay.fabric import cost, named

    small = named.preset(preset, 64)
    cost.collective_time_ns(small, "all_to_all", "direct", np.arange(64), 1e6)
    cost.forget()
    n = int(gpus)

    def go() -> float:
        fabric = named.preset(preset, n)
        return cost.collective_time_ns(fabric, "all_to_all", "direct", np.arange(n), 1e9)

    took = timed(go)
    return {"rows": n * (n - 1), "answer": _rounded(took)}


def filling(gpus: str, preset: str) -> dict[str, Any]:
    """Max-min fair rates flow by flow with NumPy, until every flow has ended.

    The same flows over the same links as `exchange`; nothing is known of their symmetry. Routes
    are retime's own; latency is added at the end.
    """
    from retime.replay.fabric import graph, named
    from retime.replay.fabric.placed import Part, Setting, links_of, place
    from retime.replay.fabric.rounds import decompose

    n = int(gpus)

    def go() -> float:
        net = graph(named.preset(preset, n))
        made = decompose("all_to_all", "direct", n, 1e9)
        links, ways, flows, _ = place(net, links_of(net), [Part(made, np.arange(n))], Setting())
        length = np.diff(ways.ptr)[flows.path]
        flow = np.repeat(np.arange(flows.n), length)
        crossed = np.concatenate([np.arange(ways.ptr[p], ways.ptr[p + 1]) for p in flows.path])
        share, link = ways.coef[crossed], ways.link[crossed]
        moved_s = _ended(flows.size_bytes, flow, link, share, links.capacity_bytes_per_s)
        return moved_s * 1e9 + flows.delay_ns.max()

    return {"rows": n * (n - 1), "answer": _rounded(timed(go))}


def _rounded(took_ns: float) -> float:
    """Three figures: what flows are delayed by is not the same to the last one."""
    return float(f"{took_ns:.3g}")


def _ended(
    size: np.ndarray, flow: np.ndarray, link: np.ndarray, share: np.ndarray, speed: np.ndarray
) -> float:
    """Seconds until the last flow has ended; `flow` puts `share` of its rate on `link`."""
    left, now = size.astype(float), 0.0
    while (left > 0).any():
        rate = _fair(left > 0, flow, link, share, speed)
        moving = rate > 0
        after = (left[moving] / rate[moving]).min()
        left[moving] -= rate[moving] * after
        left[left < 1e-9 * size] = 0
        now += after
    return now


def _fair(
    active: np.ndarray, flow: np.ndarray, link: np.ndarray, share: np.ndarray, speed: np.ndarray
) -> np.ndarray:
    """Progressive filling: the tightest links fix their flows' rates, then the next ones."""
    rate, free_flows, free = np.zeros(len(active)), active.copy(), speed.astype(float)
    while free_flows.any():
        open_ = free_flows[flow]
        load = np.bincount(link[open_], share[open_], len(speed))
        fair = np.where(load > 0, free / np.where(load > 0, load, 1), np.inf)
        tight = fair <= fair.min() * (1 + 1e-9)
        fixed = np.zeros(len(active), bool)
        fixed[flow[open_ & tight[link]]] = True
        rate[fixed] = fair.min()
        free_flows &= ~fixed
        gone = fixed[flow]
        free = np.maximum(0, free - np.bincount(link[gone], share[gone] * fair.min(), len(speed)))
    return rate
