"""The sentences of verdicts: what a job says of itself, and text from traces made harmless."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from .. import doors, units
from ..names import apart
from ..screen import clean
from ..sentences import straggler_sentence
from .session import Said, plain

if TYPE_CHECKING:
    from ..doors import Job


LONGEST_NAME = 80
"""Characters of a name in a sentence."""


def step(facts: Mapping[str, Any]) -> str:
    """The length of a step and what it goes to, from `Job.show()`."""
    whole = "A step" if facts["scope"] == "step" else "A rank's trace"
    words = {
        "compute": "compute",
        "wait": "exposed wait",
        "transfer": "exposed transfer",
        "unsplit": "communication not split",
        "memcpy": "exposed copies",
        "idle": "idle",
    }
    total = facts["step_ns"]
    parts = [
        f"{words[g]} {units.percent(facts[f'{g}_ns'] / total)}" for g in words if facts[f"{g}_ns"]
    ]
    return f"{whole} takes {units.time(total)} (mean over ranks): {', '.join(parts)}."


def culprit(facts: Mapping[str, Any], suspects: pl.DataFrame | None) -> str:
    """`**Rank 1: late launches, 7.54 ms a step.** …`, with what its replay says."""
    found = facts["culprit"]
    if found is None:
        return f"No rank stands out. {plain(straggler_sentence(facts))}"
    rank, why = found["rank"], found["why"]
    cause = (why or {}).get("cause")
    if why is None or cause is None:
        return f"**The others wait for rank {rank}**, and nothing in the traces says why."
    cost, each = units.time(why["cause_ns"]), "step" if facts["scope"] == "step" else "trace"
    what = cause.replace("_", " ")
    head = f"**Rank {rank}: {what}, {cost} a {each}.** Rank {rank} {plain(why['words'])}."
    own = (
        None if suspects is None else suspects.filter(pl.col("rank") == rank).drop_nulls("gain_ms")
    )
    if own is None or not own.height:
        return head
    r = own.row(0, named=True)
    return (
        f"{head} Re-timed with this rank alone at the median, a step would end "
        f"{r['gain_ms']:.3g} ms earlier ({r['gain_low_ms']:.3g} to {r['gain_high_ms']:.3g})."
    )


def most(facts: Mapping[str, Any]) -> str:
    """The most that bandwidth could gain: all exposed communication that may be transfer."""
    moved = share(facts, "exposed_transfer")
    unsplit = share(facts, "exposed_comm_unsplit")
    total = facts["step_ns"]
    step = "step" if facts["scope"] == "step" else "trace"
    text = (
        f"Bandwidth could touch at most {units.percent(moved + unsplit)} of the {step} "
        f"({units.time((moved + unsplit) * total)}): its exposed "
    )
    if not unsplit:
        return text + "transfer."
    part = f"{units.time(unsplit * total)} of it" if moved else "it"
    return text + f"communication; nothing says how much of {part} is waiting."


def share(facts: Mapping[str, Any], name: str) -> float:
    """The share of a step, 0 to 1, that is of a class."""
    return sum(r["share"] for r in facts["classes"] if r["class"] == name)


def nothing(job: Job) -> Said:
    """The verdict on a job whose sources time nothing."""
    return verdict(
        ["**Nothing can be split: the job has no work with times.** It may hold topology, routing "
         "or a hang; `retime show` says what, and the README which files give times."],
        job, ["show {job}", "problems {job}"],
    )  # fmt: skip


def verdict(said: Sequence[str], job: Job | None, commands: Sequence[str]) -> Said:
    """The sentences, and the commands to go on with; `{job}` in these is the job's id.

    Policies that the catalogue does not hold are left out.
    """
    have = {p["name"] for p in doors.policies()}
    commands = [c for c in commands if set(re.findall(r"--policy ([\w-]+)", c)) <= have]
    where, id = "", ""
    if job is not None:
        id = shlex.quote(job.id)
        where = f" --warehouse {shlex.quote(job.warehouse.url)}"
    lines = [f"retime {c.replace('{job}', id)}{where if '{job}' in c else ''}" for c in commands]
    block = "\n".join(clean(line) for line in lines)
    return Said("\n\n".join([*filter(None, said), "What next:", f"```sh\n{block}\n```"]))


def place(path: str) -> str:
    """A path or an address as Markdown's code, whole."""
    text = clean(path).replace("`", "'")
    return f"`{text}`"


def code(text: object) -> str:
    """A name as Markdown's code, its middle left out where it is long."""
    return codes([text])[0]


def codes(texts: Sequence[object]) -> list[str]:
    """Names as Markdown's code; long ones that differ do so still."""
    shown = apart([clean(str(text)).replace("`", "'") for text in texts], LONGEST_NAME)
    return [f"`{text}`" for text in shown]
