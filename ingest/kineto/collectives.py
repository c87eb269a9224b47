"""Participations of a rank: communication kernels joined to the calls that say what they carry."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from .. import classify
from ..schema import TABLES
from .args import elements, input_elements
from .comms import Comm, Comms
from .header import as_int, parse_rank_list
from .launches import Launches, enclosing, launch_of
from .problems import Tally
from .rawbatch import NULL, Symbols

ARGS = (
    "coll_name", "dtype", "in_nelems", "out_nelems", "in_split", "out_split", "group_size",
    "pg_name", "pg_desc", "pg_ranks", "pg_id", "src_rank", "dst_rank", "seq", "rank_start",
    "rank_stride", "rank_arg",
)  # fmt: skip
"""Columns of a raw batch that describe a collective, on a kernel or on a call."""

KERNEL_COLUMNS = (
    "event_id", "name", "start_ns", "end_ns", "stream", "correlation", "external_id", "grid", *ARGS,
)  # fmt: skip
CALL_COLUMNS = (
    "event_id", "name", "start_ns", "end_ns", "thread", "external_id", *ARGS, "record_function_id",
)  # fmt: skip

COLLECTIVES = TABLES["collectives"].schema

MOST_ROWS = 1 << 62
"""A split of more rows is none."""

ROOTED = frozenset({"broadcast", "reduce", "gather", "scatter"})
P2P = frozenset({"send", "recv", "send_recv"})

Rows = dict[str, np.ndarray]


@dataclass
class Part:
    """One row of `collectives` while it is being made."""

    event_id: int
    start_ns: int
    end_ns: int
    op: str = "unknown"
    stream: int | None = None
    step: int | None = None
    comm: Comm | None = None
    seq: int | None = None
    dtype: str | None = None
    in_bytes: int | None = None
    out_bytes: int | None = None
    group_size: int | None = None
    root: int | None = None
    peer: int | None = None
    in_splits: list[int] | None = None
    out_splits: list[int] | None = None
    algo: str | None = None
    proto: str | None = None
    channels: int | None = None
    coalesced: int | None = None
    record_function: int | None = None
    enqueued_ns: int | None = None


class Said(NamedTuple):
    """What the arguments of one kernel or call say of a collective."""

    op: str | None
    dtype: classify.Dtype | None
    comm: Comm | None
    group_size: int | None
    in_nelems: int | None
    out_nelems: int | None
    in_splits: list[int] | None
    out_splits: list[int] | None
    seq: int | None
    root: int | None
    peer: int | None

    @property
    def in_bytes(self) -> int | None:
        """Input in bytes; None where elements or their type are not known."""
        return _bytes(self.in_nelems, self.dtype)

    @property
    def out_bytes(self) -> int | None:
        """Output in bytes; None where elements or their type are not known."""
        return _bytes(self.out_nelems, self.dtype)


def _bytes(nelems: int | None, dtype: classify.Dtype | None) -> int | None:
    return nelems * dtype.itemsize if nelems is not None and dtype is not None else None


class Reader:
    """Reads what arguments say, each distinct combination of names once."""

    def __init__(self, symbols: Symbols, comms: Comms, tally: Tally):
        self._symbols = symbols
        self._comms = comms
        self._tally = tally
        self._named: dict[tuple, tuple] = {}
        self._splits: dict[int, list[int] | None] = {}

    def rows(self, rows: Rows) -> list[Said | None]:
        """What each row says; None for rows without a collective's name."""
        columns = [rows[c].tolist() for c in ARGS]
        return [self._said(values) for values in zip(*columns, strict=True)]

    def _text(self, code: int) -> str | None:
        return self._symbols.text(code) if code >= 0 else None

    def _said(self, values: tuple[int, ...]) -> Said | None:
        (coll, dtype, n_in, n_out, split_in, split_out, size, pg_name, pg_desc, pg_ranks, pg_id,
         src, dst, seq, start, stride, rank_arg) = values  # fmt: skip
        if coll < 0:
            return None
        key = (coll, dtype, size, pg_name, pg_desc, pg_ranks, pg_id, start, stride)
        if key not in self._named:
            name = self._text(pg_name) or (str(pg_id) if pg_id != NULL else None)
            op = classify.op_of_collective_name(self._symbols.text(coll))
            comm = None
            if op is not None:  # calls that transfer nothing name no group, or an empty one
                comm = self._comms.of(
                    name,
                    self._text(pg_desc),
                    self._text(pg_ranks),
                    _none(size),
                    _none(start),
                    _none(stride),
                )
            self._named[key] = (op, classify.dtype_of(self._text(dtype)), comm)
        op, kind, comm = self._named[key]
        if dtype >= 0 and kind is None and n_in not in (NULL, 0):
            self._tally.add("unknown_dtype")
        members = comm.ranks if comm is not None else None
        root = peer = None
        if op in ROOTED:
            root = _member(members, _none(rank_arg))
        elif op in P2P:
            peer = _none(dst) if op == "send" else _none(src) if op == "recv" else None
            if peer is None:
                peer = _member(members, _none(rank_arg))
        group_size = _none(size)
        if group_size is None and comm is not None:
            group_size = comm.size
        return Said(
            op, kind, comm, group_size, _none(n_in), _none(n_out),
            self._split(split_in), self._split(split_out), _none(seq), root, peer,
        )  # fmt: skip

    def _split(self, code: int) -> list[int] | None:
        if code < 0:
            return None
        if code not in self._splits:
            numbers, whole = parse_rank_list(self._symbols.text(code), MOST_ROWS)
            self._splits[code] = list(numbers) if whole and numbers else None
            if not whole:
                self._tally.add("splits_truncated")
        return self._splits[code]


