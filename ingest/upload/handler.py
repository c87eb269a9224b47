"""A handler for torch.profiler: each trace into the spool, and on to the warehouse by a sender."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import msgspec

from . import job_names, log, sender
from .entry import FAILED, WAITING, WRITING, Entry, check_address, here, look
from .spool import Spool, SpoolFull

MOST_FILES = 64
"""Traces that wait in the spool at most; further ones are not taken until some are delivered."""

GRACE_S = 5.0
FOR_S = 600.0


def trace_handler(
    to: str | None = None,
    job: str | None = None,
    *,
    folder: str | os.PathLike[str] | None = None,
    spool: str | os.PathLike[str] | None = None,
    most_files: int = MOST_FILES,
    most_bytes: int | None = None,
    for_s: float = FOR_S,
    grace_s: float = GRACE_S,
) -> TraceHandler:
    """For `torch.profiler.profile(on_trace_ready=...)`: traces go to a job while training goes on.

    `to` is the warehouse's address (default $RETIME_WAREHOUSE), `job` its job (default: of the
    environment, see `job_names`). The trace is written to the spool as the profiler writes it, or
    to `folder`, where it stays; a process of its own, of the lowest priority, one for a node,
    delivers it and tries for `for_s` seconds. The spool takes `most_files` and `most_bytes` at
    most. A rank's second trace goes to the job `<job>.window-2`, and so on. When the process ends
    it waits `grace_s` seconds at most for what is not delivered; that stays in the spool for
    `retime upload`. Whatever goes wrong is logged (`retime.upload`, and `upload.log` in the spool)
    and nothing is raised.
    """
    return TraceHandler(to, job, folder, spool, most_files, most_bytes, for_s, grace_s)


class TraceHandler:
    """One process's traces on their way: called with the profiler when a trace is ready."""

    def __init__(self, to, job, folder, spool, most_files, most_bytes, for_s, grace_s):
        self.windows = 0
        """Traces so far."""
        self.ids: list[str] = []
        """Entries that this process wrote."""
        self.spool: Spool | None = None
        self._folder = None if folder is None else os.path.abspath(folder)
        self._most_files, self._for_s, self._grace_s = most_files, for_s, grace_s
        self._child: subprocess.Popen[bytes] | None = None
        self._told: set[str] = set()
        self._process = os.getpid()
        self.to = self.job = ""
        try:
            self.job = job_names.of_process(job) or ""
            if not self.job:
                self.job = "unnamed"
                self._say("no job is named (job=, or RETIME_JOB): traces go to the job 'unnamed'")
            kept = Spool(spool, most_bytes=most_bytes)
            kept.make()
            self.spool = kept
            self.to = check_address(to or os.environ.get("RETIME_WAREHOUSE") or "")
            atexit.register(self.close)
        except Exception as e:
            self._say(f"{e}; traces are {'kept' if self.spool else 'not taken'}")

    def __call__(self, profiler: Any) -> None:
        """Takes the profiler's trace. Raises nothing."""
        self.windows += 1
        try:
            if self._take(profiler):
                self._send()
        except Exception as e:
            what = f"{e.strerror}" if isinstance(e, OSError) and e.strerror else str(e)
            self._say(f"a trace was not taken: {type(e).__name__}: {what}")

    def _take(self, profiler: Any) -> bool:
        rank = rank_of_process()
        job = job_names.of_window(self.job, self.windows)
        name = f"rank{rank}.json"
        if self.spool is None:
            if self._folder is not None:
                self._export(profiler, os.path.join(self._folder, job, name))
            return False
        try:
            waiting = len(self.spool.ids())
            if waiting >= self._most_files:
                raise SpoolFull(f"{waiting} traces wait there already")
            self.spool.check_room()
        except SpoolFull as e:
            if self._folder is None:
                self._say(
                    f"spool {self.spool.folder} is full, a trace was not taken: {e}", once="full"
                )
                return False
        id = uuid.uuid4().hex[:16]
        stored = self._folder is None
        path = (
            str(self.spool.room(id) / name)
            if stored
            else os.path.join(self._folder or "", job, name)
        )
        entry = Entry(
            id, name if stored else path, stored, 0, 0, job=job, to=self.to, host=here(),
            since_s=time.time(), state=WRITING,
        )  # fmt: skip
        claim = self.spool.claim(id)
        try:
            # Should the machine die now there is no trace either: no wait for the disk.
            self.spool.put(entry, new=True, durable=False)
            try:
                self._export(profiler, path)
                seen = look(path)
            except BaseException:
                self.spool.remove(entry)
                raise
            self.spool.put(
                msgspec.structs.replace(
                    entry, state=WAITING, size_bytes=seen.size_bytes, mtime_ns=seen.mtime_ns
                )
            )
        finally:
            if claim is not None:
                claim.release(id not in self.spool.ids())
        self.ids.append(id)
        self._told.discard("full")
        return True

    def _export(self, profiler: Any, path: str) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Plain: compression is the profiler's own, in this process, and takes longer than the rest.
        profiler.export_chrome_trace(path)

    def _send(self) -> None:
        """Starts a sender, unless this process's last one is still there."""
        if self.spool is None or not self.to:
            return
        if self._child is None or self._child.poll() is not None:
            self._child = sender.start(self.spool.folder, self._for_s)

    def close(self) -> None:
        """Waits for what is not delivered, `grace_s` seconds at most. Raises nothing."""
        if os.getpid() != self._process:
            return  # a fork of it has nothing to wait for
        try:
            self._wait()
        except Exception as e:
            self._say(f"at the end: {type(e).__name__}: {e}")

    def _wait(self) -> None:
        until, last_start = time.monotonic() + self._grace_s, True
        while any(e.next_try_s <= time.time() for e in self._left()):
            ended = self._child is None or self._child.poll() is not None
            if time.monotonic() >= until or (ended and not last_start):
                break
            if ended:  # it may have ended just before the last trace came
                last_start = False
                self._send()
            time.sleep(0.05)
        # Also what a sender has put off in the meantime.
        if self.spool is not None and (left := self._left()):
            text = f"left in the spool: {len(left)} of this process's traces"
            again = f"`retime upload --retry --spool {self.spool.folder}` delivers what is left"
            self._say(f"{text}; {again}", logging.INFO)

    def _left(self) -> list[Entry]:
        """Of this process's traces those not delivered, without those that failed for good."""
        spool, left = self.spool, []
        if spool is None:
            return []
        for id in self.ids:
            with contextlib.suppress(ValueError):  # an entry that cannot be read
                entry = spool.get(id)
                if entry is not None and entry.state != FAILED:
                    left.append(entry)
        return left

    def _say(self, text: str, level: int = logging.ERROR, once: str = "") -> None:
        if once in self._told:
            return
        if once:
            self._told.add(once)
        log.say(None if self.spool is None else self.spool.folder, level, text)


def rank_of_process() -> int:
    """This process's rank: torch.distributed's where it is up, else RANK, SLURM_PROCID, or 0."""
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    for variable in ("RANK", "SLURM_PROCID"):
        text = os.environ.get(variable, "")
        if text.isascii() and text.isdecimal() and len(text) < 10:
            return int(text)
    return 0
