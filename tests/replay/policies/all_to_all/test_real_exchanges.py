"""Real all-to-alls and real routing through ingest into the policies.

The all-to-alls are a DLRM's (8 V100 of one host), the routing DeepSeek-V2-Lite's (ESFT): put
together they are nobody's job, but every step from file to estimate is run on what was recorded.
"""

from __future__ import annotations

import numpy as np
import pytest
import retime
from retime.replay import run
from retime.replay.load import load
from retime.replay.moe import exchange, routed


@pytest.fixture(scope="module")
def dlrm(request, tmp_path_factory):
    traces = request.getfixturevalue("retime_traces")
    warehouse = retime.open(tmp_path_factory.mktemp("wh"))
    param = traces / "kineto" / "param"
    warehouse.ingest(
        [param / "dlrm_kineto.tar.gz", param / "dlrm_pytorch_et.tar.gz",
         traces / "moe" / "ESFT" / "translation"], job="dlrm",
    )  # fmt: skip
    return warehouse.job("dlrm")


def entry(job, spec):
    (found,) = retime.replay(job, policies=[spec])["policies"]
    return found


def test_splits_of_a_real_all_to_all_are_read(dlrm):
    found = exchange.find(run.baseline(load(dlrm.snapshot)).job)
    sources = [one.demand.source for one in found.exchanges]
    assert sorted(sources) == ["routing"] + ["splits"] * 4
    for one in found.exchanges:
        assert one.hosts == 1
        assert one.demand.matrix.shape == (8, 8)
        assert one.demand.matrix.sum() > 0


def test_real_choices_are_counted(dlrm):
    _, routing = routed.of(load(dlrm.snapshot))
    assert routing is not None
    assert routing.experts == 64
    assert (len(routing.steps), routing.layers) == (40, (0, 1, 2))
    # 49506 choices in each of layers 1, 13 and 26, as the ingest's own tests count them.
    members = np.arange(8)
    whole = sum(
        routing.counts(s, layer, members).sum() for s in routing.steps for layer in (0, 1, 2)
    )
    assert whole == pytest.approx(3 * 49506)


def test_another_algorithm_is_counted_from_real_splits(dlrm):
    # Its tables send alike to everybody: each shift's largest block is that of the busiest rank, so
    # that pairs without latency take as long as all at once; a ring carries blocks several hops.
    given = "op=all_to_all,from=direct,alpha=0,bandwidth=1GB/s"
    pairs, ring = (entry(dlrm, f"algorithm:algo={a},{given}") for a in ("pairwise", "ring"))
    assert pairs["recovered"]["transfer_ns"] == 0
    assert ring["recovered"]["transfer_ns"] < 0
    for found in (pairs, ring):
        assert any("counted from who sends how much to whom" in x for x in found["assumptions"])


def test_no_rail_carries_a_one_host_job(dlrm):
    found = entry(dlrm, "rail-balance")
    assert found["gain_pct"] == 0
    assert any("no rail carries any of it" in w for w in found["warnings"])


def test_waves_do_not_win_without_incast(dlrm):
    found = entry(dlrm, "wave-schedule")
    assert found["recovered"]["transfer_ns"] < 0
    assert any("waves cannot win" in w for w in found["warnings"])
    assert entry(dlrm, "select")["gain_pct"] == 0


def test_batches_gain_what_their_share_allows(dlrm):
    found = entry(dlrm, "batch-a2a:batches=4")
    assert found["recovered"]["transfer_ns"] > 0
    assert 0 <= found["gain_pct"] < 0.4
    assert any("at most 0.3" in a for a in found["assumptions"])


def test_copies_even_out_real_routing(dlrm):
    found = entry(dlrm, "replicate-experts:when=runtime,budget=16,hidden=1")
    (said,) = [a for a in found["assumptions"] if "busiest rank over the mean" in a]
    before, after = (float(x.rstrip(",")) for x in said.split("in ")[1].split(" to "))
    assert before > 1.3
    assert after < before - 0.15
    lagged = entry(dlrm, "replicate-experts:budget=16,hidden=1")
    assert any("busiest rank over the mean" in a for a in lagged["assumptions"])


def test_routing_that_sums_over_ranks_moves_no_expert(dlrm):
    found = entry(dlrm, "place-experts")
    assert found["gain_pct"] == 0
    assert any("experts of one host" in w for w in found["warnings"])
