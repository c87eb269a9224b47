"""A trace against the tables that TraceLens publishes for it.

AMD-AGI/TraceLens (MIT), tests/traces/mi300/resnet_act_checkpoint_recompute_perf_report_csvs:
gpu_timeline.csv and ops_summary_by_category.csv. The trace (one rank of MI300X, three steps) is
among the shared ones. Times there were added up as floating-point numbers of microseconds.
"""

from __future__ import annotations

import pytest
from retime.ingest import run
from retime.ingest.warehouse import Warehouse
from retime.queries import loader

TIMELINE_MS = {
    "computation": 19.2341318359375,
    "exposed_comm": 35.2831064453125,
    "exposed_memcpy": 1.5836318359375,
    "idle": 0.41673291015625,
    "total": 56.51760302734375,
    "total_comm": 47.20031005859375,
    "total_memcpy": 1.63343310546875,
}
MULTI_TENSOR_APPLY_MS = 0.09075634765625
REDUCE_MS = 0.0642314453125
ROUNDED_NS = 50
"""Theirs are sums of float64 microseconds since 1970, good to 0.2 ns x 2,000 intervals at best."""


@pytest.fixture(scope="module")
def con(retime_traces, tmp_path_factory):
    path = retime_traces / "kineto/TraceLens/mi300/resnet_act_checkpoint.json.gz"
    warehouse = Warehouse(str(tmp_path_factory.mktemp("tracelens")))
    run.ingest(warehouse, [str(path)], job="j")
    return loader.connect({"j": warehouse.snapshot("j").files}, threads=1)


def near(ns: int, ms: float):
    return ns == pytest.approx(ms * 1e6, abs=ROUNDED_NS)


def test_the_timeline_agrees(con):
    of = dict(
        con.execute(
            "SELECT class, sum(ns)::BIGINT FROM step_breakdown WHERE step IS NOT NULL GROUP BY 1"
        ).fetchall()
    )
    comm, compute = con.execute(
        "SELECT sum(comm_ns)::BIGINT, sum(compute_ns)::BIGINT FROM overlap WHERE step IS NOT NULL"
    ).fetchone()
    assert near(comm, TIMELINE_MS["total_comm"])
    assert near(compute, TIMELINE_MS["computation"])
    assert near(of["compute"] + of["compute_with_comm"], TIMELINE_MS["computation"])
    exposed = of["exposed_transfer"] + of["exposed_comm_unsplit"]
    assert near(exposed, TIMELINE_MS["exposed_comm"])
    assert near(sum(of.values()), TIMELINE_MS["total"])
    # A memset is a copy here and idle time there.
    copies = dict(
        con.execute(
            "SELECT what, sum(ns)::BIGINT FROM step_composition "
            "WHERE class = 'exposed_memcpy' AND step IS NOT NULL GROUP BY 1"
        ).fetchall()
    )
    memset = copies.pop("Memset (Device)")
    assert near(sum(copies.values()), TIMELINE_MS["exposed_memcpy"])
    idle = sum(ns for name, ns in of.items() if name.startswith("idle"))
    assert near(idle + memset, TIMELINE_MS["idle"])


def test_kinds_of_work_agree(con):
    (copies,) = con.execute(
        "SELECT sum(dur_ns)::BIGINT FROM events WHERE kind = 'memcpy' AND step IS NOT NULL"
    ).fetchone()
    assert near(copies, TIMELINE_MS["total_memcpy"])
    kernels = "SELECT sum(dur_ns)::BIGINT FROM events WHERE kind = 'kernel' AND step IS NOT NULL"
    (applied,) = con.execute(f"{kernels} AND contains(name, 'multi_tensor_apply')").fetchone()
    assert near(applied, MULTI_TENSOR_APPLY_MS)
    (reduced,) = con.execute(f"{kernels} AND category = 'reduction'").fetchone()
    assert near(reduced, REDUCE_MS)
