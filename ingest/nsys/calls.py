"""NCCL calls of a process: groups of them, and which calls each communication kernel carries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from .. import classify
from ..kineto.launches import enclosing
from ..kineto.rawbatch import NULL
from .callranges import ALWAYS, GROUP_END, GROUP_START, OPS, Block, CallRanges
from .commkernels import CommKernels

P2P = ("send", "recv")


class Call(NamedTuple):
    """One call that moves data, and what its payload says; None where it does not."""

    op: str
    start_ns: int
    row: int
    comm: int | None = None
    bytes: int | None = None
    root: int | None = None
    peer: int | None = None
    seq: int | None = None
    dtype: str | None = None


def seq_of(operation: int | None, number: int | None) -> int | None:
    """What is the same on all ranks: the operation's id (its low 63 bits), else its number."""
    if operation is not None:
        return operation & ((1 << 63) - 1)
    return number if number is not None and number >= 0 else None


def call_at(calls: CallRanges, i: int, op: str) -> Call:
    """The i-th range as a call."""
    kind = calls.dtype[i]
    said = {c: values[i] for c, values in calls.said.items()}
    size = said["bytes"]
    if size is None and said["count"] is not None and kind is not None:
        size = said["count"] * kind.itemsize
    if size is not None and not 0 <= size < 1 << 62:
        size = None
    return Call(
        op, int(calls.start[i]), int(calls.row[i]), said["comm"], size, said["root"], said["peer"],
        seq_of(said["operation"], said["seq"]), kind.name if kind else None,
    )  # fmt: skip


class Operation(NamedTuple):
    """An operation on the device as NCCL's own trace tells it."""

    start_ns: int
    end_ns: int
    call: Call


class Carried(NamedTuple):
    """What a kernel carries: calls, or none where only its name says something."""

    calls: tuple[Call, ...]
    grouped: bool
    n_in_group: int
    """calls of its group, where they could not be told apart"""


def by_block(
    kernels: CommKernels, blocks: Iterable[Block]
) -> Iterator[tuple[np.ndarray, list[Carried]]]:
    """The kernels that were launched beside each block of their process's calls, as places in
    order, and what each of them carries. Those without a launch are in the first."""
    order = np.argsort(kernels.launch_ns, kind="stable")
    launched, done = kernels.launch_ns[order], 0
    for block in blocks:
        last = block.until_ns == ALWAYS
        until = len(order) if last else int(np.searchsorted(launched, block.until_ns))
        its, done = np.sort(order[done:until]), until
        yield its, carried(kernels.at(its), block.calls)


def carried(kernels: CommKernels, calls: CallRanges) -> list[Carried]:
    """For each kernel the calls it carries, of a block of its process's calls.

    A kernel is launched within its call, or at the end of the group that holds its calls. Of a
    group with several kernels, sends and receives belong to the kernel of that name; others are
    told apart by their order where there is a kernel for each.
    """
    ops = [OPS.get(name or "") for name in calls.name]
    group = _groups(calls)
    at = enclosing(calls.start, calls.end + 1, calls.thread, kernels.launch_ns, kernels.thread)
    at[kernels.launch_ns == NULL] = -1
    out = [Carried((), False, 0)] * len(kernels.name)
    of_group: dict[int, list[int]] = {}
    for k, a in enumerate(at.tolist()):
        if a < 0:
            continue
        op = ops[a]
        if op is not None and group[a] < 0:
            out[k] = Carried((call_at(calls, a, op),), False, 1)
        elif group[a] >= 0:
            of_group.setdefault(int(group[a]), []).append(k)
    members: dict[int, list[int]] = {}
    for a, g in enumerate(group.tolist()):
        if g in of_group and ops[a] is not None:
            members.setdefault(g, []).append(a)
    for g, ks in of_group.items():
        found = [call_at(calls, a, ops[a] or "") for a in members.get(g, [])]
        for k, its in zip(ks, _shared_out(found, [kernels.name[k] for k in ks]), strict=True):
            out[k] = its
    return out


def _shared_out(calls: list[Call], kernels: list[str]) -> list[Carried]:
    """The calls of one group, dealt to its kernels in order of launch."""
    p2p = tuple(c for c in calls if c.op in P2P)
    rest = [c for c in calls if c.op not in P2P]
    exchange = []
    for name in kernels:
        said = classify.comm_kernel(name)
        exchange.append(said is not None and said.op in ("send_recv", *P2P))
    if not rest:
        exchange = [True] * len(kernels)
    others = [k for k, e in enumerate(exchange) if not e]
    out = [Carried((), True, len(calls))] * len(kernels)
    first = [k for k, e in enumerate(exchange) if e]
    if p2p and len(first) == 1:
        out[first[0]] = Carried(p2p, True, len(p2p))
    elif p2p and first:
        comms = list(dict.fromkeys(c.comm for c in p2p))
        if len(comms) == len(first):
            for k, comm in zip(first, comms, strict=True):
                its = tuple(c for c in p2p if c.comm == comm)
                out[k] = Carried(its, True, len(its))
    if rest and len(others) == 1:
        out[others[0]] = Carried(tuple(rest), True, len(rest))
    elif rest and len(others) == len(rest):
        for k, call in zip(others, rest, strict=True):
            out[k] = Carried((call,), True, 1)
    return out


def _groups(calls: CallRanges) -> np.ndarray:
    """A number for the calls of each outermost group, ends included; -1 outside of groups.

    A group whose start was not captured holds only its end.
    """
    thread, start = calls.thread, calls.start
    out = np.full(len(start), -1, np.int64)
    n = 0
    for t in np.unique(thread):
        line = np.flatnonzero(thread == t)
        line = line[np.argsort(start[line], kind="stable")]
        depth, inside = 0, []
        for a in line.tolist():
            name = calls.name[a]
            if name == GROUP_START:
                depth += 1
                if depth == 1:
                    inside = []
            elif name == GROUP_END:
                depth -= 1
                if depth <= 0:
                    out[[*inside, a]] = n
                    n, depth, inside = n + 1, 0, []
            elif depth > 0:
                inside.append(a)
    return out