def _none(value: int) -> int | None:
    return None if value == NULL else value


def _member(members: tuple[int, ...] | None, group_rank: int | None) -> int | None:
    """Global rank of a group's member; None where either is unknown."""
    if members is None or group_rank is None or not 0 <= group_rank < len(members):
        return None
    return members[group_rank]


class OldCall(NamedTuple):
    """A call of a trace whose calls carry no collective arguments, with its own args as read."""

    event_id: int
    name: str
    start_ns: int
    end_ns: int
    thread: int
    args: dict


def kernel_parts(
    kernels: Rows,
    calls: Rows,
    old_calls: list[OldCall],
    launched_by: Launches,
    step_at: Callable[[np.ndarray], np.ndarray],
    reader: Reader,
    symbols: Symbols,
) -> list[Part]:
    """One part for each communication kernel; of a group one for each peer.

    What it carries comes from its own arguments, else from the call on whose thread and within
    whose time it was launched, else from the call with its `External id`, else from its name. A
    kernel that ends a group of point-to-point calls (launched after several calls that launched
    nothing themselves) carries all of them: it has a part for each peer, all with its event and
    times and with `coalesced` = operations in the kernel; one part where a peer is not known.
    `step_at` gives step numbers (NULL outside) for host times.
    """
    n = len(kernels["event_id"])
    if not n:
        return []
    at = launch_of(launched_by, kernels["correlation"])
    launch_ns = np.full(n, NULL)
    thread = np.full(n, NULL)
    launch_ns[at >= 0] = launched_by.start_ns[at[at >= 0]]
    thread[at >= 0] = launched_by.thread[at[at >= 0]]

    call = enclosing(calls["start_ns"], calls["end_ns"], calls["thread"], launch_ns, thread)
    own = reader.rows(kernels)
    of_call = reader.rows(calls)
    groups = _groups(own, call, of_call, calls, launch_ns, thread, symbols, kernels)
    call = np.where(call >= 0, call, _by_external_id(kernels, calls))
    old = _old_call(old_calls, launch_ns, thread)
    host_ns = np.where(
        (launch_ns == NULL) & (call >= 0), calls["start_ns"][call] if len(of_call) else NULL,
        launch_ns,
    )  # fmt: skip
    step = step_at(host_ns)

    names, starts, ends, ids, streams, grids = (
        kernels[c].tolist() for c in ("name", "start_ns", "end_ns", "event_id", "stream", "grid")
    )
    record_functions = calls["record_function_id"].tolist()
    parts = []
    for i in range(n):
        by_name = classify.comm_kernel(symbols.text(names[i]))
        part = Part(ids[i], starts[i], ends[i], stream=_none(streams[i]), step=_none(int(step[i])))
        part.enqueued_ns = _none(int(host_ns[i]))
        if by_name is not None:
            part.op, part.algo, part.proto = by_name.op, by_name.algo, by_name.proto
            part.dtype = by_name.dtype.name if by_name.dtype else None
            if by_name.library in ("nccl", "rccl", "msccl"):
                part.channels = _none(grids[i])
        from_call = of_call[int(call[i])] if call[i] >= 0 else None
        if call[i] >= 0:
            part.record_function = _none(record_functions[int(call[i])])
        members = groups.get(i)
        if members:
            parts += _group_parts(
                part, [of_call[k] for k in members], [record_functions[k] for k in members]
            )
            continue
        elif own[i] is not None or from_call is not None:
            if own[i] is None and from_call is not None and from_call.op is None:
                from_call = None
            said = own[i] or from_call
            if said is not None:
                _tell(part, said)
                if own[i] is not None and from_call is not None and from_call.op == said.op:
                    part.root = part.root if part.root is not None else from_call.root
                    part.peer = part.peer if part.peer is not None else from_call.peer
                    part.seq = part.seq if part.seq is not None else from_call.seq
        elif old[i] >= 0:
            _tell_old(part, old_calls[int(old[i])])
        parts.append(part)
    return parts


