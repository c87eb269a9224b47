"""One try to deliver: files into a job of a warehouse, and for each what came of it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import NamedTuple

from ..clashes import RankClash
from ..errors import (
    RetimeError,
    StoreBusy,
    StoreRefused,
    UnusableInput,
    UsageError,
    WarehouseError,
)
from ..run import IngestReport, ingest
from .entry import Entry, look

DELIVERED, AGAIN, FAILED = "delivered", "again", "failed"

_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)
_REFUSED_WORDS = ("cannot be written; check its owner", "is not a warehouse: ", "read-only")
"""What is said of a folder where another try would end the same."""


class Outcome(NamedTuple):
    """What came of an entry: delivered, again (later may do), failed (would end the same).

    `refused` says of `again` that the warehouse said no: no more tries in this call. `status` is
    new or already for what is delivered, `lost` counts the occurrences of input lost in it.
    `growing` says that its writer is not done.
    """

    kind: str
    error: str = ""
    refused: bool = False
    status: str = ""
    lost: int = 0
    ranks: tuple[int, ...] = ()
    growing: bool = False


GROWING = Outcome(AGAIN, "it is still being written to", growing=True)


class Try(NamedTuple):
    """Outcomes by entry's id, the source bytes that were looked at, and a warehouse that is new."""

    outcomes: dict[str, Outcome]
    bytes: int
    new_warehouse: str | None = None


def deliver(
    to: str,
    job: str,
    entries: list[tuple[Entry, str]],
    workers: int | None,
    progress: Callable[[int, int, str], None] | None = None,
) -> Try:
    """Ingests the (entry, path) pairs into one job, derived tables left out. Raises nothing."""
    outcomes: dict[str, Outcome] = {}
    here: list[tuple[Entry, str]] = []
    for entry, path in entries:
        if os.path.exists(path):
            here.append((entry, path))
        else:
            outcomes[entry.id] = Outcome(FAILED, "the file is gone, and was not delivered")
    if not here:
        return Try(outcomes, 0)
    if _is_local(to) and not os.path.isdir(to):
        # To make it would fill the disk below a mount that is not there, on a node of many.
        what = "no such folder: is its disk mounted? An upload makes no warehouse; mkdir -p does"
        failed = Outcome(AGAIN, f"{to}: {what}", refused=True)
        return Try(outcomes | dict.fromkeys((e.id for e, _ in here), failed), 0)
    try:
        report = ingest(to, [path for _, path in here], job=job, workers=workers,
                        progress=progress, derive_now=False)  # fmt: skip
    except (RankClash, UnusableInput) as e:
        if len(here) == 1:
            return Try(outcomes | {here[0][0].id: _of_error(*here[0], e)}, 0)
        # One of them stops all: each for itself, the larger of a rank first, as ingest has it.
        done, new = 0, None
        for pair in sorted(here, key=lambda pair: -pair[0].size_bytes):
            one = deliver(to, job, [pair], workers, progress)
            outcomes |= one.outcomes
            done += one.bytes
            new = new or one.new_warehouse
        return Try(outcomes, done, new)
    except WarehouseError as e:
        failed = Outcome(AGAIN, str(e), refused=_refuses(e))
    except UsageError as e:  # no package for such an address
        failed = Outcome(AGAIN, str(e), refused=True)
    except Exception as e:
        # A store's library may raise anything; the traces are as good as before.
        failed = Outcome(AGAIN, f"{type(e).__name__}: {e}")
    else:
        outcomes |= {e.id: _of_report(e, path, report) for e, path in here}
        return Try(outcomes, report.bytes, report.new_warehouse)
    return Try(outcomes | dict.fromkeys((e.id for e, _ in here), failed), 0)


def _is_local(to: str) -> bool:
    return "://" not in to


def _of_report(entry: Entry, path: str, report: IngestReport) -> Outcome:
    """What an ingest says of one entry, whose sources may be several (an archive's)."""
    within = (f"{path}!", path.rstrip("/") + "/")
    mine = [s for s in report.sources if s.name == path or s.name.startswith(within)]
    good = [s for s in mine if s.status in ("new", "already")]
    lost = sum(p.count for s in mine for p in s.problems if p.severity == "lost")
    lost += sum(
        p.count
        for place, p in report.problems
        if p.severity == "lost" and (place == path or place.startswith(within))
    )
    if good:
        status = "new" if any(s.status == "new" for s in good) else "already"
        ranks = tuple(sorted({r for s in good for r in s.ranks}))
        return Outcome(DELIVERED, status=status, lost=lost, ranks=ranks)
    error = next((s.error for s in mine if s.error is not None), None)
    if error is None:
        said = next((p.message for place, p in report.problems if place == path), "")
        error = UnusableInput(said or "nothing in it could be read", path=path)
    return _of_error(entry, path, error)


def _of_error(entry: Entry, path: str, error: RetimeError) -> Outcome:
    """What an error of one source means for another try."""
    if isinstance(error, RankClash):
        return Outcome(FAILED, str(error))
    try:
        changed = look(path) != (entry.size_bytes, entry.mtime_ns)
    except OSError:
        changed = False
    if changed or "changed while it was read" in str(error):
        return GROWING
    text = str(error)
    if "the process that read it ended early" in text:
        return Outcome(AGAIN, text, refused=True)  # for want of memory, mostly: not again at once
    # An error of the disk or file server may pass; that of rights does not.
    passing = "cannot be read: " in text and not any(os.strerror(n) in text for n in _REFUSED)
    return Outcome(AGAIN if passing else FAILED, text)


def _refuses(error: WarehouseError) -> bool:
    """Whether a warehouse that says this would say it again in a minute."""
    if isinstance(error, StoreRefused | StoreBusy):
        return isinstance(error, StoreRefused)
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in _REFUSED:
            return True
        cause = cause.__cause__
    return any(words in str(error) for words in _REFUSED_WORDS)
