"""What a communication node of a PyTorch execution trace says of its collective."""

from __future__ import annotations

import re
from typing import NamedTuple

from .. import classify
from ..kineto.header import parse_rank_list
from ..values import integer
from .et_node import Node, Tensor, tensors

CALL = "record_param_comms"
API = "c10d::"

MOST_ROWS = 1 << 62
LISTED = 4096
"""Items of a list that the writer puts into a node's values; its attributes have all."""

ROOTED = frozenset({"broadcast", "reduce", "gather", "scatter"})
P2P = frozenset({"send", "recv", "send_recv"})


class Call(NamedTuple):
    """One communication call; None where the trace does not say.

    `place` is the number that the call gives with its group: the root's place in the group for
    rooted operations, the other end's for send and recv, the rank's own for all others. `splits`
    are rows. `cut` counts split lists that are not whole.
    """

    op: str
    dtype: classify.Dtype | None
    in_bytes: int | None
    out_bytes: int | None
    in_splits: list[int] | None
    out_splits: list[int] | None
    cut: int
    seq: int | None
    place: int | None
    group: str | None
    description: str | None
    number: int | None
    size: int | None
    start: int | None
    stride: int | None

    @property
    def own_place(self) -> int | None:
        """This rank's place in the group, where the call gives that."""
        return None if self.op in ROOTED or self.op in P2P else self.place


def call_of(node: Node) -> Call | None:
    """What a `record_param_comms` node says; None where it moves nothing (wait, init).

    Its values are [tensors], sequence number, group, rank, name, input splits, output splits and,
    by schema, more: nothing in 1.0.1, the group's size in 1.0.2, first rank, stride and size from
    1.1.0 on. wait and barrier have no tensors. The group is a number (an address) before 1.1.0 and
    [name, description] since; the sequence number is an integer, in newer ones [number, is P2P].
    """
    values = node.inputs
    at = next((i for i in (4, 3) if i < len(values) and isinstance(values[i], str)), None)
    name = node.text("collective_name")
    if at is None and name is None:
        return None
    if name is None and at is not None:
        name = values[at]
    op = classify.op_of_collective_name(name or "")
    if op is None:
        return None
    seq, p2p, group, place, rest = None, False, None, None, []
    if at is not None:
        seq, group, place, rest = values[at - 3], values[at - 2], integer(values[at - 1]), values[at + 1:]  # noqa: E501  # fmt: skip
        if isinstance(seq, list):
            p2p = len(seq) > 1 and seq[1] in (True, 1, "true")
            seq = seq[0] if seq else None
    named = isinstance(group, list)
    # Addressed groups are of a time when a root was not given: the number is the rank's own.
    if not named and (op in ROOTED or op in P2P):
        place = None
    said_in = values[0] if at == 4 else None
    in_list, in_type = tensors(said_in), node.input_types[:1]
    out_list = tensors(node.outputs)
    dtype = classify.dtype_of(node.text("dtype")) or _dtype(in_type) or _dtype(node.output_types)
    size = node.number("pg_size")
    if size is None:
        size = integer(rest[4] if len(rest) > 4 else rest[2] if len(rest) == 3 else None)
    in_splits, cut_in = _splits(rest[0] if rest else None, node.text("in_split_size"))
    out_splits, cut_out = _splits(rest[1] if len(rest) > 1 else None, node.text("out_split_size"))
    if size is None:
        size = len(in_splits or out_splits or ()) or None
    group_name, description = _group(node, group)
    seq = integer(seq)
    return Call(
        op,
        dtype,
        _bytes(node.number("in_msg_nelems"), dtype, in_list),
        _bytes(node.number("out_msg_nelems"), dtype, out_list),
        in_splits,
        out_splits,
        cut_in + cut_out,
        None if p2p or op in P2P or seq is None or seq < 0 else seq,
        place,
        group_name,
        description,
        integer(group),
        size if size is not None and size > 0 else None,
        _either(node.number("global_rank_start"), rest, 2),
        _either(node.number("global_rank_stride"), rest, 3),
    )


def _group(node: Node, group: object) -> tuple[str | None, str | None]:
    names = group if isinstance(group, list) else []
    name = node.text("pg_name") or (names[0] if names else None)
    description = node.text("pg_desc") or (names[1] if len(names) > 1 else None)
    return (
        name if isinstance(name, str) and name else None,
        description if isinstance(description, str) else None,
    )


def _either(attr: int | None, rest: list, place: int) -> int | None:
    if attr is not None:
        return attr
    return integer(rest[place]) if len(rest) > 4 else None


def _splits(listed: object, text: str | None) -> tuple[list[int] | None, int]:
    """Rows for each member, None where even or unknown; and 1 where the list is not whole."""
    if isinstance(listed, list) and len(listed) > LISTED and text:
        listed = text
    for said in (listed, text):
        if said in (None, [], "[]"):
            continue
        numbers, whole = parse_rank_list(said, MOST_ROWS)
        if whole and numbers:
            return list(numbers), 0
        return None, 1
    return None, 0


_TENSOR = re.compile(r"Tensor\(([^()\]]{1,60})\)")


def _dtype(types: list) -> classify.Dtype | None:
    for text in types[:8]:
        found = _TENSOR.search(text[:400]) if isinstance(text, str) else None
        if found is not None:
            name = found[1]
            return classify.dtype_of(name) or classify.dtype_of(name.removeprefix("c10::"))
    return None


def _bytes(nelems: int | None, dtype: classify.Dtype | None, listed: list[Tensor]) -> int | None:
    if nelems is not None and dtype is not None and nelems >= 0:
        return nelems * dtype.itemsize
    return sum(t.n_elements * t.itemsize for t in listed) if listed else None


_ARGUMENTS = re.compile(r"\(([^()]*)\)")


def api_call_of(node: Node) -> Call | None:
    """What a `c10d::` node says: of back ends (gloo) whose calls leave no `record_param_comms`.

    The operator's schema names its arguments. The group itself is not among the values.
    """
    op = classify.op_of_collective_name(node.name)
    schema = _ARGUMENTS.search((node.text("op_schema") or "")[:4000])
    if op is None or op == "unknown" or schema is None:
        return None
    names = [a.split("=")[0].strip().rpartition(" ")[2] for a in schema[1].split(",")]
    value = dict(zip(names, node.inputs, strict=False))
    kinds = dict(zip(names, node.input_types, strict=False))
    sent = next((n for n in names if n.startswith("input") and "split" not in n), None)
    got = next((n for n in names if n.startswith("output") and "split" not in n), None)
    both = next((n for n in ("tensors", "tensor") if n in value), None)
    sent, got = sent or both, got or both
    in_splits, cut_in = _splits(value.get("input_split_sizes"), None)
    out_splits, cut_out = _splits(value.get("output_split_sizes"), None)
    in_list = tensors(value.get(sent)) if sent else []
    out_list = tensors(value.get(got)) if got else []
    if op == "barrier":  # its tensor only says on which device
        in_list, out_list = [], []
    dtype = _dtype([kinds.get(sent)]) if in_list else None
    place = next(
        (p for n in ("root_rank", "dst", "src") if (p := integer(value.get(n))) is not None), None
    )
    return Call(
        op,
        dtype,
        _bytes(None, None, in_list),
        _bytes(None, None, out_list),
        in_splits,
        out_splits,
        cut_in + cut_out,
        None,
        place if op in ROOTED or op in P2P else None,
        None,
        None,
        None,
        len(in_splits or out_splits or ()) or None,
        None,
        None,
    )
