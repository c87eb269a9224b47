"""Causes on real jobs, against what is known of them from elsewhere."""

from __future__ import annotations

import pytest
from retime.ingest import run
from retime.ingest.warehouse import Warehouse
from retime.queries import loader


def opened(paths: list[str], folder):
    warehouse = Warehouse(str(folder))
    run.ingest(warehouse, paths, job="j")
    snapshot = warehouse.snapshot("j")
    return loader.connect({"j": snapshot.files})


def rows(con, columns: str) -> dict[int, tuple]:
    found = con.execute(
        f"SELECT rank, {columns} FROM stragglers WHERE cause IS NOT NULL"
    ).fetchall()
    return {r[0]: r[1:] for r in found}


def test_the_late_rank_of_the_bundled_job_launches_late(demo_job, tmp_path):
    con = opened([str(p) for p in sorted(demo_job.glob("rank*.json.gz"))], tmp_path)
    found = rows(con, "cause, cause_ns, median_ns, stretches, explained_share")
    cause, cause_ns, median_ns, stretches, share = found[1]
    assert (cause, median_ns, stretches) == ("late_launches", 0, 17)
    # its launch-bound idle, which step_breakdown gives by another way, nearly all before these
    whole = con.execute(
        "SELECT sum(ns) / 4 FROM step_breakdown "
        "WHERE rank = 1 AND step IS NOT NULL AND class = 'idle_launch_bound'"
    ).fetchone()[0]
    assert 0.95 * whole < cause_ns <= 1.05 * whole
    assert share > 0.8


@pytest.fixture(scope="module", params=["AR", "ST"])
def studied(request, retime_traces, tmp_path_factory):
    """A job of the straggler study: its name, and a connection."""
    folder = retime_traces / "straggler" / "StragglerAnalysis"
    con = opened(
        [str(folder / f"trace-{request.param}.parquet")], tmp_path_factory.mktemp(request.param)
    )
    return request.param, con


def test_the_chain_of_waits_leads_to_the_slow_worker(studied):
    """From any rank of its pipeline, `peer` by `peer`, to the rank that computes longer.

    In AR worker 0 was slowed on purpose; in ST the last stage (ranks 6 and 7) has more to do.
    """
    job, con = studied
    found = rows(con, "cause, kernel, peer")
    roots = {r for r, (cause, *_) in found.items() if cause == "slower_kernels"}
    if job == "AR":
        assert roots == {0}
        assert found[0][1] == "backward-compute"
        chains = [48, 32, 16]
    else:
        assert roots == {6, 7}
        assert {found[r][1] for r in roots} == {"forward-compute"}
        chains = [0, 1, 2, 3, 4, 5]
    for rank in chains:
        assert found[rank][0] == "earlier_collective"
        for _ in range(8):
            if rank in roots:
                break
            rank = found[rank][2]
        assert rank in roots


def test_the_excess_is_that_of_the_recorded_operations(studied):
    """The root's excess, added up here from the table of events alone."""
    job, con = studied
    rank = 0 if job == "AR" else 7
    cause_ns, kernel_ns = rows(con, "cause_ns, kernel_excess_ns")[rank]
    kernel = rows(con, "kernel")[rank][0]
    sums = con.execute(
        """
        SELECT e.rank, sum(dur_ns) FILTER (name = ?), sum(dur_ns), count(DISTINCT s.step)
        FROM events e JOIN steps s USING (rank, step)
        WHERE kind = 'kernel' AND category = 'compute' GROUP BY e.rank
        """,
        [kernel],
    ).fetchall()
    own = next(r for r in sums if r[0] == rank)
    middle = (len(sums) - 1) // 2
    of_kernel = sorted(r[1] / r[3] for r in sums)[middle]
    of_all = sorted(r[2] / r[3] for r in sums)[middle]
    assert kernel_ns == pytest.approx(own[1] / own[3] - of_kernel, rel=1e-3)
    assert cause_ns == pytest.approx(own[2] / own[3] - of_all, rel=1e-2)
