"""Who sends how much to whom: splits, transfers, routing, or even."""

from __future__ import annotations

import numpy as np
import pytest
from retime.replay import run
from retime.replay.moe import exchange, routed

COUNTS = np.array([[6, 1, 2, 3], [1, 5, 0, 0], [4, 4, 4, 4], [0, 0, 9, 1]])


def routing(counts=COUNTS, steps=(0,), layer=0, **more):
    return [
        {"step": s, "layer": layer, "rank": r, "expert": e, "tokens": int(n),
         "token_class": "real", "source": "t", **more}
        for s in steps for r, row in enumerate(counts) for e, n in enumerate(row) if n
    ]  # fmt: skip


def demands(job, **ports):
    found = exchange.find(run.baseline(job).job, **ports)
    return found, [one.demand for one in found.exchanges]


def test_recorded_splits_come_first(a2a_job):
    matrix = np.arange(16.0).reshape(4, 4) * 100
    job = a2a_job([[matrix]], hosts=2, places=2, routing=routing())
    found, (one,) = demands(job)
    assert one.source == "splits"
    assert one.matrix == pytest.approx(matrix)
    assert any("1 by their recorded splits" in a for a in found.job.assumptions)


def test_routing_gives_the_shape_and_the_record_the_size(a2a_job):
    job = a2a_job([[np.full((4, 4), 100)]], hosts=2, places=2, routing=routing(), splits=False)
    _, (one,) = demands(job)
    assert one.source == "routing"
    assert one.matrix == pytest.approx(COUNTS * 1600 / COUNTS.sum())


def test_recorded_holders_come_before_equal_blocks(a2a_job):
    rows = [r | {"expert_rank": 3 - r["expert"]} for r in routing()]
    job = a2a_job([[np.full((4, 4), 100)]], hosts=2, places=2, routing=rows, splits=False)
    _, (one,) = demands(job)
    assert one.matrix == pytest.approx(COUNTS[:, ::-1] * 1600 / COUNTS.sum())


def test_experts_that_do_not_divide_have_no_place(a2a_job):
    rows = [*routing(), *routing(np.array([[0, 0, 0, 0, 1]]))]
    job = a2a_job([[np.full((4, 4), 100)]], hosts=2, places=2, routing=rows, splits=False)
    found, (one,) = demands(job)
    assert one.source == "uniform"
    assert one.matrix.tolist() == np.full((4, 4), 100.0).tolist()
    assert any("taken to be even" in a for a in found.job.assumptions)


def test_transfers_by_peer(a2a_job):
    rows = [
        {"rank": s, "peer_rank": d, "bytes": 10 * s + d, "collective_id": 0, "direction": way}
        for s in range(4) for d in range(4) for way in ("send", "recv")
    ]  # fmt: skip
    job = a2a_job([[np.full((4, 4), 100)]], hosts=2, places=2, splits=False,
                  extra={"transfers": rows})  # fmt: skip
    _, (one,) = demands(job)
    assert one.source == "transfers"
    assert one.matrix == pytest.approx(np.add.outer(10 * np.arange(4), np.arange(4)))


def test_steps_that_are_numbered_otherwise_stand_together(a2a_job):
    rows = routing(steps=(100,)) + routing(COUNTS.T, steps=(101,))
    job = a2a_job([[np.full((4, 4), 100)]], hosts=2, places=2, routing=rows, splits=False)
    _, (one,) = demands(job)
    assert one.matrix == pytest.approx((COUNTS + COUNTS.T) * 1600 / (2 * COUNTS.sum()))


def test_padding_is_not_routed(a2a_job):
    rows = routing() + routing(COUNTS[::-1], token_class="padding")
    job = a2a_job([[np.full((4, 4), 100)]], hosts=2, places=2, routing=rows, splits=False)
    _, (one,) = demands(job)
    assert one.matrix == pytest.approx(COUNTS * 1600 / COUNTS.sum())


@pytest.mark.parametrize(
    ("place", "count", "at"),
    [
        (0, 4, (7, False)),
        (1, 4, (7, True)),
        (2, 4, (9, False)),
        (3, 4, (9, True)),
        (4, 8, (9, False)),  # backward of the last combine sends gradients out
        (5, 8, (9, True)),
        (7, 8, (7, True)),
        (0, 5, None),
        (0, 0, None),
    ],
)
def test_layer_of_an_exchange(place, count, at):
    assert routed.layer_of(place, count, (7, 9)) == at


def test_a_combine_goes_the_other_way(a2a_job):
    job = a2a_job([[np.full((4, 4), 100)] * 2], hosts=2, places=2, routing=routing(), splits=False)
    _, (out, back) = demands(job)
    assert (out.combines, back.combines) == (False, True)
    assert back.matrix == pytest.approx(out.matrix.T)


def test_two_sources_are_not_added_up(a2a_job):
    rows = routing() + [r | {"source": "u", "tokens": 1} for r in routing()]
    job = a2a_job([[np.full((4, 4), 100)]], hosts=2, places=2, routing=rows, splits=False)
    found, (one,) = demands(job)
    assert one.matrix == pytest.approx(COUNTS * 1600 / COUNTS.sum())
    assert any("2 sources" in w for w in found.job.warnings)


def test_ports_are_the_devices_or_as_given(a2a_job):
    job = a2a_job([[np.full((4, 4), 100)]], hosts=2, places=2)
    found, _ = demands(job)
    assert found.speeds == (48.5e9, 370.8e9)
    assert any("H100" in a for a in found.job.assumptions)
    found, _ = demands(job, nic=1e9, nvlink=2e9, alpha=7.0)
    assert found.speeds == (1e9, 2e9)
    assert found.exchanges[0].latency_ns == 3 * 7.0
