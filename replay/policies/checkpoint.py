"""How often the job saves a checkpoint: the time that saves and failures cost on top of steps.

Overhead C/I + lambda (I/2 + R), least at I = sqrt(2 C / lambda). It is not of one step: every step
is longer by it on average, against the overhead of the interval that the job has now.
"""

from __future__ import annotations

from dataclasses import replace

from ..costs.checkpointing import FORMULAS, best_interval, overhead
from ..policy import BadParam, Param, Policy, ReplayJob, Stage
from ..quantities import time_ns

NEUTRAL = {"now": 600e9, "every": 600e9}

MOST_OVERHEAD = 1e6
"""Beyond it nothing runs any more: a unit was mistaken."""

ASSUMPTIONS = (
    "failures come at random, one at a time, and a save is blocking (give an asynchronous one its "
    "blocking part)",
    "recorded steps hold no save and no failure",
)


def apply(
    job: ReplayJob,
    *,
    save: float,
    restart: float,
    mtbf: float,
    now: float | None,
    every: float | None,
    formula: str,
) -> ReplayJob:
    """The job whose steps carry their share of saves and failures, by another interval."""
    for name, value in (("save", save), ("mtbf", mtbf), ("now", now), ("every", every)):
        if value is not None and not value > 0:
            raise BadParam(f"policy checkpoint: {name}={value:g}: a time above 0, such as 60s")
    if restart < 0:
        raise BadParam(f"policy checkpoint: restart={restart:g}: a time of 0 or more, such as 5min")
    new = best_interval(save, restart, mtbf, formula) if every is None else every
    after = overhead(new, save, restart, mtbf)
    before = 0.0 if now is None else overhead(now, save, restart, mtbf)
    if not max(before, after) <= MOST_OVERHEAD:
        raise BadParam(
            f"policy checkpoint: saves and failures would take {max(before, after):.3g} times as "
            "long as the steps: are the units of save, restart, mtbf and the intervals right?"
        )
    factor = (1 + after) / (1 + before)
    said = [f"an interval of {_s(new)} costs {100 * after:.3g} % of the time"]
    if now is not None:
        said.append(f"the present interval of {_s(now)} costs {100 * before:.3g} %")
    else:
        said.append("the present interval is not given: the estimate is the step with the overhead")
    warnings = ()
    if new > mtbf / 2 or after > 0.5:
        warnings = (
            f"an interval of {_s(new)} beside an MTBF of {_s(mtbf)} is beyond the formula, which "
            "counts one failure an interval at most: take the result as an order of magnitude",
        )
    facts = {**job.facts, "time_factor": float(job.facts.get("time_factor", 1.0)) * factor}
    return replace(job, facts=facts).note(assumptions=(*ASSUMPTIONS, *said), warnings=warnings)


def _s(value_ns: float) -> str:
    return f"{value_ns / 1e9:.4g} s"


POLICY = Policy(
    name="checkpoint",
    summary="another checkpoint interval: what saves and failures cost on top of steps",
    source="Young 1974; Daly 2006; arXiv 2410.18124",
    params=(
        Param("save", time_ns, 60e9, "ns", "that a save holds the job up (60s)"),
        Param("restart", time_ns, 300e9, "ns", "from a failure to the first useful step (300s)"),
        Param("mtbf", time_ns, 10_800e9, "ns", "of the whole job: a node's over their number (3h)"),
        Param("now", time_ns, None, "ns", "the present interval (default: no saves)"),
        Param("every", time_ns, None, "ns", "the new interval (default: the best)"),
        Param("formula", str, "young", "", "of the best interval", FORMULAS),
    ),
    assumptions=ASSUMPTIONS,
    apply=apply,
    stage=Stage.RUN,
    needs=("nothing of the trace but its steps: save, restart and mtbf are yours",),
    valid="intervals well below the MTBF",
    checked=(
        "C 60 s, MTBF 10,800 s, R 300 s: 1,138.4 s and 13.32 %; Daly's published minutes for C 5: "
        "MTBF 1,440 -> 117, 360 -> 57, 15 -> 9.1"
    ),
)
