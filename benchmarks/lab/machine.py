"""Whether this machine can hold a lab now: root, tools, kernel, and room on its cores."""

from __future__ import annotations

import os
import shutil
import time

from . import names
from .commands import run
from .errors import LabError

BUSY_LOAD_A_CORE = 0.5
"""Load average a core from which a machine is too busy to measure on."""
LATE_SLEEP_NS = 1_000_000
"""A sleep of 1 ms may wake up so much later, in the 90th of 100; more says that cores are taken."""


def tools() -> None:
    """Raises LabError for what is missing: root, `ip`, `tc`."""
    if os.geteuid() != 0:
        raise LabError("the lab makes network namespaces, which needs root: run it with sudo")
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            raise LabError(f"`{tool}` is not installed: apt-get install iproute2 brings it")


def kernel() -> None:
    """Makes and removes a namespace with a shaped veth pair; raises LabError for what fails."""
    name = f"{names.PREFIX}-{names.run_id()}-probe"
    steps = (
        ("network namespaces", "a kernel with CONFIG_NET_NS, and /run/netns mountable",
         ("ip", "netns", "add", name)),
        ("veth pairs", "modprobe veth",
         ("ip", "-n", name, "link", "add", "name", "left", "type", "veth", "peer", "name",
          "right")),
        ("bridges", "modprobe bridge",
         ("ip", "-n", name, "link", "add", "name", "both", "type", "bridge")),
        ("token buckets (tbf)", "modprobe sch_tbf",
         ("tc", "-n", name, "qdisc", "add", "dev", "left", "root", "tbf", "rate", "10mbit", "burst",
          "5k", "limit", "50k")),
    )  # fmt: skip
    try:
        for what, mend, words in steps:
            try:
                run(*words)
            except LabError as e:
                raise LabError(f"this kernel makes no {what} ({e}); what helps: {mend}") from e
    finally:
        if name in names.present():
            run("ip", "netns", "del", name)


def quiet(patient: bool = False) -> list[str]:
    """Sentences on how busy the cores are; none where there is room. Raises unless `patient`."""
    cores = os.cpu_count() or 1
    load = os.getloadavg()[0]
    said = []
    if load > BUSY_LOAD_A_CORE * cores:
        said.append(f"the load average is {load:.2f} on {cores} cores")
    late = sorted(_late_ns() for _ in range(100))[90]
    if late > LATE_SLEEP_NS:
        said.append(f"a sleep of 1 ms woke up {late / 1e6:.1f} ms late")
    if said and not patient:
        raise LabError(
            f"the machine is too busy to measure on ({'; '.join(said)}): wait until others are "
            "done, or say --busy to measure all the same"
        )
    return said


def _late_ns() -> int:
    start = time.perf_counter_ns()
    time.sleep(0.001)
    return time.perf_counter_ns() - start - 1_000_000


def leftovers() -> None:
    """Raises LabError where namespaces of a crashed run, or of one still going, are there."""
    dead, alive = names.by_owner()
    if dead:
        raise LabError(
            f"{len(dead)} namespaces of a crashed run are left ({dead[0]}, ...): "
            "python -m benchmarks.lab clean removes them"
        )
    if alive:
        pid = names.owner(alive[0])
        raise LabError(
            f"another run of the lab is measuring (process {pid}): wait for it, or end it; two at "
            "once disturb each other"
        )
