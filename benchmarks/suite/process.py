"""One run of a command: a process of its own on some cores, waited for by its number."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.scale.measured import Running

from . import memory_at_hand
from .case import OUT, Way


class Failed(RuntimeError):
    """A command that ended badly; its words are the end of what it said."""


def run(way: Way, scratch: Path, by_cpu: bool = False) -> dict[str, Any]:
    """Wall and CPU seconds, peak bytes of its largest process, and what it told of itself.

    `by_cpu` puts CPU seconds, of all cores together, in the place of wall time.
    This process has to stay small: a child begins with its parent's peak memory. Raises Failed.
    """
    out = Path(tempfile.mkdtemp(dir=scratch, prefix="out-"))
    # A file that stands is opened, not made anew, by some: only the folder is there.
    command = [word.replace(OUT, str(out)) for word in way.command]
    whole = os.sched_getaffinity(0)
    os.sync()  # or what others wrote goes to disk while this is measured
    memory_at_hand.at_hand()
    try:
        os.sched_setaffinity(0, set(sorted(whole)[: way.cores]))
        try:
            running = Running(command)
        finally:
            os.sched_setaffinity(0, whole)
        try:
            took = running.done()
        except BaseException as e:
            if isinstance(e, RuntimeError):
                raise Failed(_end(str(e))) from e
            running.process.send_signal(signal.SIGTERM)
            raise
        told = _told(took.printed)
        whole_cpu_s = took.cpu_s - told.pop("before_cpu_s", 0.0)
        found = {
            "wall_s": took.seconds - told.pop("before_s", 0.0),
            "cpu_s": told.pop("cpu_s", whole_cpu_s),
            "peak_bytes": took.peak_bytes,
            "inside_s": told.pop("seconds", None),
            **told,
        }
        return _by_cpu(found, whole_cpu_s) if by_cpu else found
    finally:
        shutil.rmtree(out, ignore_errors=True)


def _by_cpu(found: dict[str, Any], whole_cpu_s: float) -> dict[str, Any]:
    inside = None if found["inside_s"] is None else found["cpu_s"]
    out = {**found, "wall_s": whole_cpu_s, "inside_s": inside}
    if "cpu_parts" in found:
        out["parts"] = out.pop("cpu_parts")
    return out


def _told(printed: str) -> dict[str, Any]:
    """The JSON object of the last line, if there is one."""
    lines = printed.strip().splitlines()
    if not lines or not lines[-1].startswith("{"):
        return {}
    try:
        told = json.loads(lines[-1])
    except ValueError:
        return {}
    return told if isinstance(told, dict) and told.keys() & {"seconds", "profile"} else {}


def _end(words: str) -> str:
    """The last line that says something."""
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it said nothing"
