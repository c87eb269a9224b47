"""Rows of a PyTorch execution trace: nodes, untimed collectives, communicators, the rank."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from ..collect import Collector
from ..errors import RankUnknown, UnusableInput
from ..kineto.comms import Comm
from ..schema import event_id
from ..values import MAX_RANK, integer
from .et_calls import API, CALL, P2P, ROOTED, Call, api_call_of, call_of
from .et_deps import Writers
from .et_node import Node, node_of, tensors
from .groups import INIT, Groups
from .json_items import Items
from .names import rank_of

if TYPE_CHECKING:
    from ..sources import Source

OPENS = re.compile(rb'"nodes"[ \t\r\n]*:[ \t\r\n]*\[')
STARTS = re.compile(
    rb'\{[ \t\r\n]*"(?:id"[ \t\r\n]*:[ \t\r\n]*\d{1,20}[ \t\r\n]*,[ \t\r\n]*"name"'
    rb'|name"[ \t\r\n]*:[ \t\r\n]*"[^"\\]{0,4096}"[ \t\r\n]*,[ \t\r\n]*"id")'
)
_TELLING = re.compile(rb"record_param_comms|process_group:init")

ROOT = 1
USER_SCOPE = 7
HELD_CALLS = 20_000
HELD_SPLITS = 1 << 20
"""Calls (and the numbers in their lists) held back until the groups they name are known, which may
stand behind them."""

MOVES = frozenset({"aten::copy_", "aten::_copy_from"})

Batch = tuple[str, pa.RecordBatch]


def tables_of(source: Source, rank: int | None) -> Iterator[Batch]:
    """The tables of one execution trace; see `pytorch_et.parse`."""
    found = rank_of(source.name)
    found = rank if found is None else found
    c = Collector(source)
    if found is None:
        found = rank_in_calls(source)
        if found is None:
            found = rank_of(source.name, numbered=True)
        if found is None:
            raise RankUnknown(
                "neither its name nor its collectives say which rank wrote it: give it with "
                "--rank N",
                path=source.name,
            )
        c.odd(
            "rank_from_group",
            f"no rank in the name: {found} is taken from the place that the collectives give in "
            "their groups (or, without any, from a bare number in the name)",
            "info",
        )
    yield from _Trace(source, found, c).batches()


def rank_in_calls(source: Source) -> int | None:
    """The rank that a trace's calls give with their groups, by reading it once; None if unknown.

    Only calls with no root or other end count (the same number is the root's or the peer's there),
    and only of groups whose members are known.
    """
    groups, places, found = Groups(), [], set()
    nodes = Items(source, OPENS, STARTS, lambda *_, **__: None, _TELLING)
    for _, raw in nodes:
        node = node_of(raw)
        if node.name == INIT:
            _learn(groups, node)
            continue
        call = call_of(node) if node.name == CALL else None
        if call is not None and call.own_place is not None and len(places) < HELD_CALLS:
            places.append(call._replace(in_splits=None, out_splits=None))
    for call in places:
        comm = _comm(groups, call)
        if comm is not None and comm.ranks is not None and 0 <= call.place < len(comm.ranks):
            found.add(comm.ranks[call.place])
    return found.pop() if len(found) == 1 and max(found) <= MAX_RANK else None


def _learn(groups: Groups, node: Node) -> bool:
    text = node.inputs[0] if node.inputs else None
    return isinstance(text, str) and groups.learn(text)


def _comm(groups: Groups, call: Call) -> Comm | None:
    return groups.of(call.group, call.description, call.size, call.start, call.stride, call.number)


class _Trace:
    """What is kept of one trace while its nodes go by."""

    def __init__(self, source: Source, rank: int, c: Collector):
        self.source, self.rank, self.c = source, rank, c
        self.groups = Groups()
        self.writers = Writers()
        self.held: list[tuple[Node, Call]] = []
        self.n_splits = 0
        self.with_call: set[int | None] = set()
        self.ids: set[int] = set()
        self.size_of: dict[int, int] = {}
        self.n_nodes = 0

    def batches(self) -> Iterator[Batch]:
        """All rows, the nodes as they go by."""
        nodes = Items(self.source, OPENS, STARTS, self.c.odd)
        for offset, raw in nodes:
            self._node(node_of(raw), offset)
            if not self.n_nodes % 4096:
                yield from self.c.full()
        if not self.n_nodes:
            raise UnusableInput("has no node that can be read", path=self.source.name)
        self._give_calls()
        if nodes.closed and ROOT not in self.ids:
            self.c.odd("no_root", "the root node is not in the trace", "info")
        self.groups.add_rows(self.c, self.rank, integer(nodes.beside.get("pid")))
        if self.writers.forgotten:
            self.c.odd(
                "deps_forgotten",
                "more tensors than are remembered: data dependencies on older ones are left out",
                "info",
                count=self.writers.forgotten,
            )
        yield from self.c.rest()

    def _node(self, node: Node, offset: int) -> None:
        self.n_nodes += 1
        call = None
        if node.name == CALL:
            call = call_of(node)
            self.with_call.add(node.parent)
        elif node.name == INIT:
            if not _learn(self.groups, node):
                self.c.odd("bad_group_list", "a list of process groups that is not whole JSON",
                           offset=offset)  # fmt: skip
        elif node.name.startswith(API) and node.id not in self.with_call:
            call = api_call_of(node)
        if node.id is None:
            self.c.odd("no_id", "a node without an id; it is kept without one", offset=offset)
        if call is not None or node.id == ROOT:
            if node.id in self.ids:
                self.c.odd("duplicate_node", "a node's id stands twice", offset=offset)
                node = node._replace(id=None)
            elif node.id is not None:
                self.ids.add(node.id)
        self._node_row(node, call)
        if call is not None:
            if call.number and call.size:
                self.size_of[call.number] = call.size
            self.held.append((node._replace(inputs=[], outputs=[]), call))
            self.n_splits += len(call.in_splits or ()) + len(call.out_splits or ())
            if len(self.held) >= HELD_CALLS or self.n_splits >= HELD_SPLITS:
                self._give_calls()

    def _node_row(self, node: Node, call: Call | None) -> None:
        read, written = tensors(node.inputs), tensors(node.outputs)
        deps: list[int] | None = None
        if node.id is not None:
            deps = self.writers.deps(node.id, [t.id for t in read])
            self.writers.wrote(node.id, [t.id for t in written])
        moved = None
        if call is not None:
            moved = max((b for b in (call.in_bytes, call.out_bytes) if b is not None), default=None)
        elif node.name in MOVES and read:
            moved = read[0].n_elements * read[0].itemsize
        comm = None if call is None else self._comm_of(call)
        tid = node.number("tid")
        self.c.add(
            "graph_nodes",
            rank=self.rank,
            node_id=node.id,
            name=node.name,
            kind=_kind(node, call),
            parent=node.parent if node.parent != node.id else None,
            data_deps=deps,
            thread=None if tid is None else str(tid),
            comm=None if comm is None else comm.comm,
            op=None if call is None else call.op,
            bytes=moved,
            record_function=node.number("rf_id") or None,
            source="execution-trace",
        )

    def _comm_of(self, call: Call) -> Comm | None:
        if call.group is None and call.number is None:
            return self.groups.only()
        return _comm(self.groups, call)

    def _give_calls(self) -> None:
        for node, call in self.held:
            self._collective(node, call)
        self.held, self.n_splits = [], 0

    def _collective(self, node: Node, call: Call) -> None:
        comm = self._comm_of(call)
        unnamed = call.group is None and call.number is None
        members = comm.ranks if comm is not None else self.groups.shared() if unnamed else None
        size = comm.size if comm is not None and comm.size else call.size
        if size is None and call.number is not None:
            size = self.size_of.get(call.number)
        if size is None and members is not None:
            size = len(members)
        end = None
        if call.place is not None and members is not None and 0 <= call.place < len(members):
            end = members[call.place]
        if comm is None:
            self.c.odd(
                "comm_unknown",
                "a collective whose process group has no name in the trace; comm is null",
                "info",
            )
        own = call.own_place
        if own is not None and members is not None and end not in (None, self.rank):
            self.c.odd(
                "rank_differs",
                f"collectives say that this is rank {end}, its name or --rank says {self.rank}; "
                f"{self.rank} is kept",
            )
        if call.cut:
            self.c.odd(
                "splits_truncated",
                "a list of all-to-all splits that is cut, or of impossible numbers; null",
                count=call.cut,
            )
        self.c.add(
            "collectives",
            rank=self.rank,
            comm=None if comm is None else comm.comm,
            seq=call.seq,
            op=call.op,
            dtype=None if call.dtype is None else call.dtype.name,
            in_bytes=call.in_bytes,
            out_bytes=call.out_bytes,
            group_size=size,
            root=end if call.op in ROOTED else None,
            peer=end if call.op in P2P else None,
            in_splits=call.in_splits,
            out_splits=call.out_splits,
            event_id=None if node.id is None else event_id(self.rank, "execution-trace", node.id),
            record_function=node.number("rf_id") or None,
            source="execution-trace",
        )


def _kind(node: Node, call: Call | None) -> str:
    if call is not None:
        return call.op if call.op in ("send", "recv") else "collective"
    if node.name == INIT or node.name.startswith("[pytorch|profiler|"):
        return "metadata"
    if node.name == CALL or node.name.startswith(API) or node.number("scope") == USER_SCOPE:
        return "other"
    return "memory" if node.name in MOVES else "compute"