def _by_external_id(kernels: Rows, calls: Rows) -> np.ndarray:
    """Index of the call with each kernel's External id; -1 for none.

    Writers until 2024 gave rows without a link their correlation as External id: not a link.
    """
    ids = kernels["external_id"]
    if not len(calls["external_id"]):
        return np.full(len(ids), -1, np.int64)
    order = np.argsort(calls["external_id"], kind="stable")
    known = calls["external_id"][order]
    at = np.minimum(np.searchsorted(known, ids), len(known) - 1)
    linked = (known[at] == ids) & (ids != NULL) & (ids != 0) & (ids != kernels["correlation"])
    return np.where(linked, order[at], -1)


def _groups(
    own: list[Said | None],
    call: np.ndarray,
    of_call: list[Said | None],
    calls: Rows,
    launch_ns: np.ndarray,
    thread: np.ndarray,
    symbols: Symbols,
    kernels: Rows,
) -> dict[int, list[int]]:
    """Calls that each group-ending kernel carries: one launched outside every call, or by a call
    that names no operation but the end of a group.

    Only point-to-point calls are grouped: others launch their own kernels. The calls are those of
    the kernel's thread since the thread's last communication launch.
    """
    idle = np.ones(len(of_call), bool)
    idle[call[call >= 0]] = False
    p2p = np.array([s is not None and s.op in P2P for s in of_call], bool)
    waiting = np.flatnonzero(idle & p2p)
    if not len(waiting):
        return {}
    out: dict[int, list[int]] = {}
    waiting = waiting[np.argsort(calls["start_ns"][waiting], kind="stable")]
    order = np.argsort(launch_ns, kind="stable")
    last: dict[int, int] = {}
    for i in order.tolist():
        if launch_ns[i] == NULL:
            continue
        t, now = int(thread[i]), int(launch_ns[i])
        by_name = classify.comm_kernel(symbols.text(int(kernels["name"][i])))
        op = own[i].op if own[i] is not None else by_name.op if by_name else None  # type: ignore[union-attr]
        inside = of_call[int(call[i])] if call[i] >= 0 else None
        ends_group = call[i] < 0 or (inside is not None and inside.op == "send_recv")
        if ends_group and (op in P2P or op in (None, "unknown")):
            begun = calls["start_ns"][waiting]
            mine = waiting[
                (calls["thread"][waiting] == t)
                & (begun > last.get(t, NULL))
                & (calls["end_ns"][waiting] <= now)
            ]
            if len(mine):
                out[i] = mine.tolist()
        last[t] = now
    return out


def _tell(part: Part, said: Said) -> None:
    """Writes what arguments say into a part; what they leave open stays as the name said it."""
    if said.op not in (None, "unknown"):
        part.op = said.op
    if said.dtype is not None:
        part.dtype = said.dtype.name
    part.comm, part.seq, part.group_size = said.comm, said.seq, said.group_size
    part.in_bytes, part.out_bytes = said.in_bytes, said.out_bytes
    part.in_splits, part.out_splits = said.in_splits, said.out_splits
    part.root, part.peer = said.root, said.peer


def _group_parts(part: Part, members: list[Said | None], record_functions: list[int]) -> list[Part]:
    """The group's part for each communicator and peer; a single one if a peer is not known.

    Each has the record function of its first call: one part cannot join all of its calls.
    """
    said = [m for m in members if m is not None]
    by_peer: dict[tuple, list[Said]] = {}
    first: dict[tuple, int] = {}
    for m, record_function in zip(members, record_functions, strict=True):
        if m is not None:
            by_peer.setdefault((m.comm, m.peer), []).append(m)
            first.setdefault((m.comm, m.peer), record_function)
    if any(m.peer is None for m in said):
        by_peer = {(): said}
        first[()] = next(r for m, r in zip(members, record_functions, strict=True) if m is not None)
    out = []
    for key, some in by_peer.items():
        one = replace(part, record_function=_none(first[key]))
        _tell_group(one, some)
        one.coalesced = len(said) if len(said) > 1 else None
        out.append(one)
    return out


