"""Mesh forms against the flows that they stand for, simulated link by link, and their bounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from retime.replay.fabric import Fabric, LinkClass, Package, graph
from retime.replay.fabric.cost import collective_time_ns
from retime.replay.fabric.placed import Part, Setting, links_of, place
from retime.replay.fabric.rounds import Rounds
from retime.replay.fabric.simulate import simulate
from retime.replay.models import NoModel, mesh

LINK, HOP = 50e9, 400.0
SHAPES: list[tuple[int, int]] = [(1, 5), (2, 2), (3, 4), (4, 4), (2, 5), (5, 3), (4, 1)]


def dies(rows, columns, alpha_ns=0.0):
    package = Package(LinkClass("die", LINK, alpha_ns=alpha_ns), rows, columns, shape="mesh")
    return Fabric("dies", 1, rows * columns, package=package)


def priced(op: str, shape: tuple[int, int], size: float, alpha_ns=0.0):
    return float(mesh.time_ns(mesh.phases(op, *shape, size), alpha_ns, LINK))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("op", ["all_to_all", "scatter", "gather"])
def test_all_messages_at_once_are_as_simulated(op, shape):
    n = shape[0] * shape[1]
    size = 1e6 * n
    took = collective_time_ns(dies(*shape), op, "direct", range(n), size)
    assert took == pytest.approx(priced(op, shape, size))
    # With a cost a hop the farthest message may not be the last: no less than without, no more
    # than with all of its hops.
    far = collective_time_ns(dies(*shape, HOP), op, "direct", range(n), size)
    assert took <= far <= priced(op, shape, size, HOP) * (1 + 1e-9)


def test_a_message_from_corner_to_corner():
    # 5 hops of 400 ns, 1 MB at 50 GB/s: 2 us and 20 us.
    took = collective_time_ns(dies(3, 4, HOP), "send", "direct", [0, 11], 1e6)
    assert took == pytest.approx(22_000)
    assert priced("send", (3, 4), 1e6, HOP) == pytest.approx(took)
    assert mesh.hops(3, 4, 0, 11) == 5
    assert mesh.hops(3, 4, 6, 1) == 2


def shifts(rows, columns, size):
    """Both-way shifts along rows, then columns: each die passes on what it was passed."""
    flows = []

    def along(line, shard, joins):
        p = len(line)
        for order in (line, line[::-1]):
            came = {}
            for step in range(1, p):
                for i in range(step, p):
                    # The shard of die i - step moves from i - 1 to i.
                    wait = [came[i - step, i - 1]] if step > 1 else joins.get(order[i - 1], [])
                    came[i - step, i] = len(flows)
                    flows.append((order[i - 1], order[i], shard, wait))

    for row in range(rows):
        along([row * columns + c for c in range(columns)], size / (rows * columns), {})
    done = list(range(len(flows)))
    if done:
        flows.append((-1, -1, 0.0, done))
        done = [len(flows) - 1]
    for column in range(columns):
        line = [r * columns + column for r in range(rows)]
        along(line, size / rows, dict.fromkeys(range(rows * columns), done))
    src, dst, moved, waits = zip(*flows, strict=True)
    return Rounds(
        rows * columns, np.array(src), np.array(dst), np.array(moved),
        np.concatenate([[0], np.cumsum([len(w) for w in waits])]),
        np.array([w for one in waits for w in one], np.int64),
    )  # fmt: skip


@pytest.mark.parametrize("alpha_ns", [0.0, HOP])
@pytest.mark.parametrize("shape", SHAPES)
def test_gathering_by_dimension_is_as_simulated(shape, alpha_ns):
    n, size = shape[0] * shape[1], 24e6
    wires = graph(dies(*shape, alpha_ns))
    made = Part(shifts(*shape, size), np.arange(n))
    links, paths, flows, _ = place(wires, links_of(wires), [made], Setting())
    took = simulate(links, paths, flows).time_ns
    for op in ("all_gather", "reduce_scatter"):
        assert priced(op, shape, size, alpha_ns) == pytest.approx(took)
    assert priced("all_reduce", shape, size, alpha_ns) == pytest.approx(2 * took)


def test_a_buffer_in_pieces_by_hand():
    # Rows of 4, columns of 3: 3 + 2 hops, and the buffer over a link twice, as no piece goes on
    # along the columns before all have come along the row.
    assert priced("broadcast", (3, 4), 1e6, HOP) == pytest.approx(5 * 400 + 2 * 20_000)
    assert priced("reduce", (3, 4), 1e6, HOP) == pytest.approx(5 * 400 + 2 * 20_000)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(SHAPES), st.integers(0, 2**31))
def test_uneven_demands_load_the_links_that_the_fabric_says(shape, seed):
    n = shape[0] * shape[1]
    rng = np.random.default_rng(seed)
    demand = rng.lognormal(0, 1, (n, n)) * (rng.random((n, n)) < 0.6) * 1e5
    np.fill_diagonal(demand, 0)
    if not demand.any():
        return
    wires = graph(dies(*shape))
    src, dst = np.nonzero(demand)
    none = np.zeros(len(src) + 1, np.int64)
    one = Rounds(n, src, dst, demand[src, dst], none, np.empty(0, np.int64))
    links, paths, flows, _ = place(wires, links_of(wires), [Part(one, np.arange(n))], Setting())
    ended = simulate(links, paths, flows)
    found = mesh.uneven(*shape, demand)
    assert float(found.link) == pytest.approx(ended.link_bytes.max())
    assert float(found.energy) == pytest.approx(ended.link_bytes.sum())
    assert ended.time_ns >= float(mesh.time_ns((found,), 0.0, LINK)) * (1 - 1e-9)


@pytest.mark.parametrize("shape", SHAPES)
def test_an_even_demand_is_the_even_form(shape):
    n = shape[0] * shape[1]
    (even,) = mesh.phases("all_to_all", *shape, 1e6 * n)
    found = mesh.uneven(*shape, np.full((n, n), 1e6))
    assert [float(x) for x in found] == pytest.approx([float(x) for x in even])


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(mesh.OPS), st.sampled_from(SHAPES), st.floats(1, 1e9), st.floats(0, 1e4))
def test_no_form_is_under_its_bound(op, shape, size, alpha_ns):
    bound = float(mesh.bound_ns(op, *shape, size, alpha_ns, LINK))
    assert priced(op, shape, size, alpha_ns) >= bound * (1 - 1e-9)


def test_an_all_to_all_meets_the_bisection():
    # 4 x 4: eight dies send 1/16 of their bytes to each of the other eight over four links.
    size = 16e6
    assert priced("all_to_all", (4, 4), size) == pytest.approx(8 * 8 * 1e6 / 4 / LINK * 1e9)
    assert mesh.bound_ns("all_to_all", 4, 4, size, 0.0, LINK) == priced("all_to_all", (4, 4), size)


def test_a_row_gathers_in_cycles():
    # 16 dies, 16 words each: 240 words into the end, 15 hops behind their mean load, one round.
    (phase,) = mesh.phases("all_gather", 1, 16, 16 * 16 * 4.0)
    assert mesh.cycles((phase,), 2, 4) == max(15 * 16, 8 * 16 + 15) + 5
    back = mesh.phases("reduce_scatter", 1, 16, 16 * 16 * 4.0)
    assert mesh.cycles(back, 2, 4) == max(15 * 16, 8 * 16 + 15) + 5 * 15


def test_one_die_and_what_there_is_not():
    for op in mesh.OPS:
        assert mesh.phases(op, 1, 1, 1e6) == ()
        assert float(mesh.time_ns((), 1.0, 1.0)) == 0
        assert mesh.bound_ns(op, 1, 1, 1e6, 1.0, 1.0) == 0
    with pytest.raises(NoModel, match="no mesh model of 'barrier'"):
        mesh.phases("barrier", 2, 2, 1)
