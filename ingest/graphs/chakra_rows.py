"""Rows of a Chakra execution trace, from protobuf nodes or from the feeder's JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from .. import classify
from ..collect import Collector
from ..errors import UnusableInput
from ..kineto.comms import Comm
from ..schema import event_id
from ..values import integer
from .chakra_wire import MAX_JUNK, Bad, Node, messages, metadata, node
from .groups import INIT, Groups
from .json_items import Items
from .names import rank_told

if TYPE_CHECKING:
    from ..sources import Source

OPENS = re.compile(rb'"workload_graph"[ \t\r\n]*:[ \t\r\n]*\[')
STARTS = re.compile(rb'\{[ \t\r\n]*"(?:Id|Name|NodeType)"[ \t\r\n]*:')

KINDS = {
    1: "metadata", 2: "memory", 3: "memory", 4: "compute", 5: "send", 6: "recv", 7: "collective",
}  # fmt: skip
OPS = ("all_reduce", "reduce", "all_gather", "gather", "scatter", "broadcast", "all_to_all",
       "reduce_scatter", "reduce_scatter", "barrier")  # fmt: skip
SEND, RECV, COLLECTIVE = 5, 6, 7

MAX_GROUPS_TEXT = 16 << 20

Batch = tuple[str, pa.RecordBatch]


def tables_of(source: Source, rank: int | None) -> Iterator[Batch]:
    """The tables of one trace; see `chakra.parse`."""
    found = rank_told(source, rank, "Chakra")
    c = Collector(source)
    c.odd(
        "no_sequence_numbers",
        "the format has no sequence numbers and no splits, and converters guess a collective's "
        "kind: these rows cannot be matched over ranks by number",
        "info",
    )
    trace = _Trace(source, found, c)
    text = source.head(4096).lstrip(b"\xef\xbb\xbf \t\r\n")
    if text[:1] == b"{" and OPENS.search(source.head()) is not None:
        nodes: Iterator[tuple[int, Node | None]] = trace.of_json()
    else:
        nodes = trace.of_messages()
    yield from trace.batches(nodes)


class _Trace:
    """What is kept of one trace while its nodes go by."""

    def __init__(self, source: Source, rank: int, c: Collector):
        self.source, self.rank, self.c = source, rank, c
        self.groups = Groups()
        self.pid: int | None = None
        self.n_nodes = 0
        self.ids: set[int] = set()

    def of_messages(self) -> Iterator[tuple[int, Node | None]]:
        """Nodes of a protobuf file; None for a message that is none."""
        first = True
        junk = 0
        for offset, data in messages(self.source, self.c.odd):
            try:
                if first:
                    first = False
                    _, attrs = metadata(data)
                    self.pid = integer(attrs.get("pid"))
                else:
                    yield offset, node(data)
                    junk = 0
            except Bad:
                junk += 1
                self.c.odd("lost_node", "a message that is no node; left out", "lost",
                           offset=offset)  # fmt: skip
                if junk >= MAX_JUNK:
                    self.c.odd("gave_up", f"{MAX_JUNK} messages in a row that are no nodes: the "
                               "rest is left out", "lost", offset=offset)  # fmt: skip
                    return

    def of_json(self) -> Iterator[tuple[int, Node | None]]:
        """Nodes of the feeder's JSON."""
        for offset, raw in Items(self.source, OPENS, STARTS, self.c.odd):
            yield offset, _json_node(raw)

    def batches(self, nodes: Iterator[tuple[int, Node | None]]) -> Iterator[Batch]:
        """All rows, the nodes as they go by."""
        for offset, one in nodes:
            if one is None:
                self.c.odd("lost_node", "a node without id, name or type; left out", "lost",
                           offset=offset)  # fmt: skip
                continue
            self._node(one, offset)
            if not self.n_nodes % 4096:
                yield from self.c.full()
        if not self.n_nodes:
            raise UnusableInput("has no node that can be read", path=self.source.name)
        self.groups.add_rows(self.c, self.rank, self.pid)
        yield from self.c.rest()

    def _node(self, n: Node, offset: int) -> None:
        self.n_nodes += 1
        attrs = n.attrs
        if n.name.startswith(INIT):
            self._learn(n.inputs, offset)
        op = self._op(n)
        size = _size(attrs.get("comm_size"))
        comm = self._comm(attrs.get("pg_name")) if n.type in (SEND, RECV, COLLECTIVE) else None
        moved = size if size is not None else _size(attrs.get("tensor_size"))
        thread = integer(attrs.get("tid"))
        dur_ns = n.dur_us * 1000 or None
        self.c.add(
            "graph_nodes",
            rank=self.rank,
            node_id=n.id,
            name=n.name,
            kind=KINDS.get(n.type, "other"),
            data_deps=n.data_deps or None,
            ctrl_deps=n.ctrl_deps or None,
            thread=None if thread is None else str(thread),
            start_ns=n.start_us * 1000 or None,
            dur_ns=dur_ns,
            comm=None if comm is None else comm.comm,
            op=op,
            bytes=moved,
            record_function=integer(attrs.get("rf_id")) or None,
            source="chakra",
        )
        if op is not None:
            self._collective(n, op, size, comm, dur_ns, offset)

    def _learn(self, inputs: str, offset: int) -> None:
        # Converters write the values as Python's list: ['[{"pg_name": ...}]'].
        start, end = inputs.find("[{"), inputs.rfind("}]")
        text = inputs[start : end + 2][:MAX_GROUPS_TEXT]
        if start < 0 or not self.groups.learn(text):
            self.c.odd("bad_group_list", "a list of process groups that is not whole JSON",
                       offset=offset)  # fmt: skip

    def _comm(self, name: object) -> Comm | None:
        return self.groups.of(name, None, None) if isinstance(name, str) else None

    def _op(self, n: Node) -> str | None:
        """The op of a node that is a participation; None for all others."""
        if n.type in (SEND, RECV):
            return None if _on_host(n) and "comm_size" not in n.attrs else KINDS[n.type]
        if n.type != COLLECTIVE:
            return None
        kind = integer(n.attrs.get("comm_type"))
        if kind is not None:
            return OPS[kind] if 0 <= kind < len(OPS) else "unknown"
        # proto3 may leave out an all-reduce's 0, and the JSON form leaves out all of it.
        by_name = None if _on_host(n) else classify.comm_kernel(n.name[:4096])
        if by_name is not None:
            return by_name.op
        return "unknown" if "comm_size" in n.attrs else None

    def _collective(
        self, n: Node, op: str, size: int | None, comm: Comm | None, dur_ns: int | None, offset: int
    ) -> None:
        sends, receives = op != "recv", op in ("recv", "all_reduce", "broadcast")
        peer = integer(n.attrs.get("comm_dst" if op == "send" else "comm_src"))
        ident: int | None = n.id
        if n.id in self.ids:
            self.c.odd("duplicate_node", "a node's id stands twice", offset=offset)
            ident = None
        self.ids.add(n.id)
        by_name = classify.comm_kernel(n.name[:4096])
        dtype = by_name.dtype if by_name is not None and op == by_name.op else None
        self.c.add(
            "collectives",
            rank=self.rank,
            comm=None if comm is None else comm.comm,
            op=op,
            dtype=dtype.name if dtype is not None else None,
            in_bytes=size if sends else None,
            out_bytes=size if receives else None,
            group_size=None if comm is None else comm.size,
            peer=peer if op in ("send", "recv") else None,
            algo=by_name.algo if by_name is not None else None,
            proto=by_name.proto if by_name is not None else None,
            exec_ns=None if _on_host(n) else dur_ns,
            event_id=None if ident is None else event_id(self.rank, "chakra", ident),
            record_function=integer(n.attrs.get("rf_id")) or None,
            source="chakra",
        )


def _size(value: object) -> int | None:
    number = integer(value)
    return number if number is not None and number >= 0 else None


def _on_host(n: Node) -> bool:
    return n.attrs.get("is_cpu_op") in (True, 1)


def _json_node(raw: dict) -> Node | None:
    """A node of the feeder's JSON; None where it has neither a name nor a type."""
    ident, kind, name = integer(raw.get("Id")), integer(raw.get("NodeType")), raw.get("Name")
    if ident is None or not (isinstance(name, str) or kind):
        return None
    ctrl = raw.get("ctrlDeps", raw.get("ctrl_deps"))
    dur, start = integer(raw.get("runtime")), integer(raw.get("start_time_micros"))
    inputs = raw.get("inputs")
    return Node(
        ident,
        name if isinstance(name, str) else "",
        kind or 0,
        _ids(ctrl),
        _ids(raw.get("data_deps")),
        max(start or 0, 0),
        max(dur or 0, 0),
        inputs if isinstance(inputs, str) else "",
        raw,
    )


def _ids(value: object) -> list[int]:
    if not isinstance(value, list):
        return []
    return [v for v in map(integer, value) if v is not None]
