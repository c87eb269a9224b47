"""Follow: traces sent as they become whole, until the process is told to end; for a sidecar."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import UnusableInput
from . import run
from .entry import Look, look
from .finding import Found, Quiet, files_below
from .report import UploadReport
from .spool import Spool

IDLE_S = 15.0
"""A file that nobody has written to for so long is taken for whole."""

EVERY_S = 2.0


def follow(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    wait_idle_s: float = IDLE_S,
    for_s: float = run.FOR_S,
    stop: threading.Event | None = None,
    every_s: float = EVERY_S,
    on_report: Callable[[UploadReport], None] | None = None,
    **options: Any,
) -> UploadReport:
    """Uploads what is in the paths as it becomes whole; once told to stop, all the rest.

    SIGTERM and SIGINT say stop, or `stop` does. What fails meanwhile is tried again when it is
    due, at the end for `for_s` seconds; the last upload does not wait for files to be idle: who
    wrote them is gone. `options` are those of `upload`; `on_report` is told of each upload. Gives
    what each file came to in the end. Raises UsageError before it begins.
    """
    given = [os.fspath(p) for p in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
    options["job"] = run.named_job(options.get("job"))
    seen, quiet = _Seen(), Quiet(wait_idle_s)
    reports: list[UploadReport] = []

    def send(paths: list[str], **more: Any) -> None:
        try:
            report = run.upload(paths, **options | more)
        except UnusableInput:
            return  # no trace yet
        if report.sent or report.notes:
            reports.append(report)
            if on_report is not None:
                on_report(report)

    with _told_to_stop(stop) as stopped:
        while not stopped.wait(every_s):
            if seen.anything_new(given, quiet):
                send(given, for_s=0.0, only=lambda f: quiet.is_quiet(f.path) and seen.is_new(f))
            if Spool(options.get("spool")).due():
                send([], for_s=0.0)
        send(given, for_s=for_s, only=seen.is_new)
        send([], for_s=for_s, retry=True)
    return _together(reports)


class _Seen:
    """What was sent, and how it looked then."""

    def __init__(self) -> None:
        self._files: dict[str, Look] = {}
        self._sent: dict[str, Look] = {}

    def anything_new(self, paths: list[str], quiet: Quiet) -> bool:
        """Whether a file has become still that was not seen so before."""
        new = False
        for path in files_below(paths):
            try:
                looks = look(path)
            except OSError:
                continue
            if looks.size_bytes and self._files.get(path) != looks and quiet.is_quiet(path):
                self._files[path] = looks
                new = True
        return new

    def is_new(self, found: Found) -> bool:
        """Whether it was not sent yet as it looks now; it is from now on."""
        new = self._sent.get(found.path) != found.look
        self._sent[found.path] = found.look
        return new


@contextmanager
def _told_to_stop(stop: threading.Event | None) -> Iterator[threading.Event]:
    told = stop or threading.Event()
    before: dict[int, Any] = {}
    if stop is None:
        for number in (signal.SIGTERM, signal.SIGINT):
            before[number] = signal.signal(number, lambda *_: told.set())
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _together(reports: list[UploadReport]) -> UploadReport:
    """The reports as one: what each file came to in the end."""
    whole = UploadReport(reports[-1].spool if reports else "")
    whole.sent = list({(s.id, s.job): s for r in reports for s in r.sent}.values())
    whole.finished = [f for r in reports for f in r.finished]
    whole.notes = list(dict.fromkeys(n for r in reports for n in r.notes))
    whole.lost = sum(r.lost for r in reports)
    whole.bytes = sum(r.bytes for r in reports)
    whole.seconds = sum(r.seconds for r in reports)
    whole.others = max((r.others for r in reports), default=0)
    return whole