def _tell_group(part: Part, said: list[Said]) -> None:
    """Writes the sum of operations into a part: bytes each way, the first sequence number."""
    first = said[0]
    _tell(part, first)
    if len(said) == 1:
        return
    ops = {m.op for m in said}
    sent = [m.in_bytes for m in said if m.op != "recv"]
    received = [m.out_bytes for m in said if m.op != "send"]
    part.op = first.op if len(ops) == 1 and first.op else "send_recv"
    part.in_bytes = None if None in sent else sum(b for b in sent if b is not None)
    part.out_bytes = None if None in received else sum(b for b in received if b is not None)
    peers = {m.peer for m in said}
    part.peer = peers.pop() if len(peers) == 1 else None
    types = {m.dtype for m in said}
    part.dtype = first.dtype.name if first.dtype and len(types) == 1 else None
    comms = {m.comm for m in said}
    if len(comms) > 1:
        part.comm, part.seq, part.group_size = None, None, None


def _old_call(old_calls: list[OldCall], launch_ns: np.ndarray, thread: np.ndarray) -> np.ndarray:
    if not old_calls:
        return np.full(len(launch_ns), -1, np.int64)
    named = [
        i for i, c in enumerate(old_calls) if re.match(r"(nccl|rccl|ucc|mpi|xccl):", c.name)
    ]  # c10d:: calls hold these; the inner one names the op
    if not named:
        return np.full(len(launch_ns), -1, np.int64)
    at = enclosing(
        np.array([old_calls[i].start_ns for i in named]),
        np.array([old_calls[i].end_ns for i in named]),
        np.array([old_calls[i].thread for i in named]),
        launch_ns,
        thread,
    )
    return np.where(at >= 0, np.array(named)[at], -1)


def _tell_old(part: Part, call: OldCall) -> None:
    """Op, type and input size from a call that only recorded its tensors' shapes."""
    op = classify.op_of_collective_name(call.name)
    if op not in (None, "unknown"):
        part.op = op
    n_in, kind = input_elements(call.args)
    dtype = classify.dtype_of(kind)
    if dtype is not None:
        part.dtype = dtype.name
    part.in_bytes = _bytes(n_in, dtype)
    if part.op in ("all_reduce", "broadcast", "all_to_all"):
        # The same tensor or an even exchange: as much comes out. Uneven splits are not recorded.
        part.out_bytes = part.in_bytes if part.op != "all_to_all" else None


_ROOT_INPUT = {"broadcast": 2, "reduce": 3, "gather": 3, "scatter": 3, "send": 2, "recv": 2}
"""Which input of `c10d::<op>_` is the root's (or peer's) rank within the group."""


def host_parts(
    ran: list[OldCall],
    api_calls: list[OldCall],
    backend: str,
    comms: Comms,
    step_at: Callable[[np.ndarray], np.ndarray],
    tally: Tally,
) -> list[Part]:
    """One part for each operation of a host-side backend: its event from call to completion.

    `ran` are the backend's own events (`gloo:all_reduce`, on its worker thread where the call is
    asynchronous), `api_calls` the `c10d::` ones that name a root, a peer or splits; each is joined
    to the next event of its op. The trace names no group there: the communicator is known only
    where the backend has one.
    """
    if not ran:
        return []
    comm, members = comms.of_backend(backend)
    size = comm.size if comm is not None else len(members) if members else None
    step = step_at(np.array([c.start_ns for c in ran]))
    api = _api_of(ran, api_calls)
    parts = []
    for i, call in enumerate(ran):
        op = classify.op_of_collective_name(call.name)
        if op is None:
            continue
        part = Part(call.event_id, call.start_ns, call.end_ns, op=op, step=_none(int(step[i])))
        n_in, kind = input_elements(call.args)
        dtype = classify.dtype_of(kind)
        part.dtype = dtype.name if dtype else None
        part.in_bytes = _bytes(n_in, dtype)
        part.comm, part.group_size = comm, size
        if op in ("all_reduce", "broadcast", "send", "recv"):
            part.out_bytes = part.in_bytes
        elif op == "all_gather" and part.in_bytes is not None and size:
            part.out_bytes = part.in_bytes * size
        if comm is None and backend == "gloo":
            tally.add("comm_unknown")
        if api[i] is not None:
            _tell_api(part, api[i].args, members)  # type: ignore[union-attr]
            # The call's, not the backend's own: it is the one whose node has the splits.
            part.record_function = as_int(api[i].args.get("Record function id"))  # type: ignore[union-attr]
        parts.append(part)
    return parts


