"""Ascend `communication.json`: start, transit and wait time and bytes by link of each operation."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from .ascend_names import ms_to_ns, scaled, us_to_ns
from .jsonwalk import Opened, Path, walk

if TYPE_CHECKING:
    from ..sources import Source

MOST_OPERATIONS = 1 << 20
TIMES = {
    "Transit Time(ms)": "hccl.transit_ns",
    "Wait Time(ms)": "hccl.wait_ns",
    "Synchronization Time(ms)": "hccl.synchronization_ns",
    "Idle Time(ms)": "hccl.idle_ns",
}
"""Names of `counters` by key."""

MB_DECIMALS = 6
"""A megabyte is 10^6 bytes to this writer."""

OF_SDMA = ("HCCS", "PCIE", "SIO")
"""Links whose bytes the writer adds to those of the engine's own (`combine_sdma_info`)."""

_STEP = re.compile(r"step(\d{1,18})")


class Operation(NamedTuple):
    """An operation: step, name without its group, the group's hash, times in ns, bytes by link.

    A byte counts on one link only.
    """

    step: int | None
    name: str
    group: str | None
    start_ns: int
    elapse_ns: int
    times: tuple[tuple[str, int], ...]
    links: tuple[tuple[str, int], ...]


def _opens(path: Path) -> bool:
    return len(path) <= 2


def operations(source: Source, on_odd: Callable[..., None]) -> Iterator[Operation]:
    """The operations of a file; the sums over all of them (`Total Op Info`) are left out."""
    n = 0
    for path, value in walk(source, _opens, on_odd):
        if len(path) != 3 or isinstance(value, Opened):
            continue
        key = path[2]
        if key.lower().startswith("total"):
            continue
        info = value.get("Communication Time Info") if isinstance(value, dict) else None
        if not isinstance(info, dict):
            on_odd("not_an_operation", "an operation without its times; left out", "lost")
            continue
        n += 1
        if n > MOST_OPERATIONS:
            what = f"more than {MOST_OPERATIONS} operations; the rest is left out"
            on_odd("too_many_collectives", what, "lost")
            return
        name, _, group = key.partition("@")
        times = tuple((counter, ms_to_ns(info.get(k))) for k, counter in TIMES.items())
        step = _STEP.fullmatch(path[0])
        yield Operation(
            int(step[1]) if step else None,
            name,
            group or None,
            us_to_ns(info.get("Start Timestamp(us)")),
            ms_to_ns(info.get("Elapse Time(ms)")),
            times,
            _links(value.get("Communication Bandwidth Info")),
        )


def _links(told: object) -> tuple[tuple[str, int], ...]:
    sizes = {
        link: scaled(more.get("Transit Size(MB)"), MB_DECIMALS)
        for link, more in (told.items() if isinstance(told, dict) else ())
        if isinstance(more, dict)
    }
    if "SDMA" in sizes:
        sizes["SDMA"] -= sum(max(0, sizes.get(link, 0)) for link in OF_SDMA)
    return tuple((link, size) for link, size in sizes.items() if size > 0)
