"""A replay's estimates on a Ray cluster: a worker loads the job once and re-times its shares."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..ingest import on_ray
from ..ingest.workers import portable

if TYPE_CHECKING:
    from .run import Baseline

SHARES = 4
"""For each CPU: few enough to be worth their sending, enough that all end at about one time."""

MOST_POINTS = 64
"""Of one share: what a lost worker has to do again."""


class JobFiles(NamedTuple):
    """What `load` needs of a snapshot."""

    job: str
    files: Mapping[str, Sequence[str]]
    kernels: tuple[Any, ...]


class Asked(NamedTuple):
    """What every share is a part of; `key` names this one call."""

    key: str
    job: JobFiles
    step: int | None
    fabric: Any
    policies: Sequence[Any]
    sweep: Mapping[str, Sequence[Any]] | None


def estimates(
    address: str,
    snapshot: Any,
    n_points: int,
    *,
    step: int | None,
    fabric: Any,
    policies: Sequence[Any],
    sweep: Mapping[str, Sequence[Any]] | None,
    progress: Callable[[int, int], None] | None,
) -> list[dict[str, Any]]:
    """`run.estimates` of the scenarios that `run.plan` makes of these arguments, in their order.

    `fabric` is a Fabric, or None for the job's own. Raises what the first of them that fails
    raises; UsageError or ClusterError where the cluster cannot be reached, or a node cannot see
    the job's files.
    """
    files = {t: [str(p) for p in of_it or ()] for t, of_it in snapshot.files.items()}
    job = JobFiles(snapshot.job, files, tuple(getattr(snapshot, "kernels", ())))
    asked = Asked(secrets.token_hex(16), job, step, fabric, list(policies), sweep)
    with on_ray.connected(address) as ray:
        shares = _shares(n_points, on_ray.cpus(ray))
        wanted = on_ray.shared_files(p for of_it in files.values() for p in of_it)
        found: list[dict[str, Any] | Exception | None] = [None] * n_points
        done = 0
        results = on_ray.run(
            ray, f"{__name__}:share", shares, None, None, shared=(asked,), wanted=wanted
        )
        for k, result in results:
            first, last = shares[k]
            if isinstance(result, Exception):
                raise result
            found[first : first + len(result)] = result
            done += last - first
            if progress is not None:
                progress(done, n_points)
            if (failed := _first_failed(found)) is not None:
                results.close()
                raise failed
    return [entry for entry in found if isinstance(entry, dict)]


def _shares(n: int, cpus: int) -> list[tuple[int, int]]:
    """Where each share begins and ends."""
    size = min(MOST_POINTS, max(1, -(-n // (SHARES * max(cpus, 1)))))
    return [(first, min(first + size, n)) for first in range(0, n, size)]


def _first_failed(found: Sequence[dict[str, Any] | Exception | None]) -> Exception | None:
    """The error that a run on one machine would meet first, once all before it are known."""
    first = next((x for x in found if not isinstance(x, dict)), None)
    return first if isinstance(first, Exception) else None


def share(
    asked: Asked, first: int, last: int, progress: Callable[[int], None]
) -> list[dict[str, Any] | Exception]:
    """Entries of some of the scenarios; the last may be the error that ended them."""
    from . import run

    base = _baseline(asked)
    out: list[dict[str, Any] | Exception] = []
    for n, scenario in enumerate(run.plan(asked.policies, asked.sweep)[first:last], 1):
        try:
            out.append(run.estimate(base, scenario))
        except Exception as e:
            out.append(portable(e))
            break
        progress(n)
    return out


_HELD: dict[str, Baseline] = {}
"""The baseline of the call that this process works for."""


def _baseline(asked: Asked) -> Baseline:
    from . import run
    from .load import load, with_fabric

    if asked.key not in _HELD:
        _HELD.clear()
        _HELD[asked.key] = run.baseline(with_fabric(load(asked.job), asked.fabric), asked.step)
    return _HELD[asked.key]