def tell_from_calls(parts: list[Part], ran: list[OldCall], calls: Rows, reader: Reader) -> None:
    """Gives parts of host events what the `record_param_comms` call around each of them says."""
    if not parts or not len(calls["event_id"]):
        return
    event = {c.event_id: c for c in ran}
    mine = [event[p.event_id] for p in parts]
    at = enclosing(
        calls["start_ns"], calls["end_ns"], calls["thread"],
        np.array([c.start_ns for c in mine]), np.array([c.thread for c in mine]),
    )  # fmt: skip
    said = reader.rows(calls)
    for part, k in zip(parts, at.tolist(), strict=True):
        if k >= 0 and (told := said[k]) is not None and told.op == part.op:
            _tell(part, told)


def _api_of(ran: list[OldCall], api_calls: list[OldCall]) -> list[OldCall | None]:
    """For each event the latest call of its op that began before it and is not taken yet."""
    out: list[OldCall | None] = [None] * len(ran)
    open_calls: dict[str, list[OldCall]] = {}
    todo = sorted(api_calls, key=lambda c: c.start_ns)
    k = 0
    for i in sorted(range(len(ran)), key=lambda i: ran[i].start_ns):
        while k < len(todo) and todo[k].start_ns <= ran[i].start_ns:
            op = classify.op_of_collective_name(todo[k].name)
            open_calls.setdefault(op or "", []).append(todo[k])
            k += 1
        waiting = open_calls.get(classify.op_of_collective_name(ran[i].name) or "")
        if waiting:
            out[i] = waiting.pop()
    return out


def _tell_api(part: Part, args: dict, members: tuple[int, ...] | None) -> None:
    inputs = args.get("Concrete Inputs")
    if not isinstance(inputs, list):
        return
    place = _ROOT_INPUT.get(part.op)
    if place is not None and place < len(inputs):
        value = str(inputs[place])
        member = _member(members, as_int(value)) if value.isdecimal() else None
        if part.op in ROOTED:
            part.root = member
        else:
            part.peer = member
    if part.op == "all_to_all":
        lists = [v for v in inputs if isinstance(v, str) and v.startswith("[")]
        dims = args.get("Input Dims")
        if len(lists) >= 2:
            (got, whole_got), (sent, whole_sent) = (
                parse_rank_list(v, MOST_ROWS) for v in lists[:2]
            )
            part.out_splits = list(got) if whole_got and got else None
            part.in_splits = list(sent) if whole_sent and sent else None
        out_n = elements(dims[:1]) if isinstance(dims, list) else None
        dtype = classify.dtype_of(part.dtype)
        part.out_bytes = _bytes(out_n, dtype)


def _fitting(values: list, column: str, tally: Tally) -> list | pa.Array:
    """Integers that fit their column; the others are null and counted."""
    type = COLLECTIVES.field(column).type
    if not pa.types.is_integer(type):
        return values
    try:
        return pa.array(values, type)
    except (pa.ArrowInvalid, OverflowError):
        pass  # one does not fit
    limit = 1 << (type.bit_width - 1)
    out = [v if v is None or -limit <= v < limit else None for v in values]
    tally.add("size_out_of_range", None, out.count(None) - values.count(None))
    return out


def collectives_batch(parts: list[Part], rank: int, tally: Tally) -> pa.RecordBatch | None:
    """Rows of `collectives` in order of start; None where there are none."""
    if not parts:
        return None
    parts = sorted(parts, key=lambda p: (p.start_ns, p.event_id))
    lists = pa.list_(pa.int64())
    same = ("seq", "op", "dtype", "in_bytes", "out_bytes", "group_size", "root", "peer", "algo",
            "proto", "channels", "start_ns", "end_ns", "stream", "step", "event_id",
            "coalesced", "record_function", "enqueued_ns")  # fmt: skip
    columns: dict[str, object] = {
        c: _fitting([getattr(p, c) for p in parts], c, tally) for c in same
    }
    columns |= {
        "comm": [p.comm.comm if p.comm else None for p in parts],
        "rank": [rank] * len(parts),
        "in_splits": pa.array([p.in_splits for p in parts], lists),
        "out_splits": pa.array([p.out_splits for p in parts], lists),
        "source": ["kineto"] * len(parts),
    }
    return TABLES["collectives"].batch(columns)
