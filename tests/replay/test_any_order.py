"""Results of every policy of the catalogue do not depend on the order in which tasks are given."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from retime.replay import policies, run

from .random_jobs import jobs

SPECS = {
    "algorithm": "algorithm:op=all_reduce,algo=recursive-doubling",
    "hierarchical": "hierarchical",
    "align-arrivals": "align-arrivals:factor=0.5",
    "scale-fabric": "scale-fabric:link=all",
    "overlap": "overlap:chunk=1MiB,until=step,depth=1",
    "tile-overlap": "tile-overlap:tiles=1060",
    "sm-budget": "sm-budget:recorded=24",
    "megakernel": "megakernel:kernels=ward",
    "datapath": "datapath:alpha=0.5,beta=2",
    "launch-path": "launch-path:bulk=1MiB",
    "rail-balance": "rail-balance:granularity=0",
    "wave-schedule": "wave-schedule:native=all-at-once,gamma=0.1",
    "select": "select:gamma=0.1",
    "batch-a2a": "batch-a2a:batches=2",
    "congestion-aware": "congestion-aware:between=0-1,load=0.5",
    "isolate-storage": "isolate-storage:flows=8+8",
    "optical": "optical:schedule=rotor",
    "compress": "compress:op=all_gather,least=1",
    "replicate-experts": "replicate-experts",
    "place-experts": "place-experts",
    "host-staged": "host-staged:op=all_to_all+all_gather+all_reduce",
    "reshard": "reshard:width=1,sources=1",
    "parallelism": "parallelism:micro_batch=1,was=dp1+mb2,batch=8,model=llama2-7b",
    "on-package": "on-package:stall=1ms",
    "checkpoint": "checkpoint",
}
"""One use of each that changes what it can change of a random job."""


def test_every_policy_is_tried():
    assert set(SPECS) == set(policies.REGISTRY)


@pytest.mark.parametrize("spec", SPECS.values())
@settings(deadline=None, max_examples=3, suppress_health_check=list(HealthCheck), derandomize=True)
@given(pair=jobs(shuffled=True))
def test_an_estimate_does_not_depend_on_the_order_of_tasks(spec, pair):
    one, other = (run.replay(job, [spec])["policies"][0] for job in pair)
    # Ends are rounded to the ns once a task.
    assert one["step_ns"] == pytest.approx(other["step_ns"], abs=2)
    assert one["recovered"] == pytest.approx(other["recovered"], abs=2)
    assert (one["low_ns"], one["high_ns"]) == pytest.approx(
        (other["low_ns"], other["high_ns"]), abs=2
    )
    for key in ("floors", "assumptions", "warnings"):
        assert one[key] == other[key]
