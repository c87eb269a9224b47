"""Hundreds of flows at once, solved together: as a loop over max-min says, event by event.

The reference has no lists, rows or heaps: rates by `flows.max_min` of those that move, until the
next starts or ends.
"""

from __future__ import annotations

import numpy as np
import pytest
from retime.replay.fabric import events
from retime.replay.fabric.flows import links, max_min, paths
from retime.replay.fabric.simulate import flows, simulate


def reference(net, ways, path, size, release):
    """End of each flow, ns; none waits for another."""
    n = len(path)
    end, left = np.full(n, np.nan), size.astype(float).copy()
    now, started = 0.0, np.zeros(n, bool)
    while np.isnan(end).any():
        started |= release <= now + 1e-9
        moving = np.flatnonzero(started & np.isnan(end))
        coming = release[~started].min(initial=np.inf)
        if not len(moving):
            now = coming
            continue
        rate = max_min(net, ways, path[moving]) * 1e-9
        until = min((left[moving] / rate).min() + now, coming)
        left[moving] -= rate * (until - now)
        now = until
        end[moving[left[moving] <= 1e-6 * size[moving] * 1e-6]] = now
    return end


def switch(ranks, groups=1):
    """Links in and out of each port, and the paths of all pairs of each group of ranks."""
    pairs = [(a, b) for a in range(ranks) for b in range(ranks)
             if a != b and a * groups // ranks == b * groups // ranks]  # fmt: skip
    crossed = np.array([(a, ranks + b) for a, b in pairs]).ravel()
    return pairs, paths(2 * np.arange(len(pairs) + 1), crossed)


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("late", [0.0, 5e4])
def test_an_uneven_exchange_is_what_the_reference_says(groups, late):
    random = np.random.default_rng(groups)
    ranks = {1: 20, 2: 28, 4: 40}[groups]
    pairs, ways = switch(ranks, groups)
    assert len(pairs) > events.MANY
    net = links(random.uniform(1e10, 5e10, 2 * ranks))
    size = random.lognormal(12, 1, len(pairs)).round()
    size[[a * groups // ranks == 0 for a, _ in pairs]] *= 0.2  # a group that ends early
    release = random.uniform(0, late, len(pairs)) if late else np.zeros(len(pairs))
    path = random.permutation(len(pairs))
    ended = simulate(net, ways, flows(path, size, release_ns=release))
    expected = reference(net, ways, path, size, release)
    assert ended.end_ns == pytest.approx(expected, rel=1e-6, abs=1)
    assert ended.time_ns >= ended.bound_ns * (1 - 1e-9)


def test_their_order_does_not_matter():
    random = np.random.default_rng(9)
    pairs, ways = switch(20)
    net = links(random.uniform(1e10, 5e10, 40))
    size = random.lognormal(12, 1, len(pairs))
    path = np.arange(len(pairs))
    first = simulate(net, ways, flows(path, size))
    mixed = random.permutation(len(pairs))
    other = simulate(net, ways, flows(path[mixed], size[mixed]))
    np.testing.assert_allclose(other.end_ns, first.end_ns[mixed], rtol=1e-9)
    np.testing.assert_allclose(other.link_busy_ns, first.link_busy_ns, rtol=1e-9)
