"""One call's sending: entries claimed, tried until they are in or time is over, and kept."""

from __future__ import annotations

import contextlib
import logging
import os
import time
import uuid
from collections.abc import Callable

import msgspec

from . import backoff, delivery, log
from .entry import FAILED, WAITING, Entry, check_address, entry_id, here, look, sha256_of
from .finding import Found
from .report import Sent, UploadReport, listed
from .spool import Claim, Spool, SpoolFull

MOST_CLAIMS = 256
"""Entries that one call holds at a time: each is an open file."""

MOST_AT_ONCE = 64
"""Files of one job that one ingest takes: what is behind them is not held up by one bad one."""

Progress = Callable[[int, int, str], None]


class Sending:
    """One call's work: it knows the spool, what it has claimed, and what it says of each file."""

    def __init__(
        self,
        spool: Spool | None,
        report: UploadReport,
        keep: bool,
        workers: int | None,
        progress: Progress | None,
    ):
        self.spool, self.report, self.keep = spool, report, keep
        self.workers, self.progress = workers, progress
        self.jobs: set[tuple[str, str]] = set()
        """Those into which something was delivered."""
        self.written: set[str] = set()
        """Ids that the spool holds."""
        self._claims: list[Claim] = []

    def close(self) -> None:
        """Gives back what is still claimed, as after an error."""
        for claim in self._claims:
            claim.release(False)

    def send(self, found: list[Found], to: str, job: str, busy: set[str], until: float) -> None:
        """Writes these down and delivers them; those still written to are left for later."""
        entries = [
            self._write_down(
                Entry(entry_id(one.path, job, to, here()), one.path, False, *one.look, job=job,
                      to=to, host=here(), since_s=time.time())
            )
            for one in found
        ]  # fmt: skip
        for at in range(0, len(entries), MOST_CLAIMS):
            todo: list[tuple[Entry, Claim | None]] = []
            for entry in entries[at : at + MOST_CLAIMS]:
                taken = self._take(entry.id) if entry.id in self.written else (entry, None)
                if taken is None:
                    self._is_anothers(entry)
                elif any(f == entry.path or f.startswith(entry.path + os.sep) for f in busy):
                    self._settle(*taken, delivery.GROWING, last=True)
                else:
                    todo.append(taken)
            self._until_done(todo, until)

    def _is_anothers(self, entry: Entry) -> None:
        """Says of a file that another upload of the same spool came first."""
        stands = self.spool is not None and entry.id in self.spool.ids()
        said = Sent(entry.path, entry.job, entry.to, "waiting" if stands else "already", entry.id,
                    size_bytes=entry.size_bytes)  # fmt: skip
        said.error = "another upload is at it" if stands else ""
        self.report.sent.append(said)

    def send_left(self, retry: bool, to: str | None, until: float) -> None:
        """Delivers what the spool holds and is due, or everything; entries that came in, too."""
        assert self.spool is not None
        tried: set[str] = set()
        while True:
            todo: list[tuple[Entry, Claim | None]] = []
            for entry in self.spool.due(all=retry):
                if entry.id in tried or entry.id in self.written or len(todo) >= MOST_CLAIMS:
                    continue
                tried.add(entry.id)
                taken = self._take(entry.id)
                if taken is None:
                    continue
                entry, claim = taken
                if not entry.to:  # whoever wrote it was not told where to
                    address = to or os.environ.get("RETIME_WAREHOUSE") or ""
                    if not address:
                        claim.release(False)
                        said = listed(entry, self.spool.path_of(entry))
                        said.error = "where to? --to URL, or RETIME_WAREHOUSE in the environment"
                        self.report.sent.append(said)
                        continue
                    entry = msgspec.structs.replace(entry, to=check_address(address))
                self.written.add(entry.id)
                todo.append((entry, claim))
            if not todo:
                break
            self._until_done(todo, until)
        entries, bad = self.spool.entries()
        self.report.notes += bad
        if away := [e for e in entries if self.spool.is_elsewhere(e)]:
            hosts = ", ".join(sorted({e.host for e in away})[:5])
            self.report.notes.append(
                f"{len(away)} entries are of files on other machines ({hosts}), for those to "
                "deliver; --list names them, --forget gives them up"
            )

    def _take(self, id: str) -> tuple[Entry, Claim] | None:
        assert self.spool is not None
        try:
            taken = self.spool.take(id)
        except OSError as e:
            self._note(e, "what waits there stays")
            return None
        if taken is not None:
            self._claims = [c for c in self._claims if c.fd >= 0] + [taken[1]]
        return taken

    def _write_down(self, entry: Entry) -> Entry:
        """The entry, in the spool by now where it is one of `written`."""
        if self.spool is None:
            return entry
        try:
            claim = self.spool.claim(entry.id)
            if claim is None:
                self.written.add(entry.id)  # by the upload that is at it
                return entry
            try:
                before = self.spool.get(entry.id)
                if before is not None and before.stored:
                    # What the spool keeps of that path may be all that is left of it.
                    return self._write_down(
                        msgspec.structs.replace(entry, id=uuid.uuid4().hex[:16])
                    )
                self.spool.put(entry, new=True)
                self.written.add(entry.id)
            finally:
                claim.release(entry.id not in self.written)
        except (OSError, ValueError, SpoolFull) as e:
            self._note(e, "not all is written down")
        return entry

    def _note(self, error: Exception, what_follows: str) -> None:
        assert self.spool is not None
        what = (error.strerror or error) if isinstance(error, OSError) else error
        note = f"spool {self.spool.folder}: {what}; {what_follows}"
        if note not in self.report.notes:
            self.report.notes.append(note)

    def _until_done(self, todo: list[tuple[Entry, Claim | None]], until: float) -> None:
        """Tries what is to do again and again, until it is in, failed, or time is over."""
        attempt = 0
        while todo:
            again: list[tuple[Entry, Claim | None]] = []
            stuck: set[tuple[str, str]] = set()
            for group in _groups(todo):
                to, job = group[0][0].to, group[0][0].job
                if (to, job) in stuck:  # what the first of it ran into, the rest would
                    again += group
                    continue
                outcomes = self._deliver(to, job, group)
                for entry, claim in group:
                    outcome = outcomes[entry.id]
                    last = outcome.refused or time.monotonic() >= until
                    tried = self._settle(entry, claim, outcome, last)
                    if tried is not None:
                        again.append((tried, claim))
                if all(o.kind == delivery.AGAIN for o in outcomes.values()):
                    stuck.add((to, job))
            todo = again
            if todo:
                pause = min(backoff.pause_s(attempt), max(0.0, until - time.monotonic()))
                log.say(self.spool and self.spool.folder, logging.INFO,
                        f"{len(todo)} files not delivered yet; again in {pause:.1f} s")  # fmt: skip
                time.sleep(pause)
                attempt += 1

    def _deliver(
        self, to: str, job: str, group: list[tuple[Entry, Claim | None]]
    ) -> dict[str, delivery.Outcome]:
        outcomes: dict[str, delivery.Outcome] = {}
        pairs: list[tuple[Entry, str]] = []
        for entry, _ in group:
            path = self.spool.path_of(entry) if self.spool else entry.path
            if (other := _became_another(entry, path)) is not None:
                outcomes[entry.id] = other
            else:
                pairs.append((entry, path))
        done = delivery.deliver(to, job, pairs, self.workers, self.progress)
        self.report.bytes += done.bytes
        if done.new_warehouse is not None and done.new_warehouse not in self.report.new_warehouses:
            self.report.new_warehouses.append(done.new_warehouse)
            log.say(self.spool and self.spool.folder, logging.WARNING,
                    f"new warehouse at {done.new_warehouse} (no job was there before)")  # fmt: skip
        return outcomes | done.outcomes

    def _settle(
        self, entry: Entry, claim: Claim | None, outcome: delivery.Outcome, last: bool
    ) -> Entry | None:
        """Keeps what came of an entry; gives it where it is to be tried again in this call."""
        path = self.spool.path_of(entry) if self.spool else entry.path
        folder = self.spool and self.spool.folder
        place = f"{path} for job {entry.job} in {entry.to}"
        if outcome.kind == delivery.DELIVERED:
            if self.spool is not None:
                self.spool.remove(entry)
            if claim is not None:
                claim.release(True)
            self.jobs.add((entry.to, entry.job))
            self.report.lost += outcome.lost
            log.say(folder, logging.INFO, f"delivered ({outcome.status}): {place}")
            self.report.sent.append(
                Sent(path, entry.job, entry.to, outcome.status, entry.id, outcome.ranks,
                     entry.size_bytes, attempts=entry.attempts + 1)
            )  # fmt: skip
            return None
        attempts = entry.attempts + 1
        failed = outcome.kind == delivery.FAILED
        entry = msgspec.structs.replace(
            entry, attempts=attempts, error=outcome.error[:2000],
            state=FAILED if failed else WAITING,
            next_try_s=time.time() + backoff.later_s(attempts),
        )  # fmt: skip
        entry = self._keep(entry, path, outcome.growing)
        if not failed and not last:
            return entry
        if claim is not None:
            claim.release(False)
        said = "cannot be delivered" if failed else "left for later"
        log.say(folder, logging.ERROR if failed else logging.WARNING,
                f"{said}: {place}: {outcome.error}")  # fmt: skip
        path = self.spool.path_of(entry) if self.spool else entry.path
        self.report.sent.append(listed(entry, path))
        if entry.id not in self.written:
            self.report.sent[-1].next_try_s = None  # nobody will
        return None

    def _keep(self, entry: Entry, path: str, growing: bool) -> Entry:
        """Writes down what came of an entry, with its digest; its file, too, where asked for."""
        if self.spool is None or entry.id not in self.written:
            return entry
        with contextlib.suppress(OSError):  # gone, or not to be read: its error says so
            seen = look(path)
            if growing or entry.sha256 is None or seen != (entry.size_bytes, entry.mtime_ns):
                entry = msgspec.structs.replace(
                    entry, sha256=None if growing else sha256_of(path),
                    size_bytes=seen.size_bytes, mtime_ns=seen.mtime_ns,
                )  # fmt: skip
        try:
            if self.keep and not entry.stored and not growing and os.path.exists(path):
                return self.spool.keep(entry)
            self.spool.put(entry)
        except SpoolFull as e:
            self._note(e, "files stay where they are")
            with contextlib.suppress(OSError):
                self.spool.put(entry)
        except OSError as e:
            self._note(e, "files stay where they are")
        return entry


def _became_another(entry: Entry, path: str) -> delivery.Outcome | None:
    """Failed, for a file that was written down once and holds something else by now."""
    if not entry.attempts or entry.sha256 is None:
        return None
    try:
        seen = look(path)
        if seen == (entry.size_bytes, entry.mtime_ns):
            return None
        # One that has only grown is the same file, whose writer was not done.
        if sha256_of(path, entry.size_bytes) == entry.sha256 and seen[0] >= entry.size_bytes:
            return None
    except OSError:
        return None  # delivery says it
    return delivery.Outcome(
        delivery.FAILED,
        f"{path}: not the file any more that was to be delivered, which is gone; upload what is "
        "there now under its own job",
    )


def _groups(todo: list[tuple[Entry, Claim | None]]) -> list[list[tuple[Entry, Claim | None]]]:
    """Those of one job of one warehouse together, so many at once."""
    by: dict[tuple[str, str], list[tuple[Entry, Claim | None]]] = {}
    for pair in todo:
        by.setdefault((pair[0].to, pair[0].job), []).append(pair)
    return [g[i : i + MOST_AT_ONCE] for g in by.values() for i in range(0, len(g), MOST_AT_ONCE)]
