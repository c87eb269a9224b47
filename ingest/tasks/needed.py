"""Which events a graph needs: those of the host only of ranks that have no device to look at."""

from __future__ import annotations

import numpy as np

from ..compiled import compiled
from .kinds import NULL
from .rows import slot


def rows(
    kind: np.ndarray,
    core: np.ndarray,
    device: np.ndarray,
    place: np.ndarray,
    ranks: int,
    event: np.ndarray,
    asked_place: np.ndarray,
    asked_event: np.ndarray,
) -> np.ndarray:
    """int64: the rows that count, of events by kind, place of the rank (0 to `ranks` - 1), number.

    Those of kinds that are `core`, and all others of ranks that have none whose kind is of a
    `device`, or a collective (`asked_place`, `asked_event`, `NULL` for none) whose event is not
    among those of a core kind. A place of `ranks` or more is that of a rank without rows.
    """
    size = 64
    while size < 16 * len(asked_event):  # few of the others meet one of these
        size *= 2
    # Made here: each kind of array that compiled code makes costs a tenth of a second of compiling.
    slots, seen = np.full(size, -1, np.int64), np.zeros(len(asked_event), bool)
    bare, out = np.ones(ranks, bool), np.empty(len(kind), np.int64)
    arrays = kind, core, device, place, event, asked_place, asked_event
    return out[: _rows(*arrays, int(NULL), slots, seen, bare, out)].copy()


@compiled
def _rows(
    kind, core, device, place, event, asked_place, asked_event, null, slots, seen, bare, out
):  # pragma: no cover - compiled
    """Fills `out`; gives how many there are. `slots` begin as -1, ranks as `bare`."""
    size, ranks = len(slots), len(bare)
    for k in range(len(asked_event)):
        value = asked_event[k]
        at = slot(0, value, size)
        while slots[at] >= 0 and asked_event[slots[at]] != value:
            at = (at + 1) & (size - 1)
        if slots[at] < 0:
            slots[at] = k
    n = 0
    for i in range(len(kind)):
        if device[kind[i]]:
            bare[place[i]] = False
        if not core[kind[i]]:
            continue
        out[n] = i
        n += 1
        value = event[i]
        at = slot(0, value, size)
        # An event that nothing asks for mostly ends at once; null is none.
        while slots[at] >= 0:
            if asked_event[slots[at]] == value:
                seen[slots[at]] = value != null
                break
            at = (at + 1) & (size - 1)
    for k in range(len(asked_event)):
        at = slot(0, asked_event[k], size)
        while asked_event[slots[at]] != asked_event[k]:
            at = (at + 1) & (size - 1)
        if not seen[slots[at]] and asked_place[k] < ranks:
            bare[asked_place[k]] = True
    any_bare = False
    for r in range(ranks):
        any_bare |= bare[r]
    if not any_bare:
        return n
    n = 0
    for i in range(len(kind)):
        if core[kind[i]] or bare[place[i]]:
            out[n] = i
            n += 1
    return n
