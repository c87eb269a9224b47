"""A process moves into a namespace, and ends with the process that started it."""

from __future__ import annotations

import ctypes
import os
import signal

from . import names
from .errors import LabError

_CLONE_NEWNET = 0x40000000
_PR_SET_PDEATHSIG = 1


def namespace(name: str) -> None:
    """This process (of one thread) is in the namespace from here on."""
    with open(names.NETNS / name) as f:
        if ctypes.CDLL(None, use_errno=True).setns(f.fileno(), _CLONE_NEWNET):
            raise LabError(f"cannot enter {name}: {os.strerror(ctypes.get_errno())}")


def die_with_parent() -> None:
    """The kernel ends this process when its parent ends, even by kill -9."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def before_others(priority: int = 1) -> None:
    """This process runs before those of usual priority, where the kernel lets it.

    Ranks sleep most of the time: what they do must not wait behind whatever else the machine does.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(priority))
    except OSError:
        return
