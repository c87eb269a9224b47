"""Max-min fair rates: by hand, and what makes an allocation max-min fair over random flows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from retime.replay.fabric import flows as f

CLOSE = 1e-9


@st.composite
def nets(draw, most=12):
    """Random links, paths and weights: (links, paths, weight, rate_cap)."""
    n_links = draw(st.integers(1, 6))
    cap = draw(st.lists(st.floats(0.5, 100.0), min_size=n_links, max_size=n_links))
    crossed = draw(
        st.lists(
            st.lists(st.integers(0, n_links - 1), min_size=1, max_size=n_links, unique=True),
            min_size=1,
            max_size=most,
        )
    )
    n = len(crossed)
    weight = draw(st.lists(st.sampled_from([1.0, 1.0, 2.0, 5.0]), min_size=n, max_size=n))
    limit = draw(st.lists(st.sampled_from([np.inf, np.inf, 3.0, 0.5]), min_size=n, max_size=n))
    coef = [draw(st.sampled_from([1.0, 1.0, 0.5])) for path in crossed for _ in path]
    ptr = np.cumsum([0] + [len(p) for p in crossed])
    paths = f.paths(ptr, np.concatenate(crossed), coef)
    return f.links(cap), paths, np.array(weight), np.array(limit)


def load(links, paths, rate):
    flow = np.repeat(np.arange(paths.n), np.diff(paths.ptr))
    return np.bincount(paths.link, rate[flow] * paths.coef, minlength=len(links[0]))


def test_two_links_three_flows():
    # Worked by hand: L1 = 10, L2 = 4, a over L1, b over both, c over L2 -> 8, 2, 2.
    links = f.links([10.0, 4.0])
    rate = f.max_min(links, f.paths([0, 1, 3, 4], [0, 0, 1, 1]))
    assert rate == pytest.approx([8.0, 2.0, 2.0])


def test_a_weight_counts_as_so_many_flows():
    links, path = f.links([12.0]), f.paths([0, 1], [0])
    assert f.max_min(links, path, [0, 0], weight=[1, 3]) == pytest.approx([3.0, 9.0])
    assert f.max_min(links, path, [0, 0, 0, 0]) == pytest.approx([3.0] * 4)


def test_a_flow_spread_over_two_links_gets_both():
    links = f.links([5.0, 5.0])
    assert f.max_min(links, f.paths([0, 2], [0, 1], [0.5, 0.5])) == pytest.approx([10.0])


def test_a_cap_leaves_its_rest_to_others():
    links, path = f.links([10.0]), f.paths([0, 1], [0])
    assert f.max_min(links, path, [0, 0], rate_cap=[1.0, np.inf]) == pytest.approx([1.0, 9.0])


def test_background_load_is_taken_off():
    links = f.links([10.0], background_bytes_per_s=4.0)
    assert f.max_min(links, f.paths([0, 1], [0]), [0, 0]) == pytest.approx([3.0, 3.0])


def test_a_flow_without_links_is_not_limited():
    rate = f.max_min(f.links([1.0]), f.paths([0, 0, 1], [0]))
    assert np.isinf(rate[0])
    assert rate[1] == pytest.approx(1.0)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
@pytest.mark.parametrize(("own", "others"), [(8, 8), (8, 2), (1, 9)])
def test_a_guaranteed_share_is_a_floor(own, others, share):
    # m flows of a class with share g beside j others take min(1 + j/m, 1/g) as long as alone.
    links, path = f.links([100.0], guarantee=[share, 0.0]), f.paths([0, 1], [0])
    klass = [0] * own + [1] * others
    rate = f.max_min(links, path, [0] * (own + others), klass=klass)
    slower = (100.0 / own) / rate[0]
    assert slower == pytest.approx(min(1 + others / own, 1 / share))
    assert rate.sum() == pytest.approx(100.0)  # work-conserving


def test_a_class_that_does_not_use_its_share_leaves_it():
    links, path = f.links([10.0], guarantee=[0.8, 0.0]), f.paths([0, 1], [0])
    assert f.max_min(links, path, [0, 0], klass=[1, 1]) == pytest.approx([5.0, 5.0])
    capped = f.max_min(links, path, [0, 0], klass=[0, 1], rate_cap=[1.0, np.inf])
    assert capped == pytest.approx([1.0, 9.0])


def test_incast_counts_senders_not_flows():
    # cap(k) = B / (1 + gamma max(0, k - free)); gamma 0.5, free 1.
    links, path = f.links([12.0], incast_gamma=0.5), f.paths([0, 1], [0])
    three = f.max_min(links, path, [0, 0, 0], sender=[1, 2, 3])
    one = f.max_min(links, path, [0, 0, 0], sender=[7, 7, 7])
    assert three.sum() == pytest.approx(6.0)
    assert one.sum() == pytest.approx(12.0)


@settings(deadline=None, max_examples=200)
@given(nets())
def test_no_link_is_overfull_and_no_flow_could_be_raised_alone(net):
    links, paths, weight, cap = net
    rate = f.max_min(links, paths, weight=weight, rate_cap=cap)
    used = load(links, paths, rate)
    assert (used <= links.capacity_bytes_per_s * (1 + CLOSE)).all()
    full = used >= links.capacity_bytes_per_s * (1 - CLOSE)
    level = rate / weight
    for flow in range(paths.n):
        over = paths.link[paths.ptr[flow] : paths.ptr[flow + 1]]
        # Its bottleneck: a full link on which no flow is at a higher level; or its own cap.
        at_cap = rate[flow] >= cap[flow] * (1 - CLOSE)
        bottleneck = any(
            full[i]
            and level[flow]
            >= max(level[p] for p in range(paths.n)
                   if i in paths.link[paths.ptr[p] : paths.ptr[p + 1]]) * (1 - 1e-7)
            for i in over
        )  # fmt: skip
        assert at_cap or bottleneck


@settings(deadline=None, max_examples=100)
@given(nets(), st.randoms(use_true_random=False))
def test_the_order_of_flows_is_irrelevant(net, random):
    links, paths, weight, cap = net
    rate = f.max_min(links, paths, weight=weight, rate_cap=cap)
    order = np.array(random.sample(range(paths.n), paths.n))
    other = f.max_min(links, paths, order, weight=weight[order], rate_cap=cap[order])
    assert other == pytest.approx(rate[order], rel=1e-9)


@settings(deadline=None, max_examples=100)
@given(nets(), st.floats(0.0, 0.6), st.lists(st.integers(0, 1), min_size=12, max_size=12))
def test_a_class_never_gets_less_than_its_share_alone(net, share, classes):
    links, paths, weight, cap = net
    klass = np.array(classes[: paths.n])
    split = links._replace(guarantee=np.stack([np.full(len(links[0]), share), 0 * links[0]]))
    rate = f.max_min(split, paths, weight=weight, rate_cap=cap, klass=klass)
    used = load(links, paths, rate)
    assert (used <= links.capacity_bytes_per_s * (1 + CLOSE)).all()
    mine = np.flatnonzero(klass == 0)
    slower = links._replace(capacity_bytes_per_s=links.capacity_bytes_per_s * share)
    alone = f.max_min(slower, paths, mine, weight=weight[mine], rate_cap=cap[mine])
    assert (rate[mine] >= alone * (1 - CLOSE)).all()
    # Work-conserving: every flow is at its cap or crosses a full link.
    full = used >= links.capacity_bytes_per_s * (1 - 1e-7)
    for flow in range(paths.n):
        over = paths.link[paths.ptr[flow] : paths.ptr[flow + 1]]
        assert full[over].any() or rate[flow] >= cap[flow] * (1 - CLOSE)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: f.links([-1.0]), "capacity is negative"),
        (lambda: f.links([1.0], guarantee=[0.7, 0.7]), "add up to at most 1"),
        (lambda: f.paths([0, 2], [0]), "CSR"),
        (lambda: f.max_min(f.links([1.0]), f.paths([0, 1], [3])), "crosses link 3, of 1"),
        (lambda: f.max_min(f.links([1.0]), f.paths([0, 1], [0]), weight=0.0), "not above 0"),
        (lambda: f.max_min(f.links([1.0]), f.paths([0, 1], [0]), weight=[1, 2]), "2 values for 1"),
        (lambda: f.max_min(f.links([1.0]), f.paths([0, 1], [0]), [1]), "path is from 0 to 0"),
    ],
)
def test_bad_input_is_told(call, said):
    with pytest.raises(f.BadFlows, match=said):
        call()
