"""Native, balanced or in waves: for each all-to-all what calibrated models say, if that is sure.

The rule and its calibration are in `replay.moe.choice`. Steps are calibrated by the other half of
the job's steps, never by themselves.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from ..moe import choice, exchange, incast, params, schedules
from ..moe import ways as modelled
from ..policy import BadParam, Param, Policy, ReplayJob, words
from .wave_schedule import POLICY as WAVES

NEUTRAL = {"epsilon": 1e12}
"""Nothing is better by that much, so everything stays native."""

WAYS = ("balanced", "waves", "bvn")
EPSILON = 0.1
"""Taken where too few all-to-alls calibrate the models."""

ENOUGH = 8
"""All-to-alls that tell an error's 90th percentile."""

ASSUMPTIONS = (
    "ways that did not run are as far from their models as native is from its own, unless "
    "r_balanced and r_waves say otherwise",
    "the choice costs nothing",
)


def apply(
    job: ReplayJob,
    *,
    ways: tuple[str, ...],
    epsilon: float | None,
    r_balanced: float,
    r_waves: float,
    width: int,
    alpha_w: float,
    native: str,
    window: int,
    gamma: float | str,
    free: int,
    **ports,
) -> ReplayJob:
    """The job with each all-to-all the way that is chosen for it."""
    if not ways or not set(ways) <= set(WAYS):
        raise BadParam(f"policy select: ways={'+'.join(ways)}: some of {', '.join(WAYS)}")
    if epsilon is not None and not epsilon >= 0:
        raise BadParam(f"policy select: epsilon={epsilon}: it is 0 or more")
    params.checked("select", width=width, window=window, r_balanced=r_balanced, r_waves=r_waves)
    found = exchange.find(job, **ports)
    if not found.exchanges:
        return found.job
    job, term, _ = incast.stated(job, found, gamma, free, ports)
    ran = schedules.Native(native, window, term)
    factor = {choice.NATIVE: 1.0, "balanced": r_balanced, "waves": r_waves, "bvn": r_waves}
    known: dict[bytes, dict[str, tuple[float, float]]] = {}
    for one in found.exchanges:
        key = schedules.key(one)
        if key not in known:
            known[key] = modelled.models(one, found.speeds, ways, ran, width, alpha_w, term)
    models = [known[schedules.key(one)] for one in found.exchanges]
    folds = modelled.folds(found.exchanges)
    ran_so = list(zip(found.exchanges, models, folds, strict=True))
    calibrated = [
        modelled.calibrated([(one, m[choice.NATIVE][0]) for one, m, f in ran_so if f != fold])
        for fold in range(2)
    ]
    old, new, added = np.ones(len(models)), np.ones(len(models)), np.zeros(len(models))
    taken: Counter[str] = Counter()
    used: set[float] = set()
    for i, (one, m) in enumerate(zip(found.exchanges, models, strict=True)):
        calibration = calibrated[folds[i]]
        margin = epsilon
        if margin is None:
            margin = calibration.error if calibration.n >= ENOUGH else EPSILON
        level = calibration.of(modelled.class_of(one))
        times = {way: took * factor[way] * level + more for way, (took, more) in m.items()}
        way = choice.choose(times, margin)
        added[i] = m[way][1]
        old[i], new[i] = times[choice.NATIVE], times[way] - added[i]
        taken[way] += 1
        used.add(round(margin, 4))
    counted = ", ".join(f"{n} {way}" for way, n in taken.most_common())
    said = [
        f"of {len(old)} all-to-alls: {counted}; another way than native only where it is better by "
        f"more than {' or '.join(f'{100 * e:.3g} %' for e in sorted(used))} "
        f"({ran.words()}; {incast.words(term)})"
    ]
    if min(c.n for c in calibrated) >= ENOUGH:
        said.append(
            "models are calibrated on the other half of the steps: measured over model "
            + " and ".join(
                f"{np.median(list(c.ratio.values())):.3g} (90 % within {100 * c.error:.3g} %)"
                for c in calibrated
            )
        )
    else:
        job = job.note(
            warnings=(
                f"too few all-to-alls outside a step's own half to calibrate ({ENOUGH} are): "
                f"an error of {100 * EPSILON:.0f} % is assumed unless epsilon is given",
            )
        )
    job = exchange.retimed(found._replace(job=job), old, new, added_ns=added)
    return job.note(assumptions=(*said, *ASSUMPTIONS), warnings=exchange.lacking(found))


_SAME = ("width", "alpha_w", "native", "window", "gamma", "free")

POLICY = Policy(
    name="select",
    summary="native, balanced or waves for each all-to-all, by calibrated models",
    source="RailWave (calibrated selector); the rule is ours",
    params=(
        Param("ways", words, ("balanced", "waves"), "", "beside native: balanced, waves, bvn"),
        Param(
            "epsilon",
            float,
            None,
            "",
            "by how much a way must be better (default: the calibration's 90th percentile, "
            f"{EPSILON} where there is none)",
        ),
        Param("r_balanced", float, 1.0, "", "measured over model of balanced, native's being 1"),
        Param("r_waves", float, 1.0, "", "measured over model of waves, native's being 1"),
        *(p for p in WAVES.params if p.name in _SAME),
        *params.PORTS,
    ),
    assumptions=ASSUMPTIONS,
    apply=apply,
    needs=("all_to_all with splits, transfers or routing", "two steps or more to calibrate"),
    valid="where models of ways that never ran err as native's does",
    checked="native 10, waves 9.5, epsilon 0.1: native; waves 8.9: waves (arithmetic)",
)
