"""Small collectives in SimGrid, written for it alone: prints their times as JSON.

Run where SimGrid's Python binding is installed: `python simgrid_collectives.py`. Built from PyPI
(`pip install simgrid`) it needs a C++ compiler, CMake, Boost's headers and pybind11 below 3.1, and
finds its library where LD_LIBRARY_PATH names its folder.

Flow level, without corrections for TCP: model CM02, latency and bandwidth factors 1, no cross
traffic, no window limit. SimGrid shares a link by 1 / (the route's latency): routes of one switch
are all alike; round a ring a route of h hops weighs 1 / h.
"""

import json
import multiprocessing
import sys

LATENCY_S = 1e-6
BANDWIDTH = 50e9
SIZE = 100_000_000
SETTINGS = {
    "network/model": "CM02",
    "network/latency-factor": "1",
    "network/bandwidth-factor": "1",
    "network/weight-S": "0",
    "network/crosstraffic": "0",
    "network/TCP-gamma": "0",
    "precision/timing": "1e-13",
    "precision/work-amount": "1e-9",
}


def one_way(zone, a, b, way):
    """A route that is not also the route back."""
    import simgrid

    zone.add_route(a, b, [simgrid.LinkInRoute(link) for link in way], False)


def switch(zone, n, bandwidth):
    """Every host has one link up to a switch and one down from it, half the latency each."""
    hosts = [zone.add_host(f"h{i}", 1e9) for i in range(n)]
    up = [zone.add_link(f"up{i}", b) for i, b in enumerate(bandwidth)]
    down = [zone.add_link(f"down{i}", b) for i, b in enumerate(bandwidth)]
    for link in up + down:
        link.set_latency(LATENCY_S / 2)
    for i, a in enumerate(hosts):
        for j, b in enumerate(hosts):
            if i != j:
                one_way(zone, a, b, [up[i], down[j]])
    return hosts


def circle(zone, n, bandwidth):
    """A link from each host to the next, and one back; the shorter way, forward if both are."""
    hosts = [zone.add_host(f"h{i}", 1e9) for i in range(n)]
    forth = [zone.add_link(f"forth{i}", b) for i, b in enumerate(bandwidth)]
    back = [zone.add_link(f"back{i}", b) for i, b in enumerate(bandwidth)]
    for link in forth + back:
        link.set_latency(LATENCY_S)
    for i, a in enumerate(hosts):
        for j, b in enumerate(hosts):
            hops = (j - i) % n
            if not hops:
                continue
            if hops <= n - hops:
                way = [forth[(i + k) % n] for k in range(hops)]
            else:
                way = [back[(i - k - 1) % n] for k in range(n - hops)]
            one_way(zone, a, b, way)
    return hosts


def box(simgrid, a, b, tag=0):
    """The mailbox of messages from one rank to another."""
    return simgrid.Mailbox.by_name(f"{a}>{b}:{tag}")


def send_and_get(simgrid, rank, to, came_from, size, tag=0):
    """One exchange: both are under way together, and over when both are through."""
    out = box(simgrid, rank, to, tag).put_async("x", int(size))
    into = box(simgrid, came_from, rank, tag).get_async()
    for one in (into[0] if isinstance(into, tuple) else into, out):
        one.wait()


def ring(simgrid, rank, n, demand):
    """All-reduce: 2 (n - 1) shifts of a share."""
    for _ in range(2 * (n - 1)):
        send_and_get(simgrid, rank, (rank + 1) % n, (rank - 1) % n, SIZE / n)


def halving_doubling(simgrid, rank, n, demand):
    """All-reduce of a power of two: halves with neighbours first, and back."""
    steps = [1 << k for k in range(n.bit_length() - 1)]
    sizes = [SIZE / (2 << k) for k in range(len(steps))]
    halves = [*zip(steps, sizes, strict=True)]
    for distance, size in [*halves, *reversed(halves)]:
        send_and_get(simgrid, rank, rank ^ distance, rank ^ distance, size)


def exchange(simgrid, rank, n, demand):
    """All-to-all, all messages at once."""
    under_way = []
    for k in range(1, n):
        to, came_from = (rank + k) % n, (rank - k) % n
        under_way.append(box(simgrid, rank, to).put_async("x", int(demand[rank][to])))
        into = box(simgrid, came_from, rank).get_async()
        under_way.append(into[0] if isinstance(into, tuple) else into)
    for one in under_way:
        one.wait()


def pairwise(simgrid, rank, n, demand):
    """All-to-all, one message at a time."""
    for k in range(1, n):
        to, came_from = (rank + k) % n, (rank - k) % n
        out = box(simgrid, rank, to).put_async("x", int(demand[rank][to]))
        into = box(simgrid, came_from, rank).get_async()
        for one in (into[0] if isinstance(into, tuple) else into, out):
            one.wait()


def even(n):
    """What each sends each: a share."""
    return [[SIZE // n] * n for _ in range(n)]


def uneven(n):
    """Some more than others, by a rule that needs no random numbers."""
    return [[SIZE // n * (1 + (3 * i + 5 * j) % 7) // 4 for j in range(n)] for i in range(n)]


SAME, MIXED = "same", "mixed"


def bandwidths(n, kind):
    """Of the links of each host: the same, or every third half as fast."""
    return [BANDWIDTH / 2 if kind == MIXED and i % 3 == 1 else BANDWIDTH for i in range(n)]


CASES = [
    (network, n, kind, algo, demand)
    for network in ("switch", "circle")
    for n in (4, 8)
    for kind in (SAME, MIXED)
    for algo, demand in (
        ("ring", "even"), ("halving_doubling", "even"), ("exchange", "even"),
        ("exchange", "uneven"), ("pairwise", "even"), ("pairwise", "uneven"),
    )
]  # fmt: skip


def run(case):
    """The time of one case in s; SimGrid has one engine a process."""
    import simgrid

    network, n, kind, algo, demand = case
    engine = simgrid.Engine([sys.argv[0], *(f"--cfg={k}:{v}" for k, v in SETTINGS.items()),
                             "--log=root.thresh:critical"])  # fmt: skip
    zone = engine.netzone_root.add_netzone_full("all")
    hosts = globals()[network](zone, n, bandwidths(n, kind))
    zone.seal()
    matrix = globals()[demand](n)
    for rank, host in enumerate(hosts):
        host.add_actor(f"rank{rank}", globals()[algo], simgrid, rank, n, matrix)
    engine.run()
    return engine.clock


def main():
    """Every case in a process of its own."""
    import simgrid

    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        times = pool.map(run, CASES, chunksize=1)
    keys = ("network", "n", "links", "algo", "demand")
    json.dump(
        {
            "simulator": f"SimGrid {simgrid.simgrid_version}",
            "settings": SETTINGS,
            "latency_s": LATENCY_S,
            "bandwidth_bytes_per_s": BANDWIDTH,
            "size_bytes": SIZE,
            "cases": [
                dict(zip(keys, c, strict=True), seconds=t)
                for c, t in zip(CASES, times, strict=True)
            ],
        },
        sys.stdout,
        indent=1,
    )


if __name__ == "__main__":
    main()
