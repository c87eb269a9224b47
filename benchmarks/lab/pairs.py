"""Every pair of the table: a run before, a run after, and the estimate that is to tell one from
the other."""

from __future__ import annotations

from dataclasses import dataclass

from .shape import Shape
from .workload import Workload


@dataclass(frozen=True)
class Run:
    """A workload on a network; pairs may share one. The name is its folder's."""

    name: str
    shape: Shape
    load: Workload


@dataclass(frozen=True)
class Pair:
    """A change; `policies` and (if `fabric`) a description of the network before are all that the
    estimate has beside the traces before."""

    kind: str
    name: str
    before: Run
    after: Run
    policies: tuple[str, ...]
    fabric: bool = False


def every() -> tuple[Pair, ...]:
    """All pairs, by kind."""
    from .kinds import (
        algorithms,
        balanced,
        incast,
        levels,
        overlapped,
        pytorch,
        rails,
        rates,
        split,
        storage,
        stragglers,
    )

    rooms = (stragglers, algorithms, rails, balanced, incast, levels, split, storage, overlapped,
             rates, pytorch)  # fmt: skip
    found = [pair for room in rooms for pair in room.pairs()]
    kinds = list(dict.fromkeys(p.kind for p in found))
    found = tuple(sorted(found, key=lambda p: kinds.index(p.kind)))
    names = [p.name for p in found]
    assert len(set(names)) == len(names), "two pairs of one name"
    return found


def chosen(words: list[str]) -> tuple[Pair, ...]:
    """Pairs whose kind or name begins with one of the words; all for none."""
    return tuple(
        p for p in every()
        if not words or any(p.kind.startswith(w) or p.name.startswith(w) for w in words)
    )  # fmt: skip


def runs(pairs: tuple[Pair, ...]) -> dict[str, Run]:
    """The runs that pairs need, each once."""
    out: dict[str, Run] = {}
    for pair in pairs:
        for run in (pair.before, pair.after):
            if out.setdefault(run.name, run) != run:
                raise AssertionError(f"two runs of the name {run.name}")
    return out
