"""A node of a PyTorch execution trace, of whatever schema, as one record."""

from __future__ import annotations

from typing import NamedTuple

from ..values import integer

_OLD_ATTRS = ("rf_id", "fw_parent", "seq_id", "scope", "tid", "fw_tid", "op_schema")


class Node(NamedTuple):
    """One node; None where it does not say, or says something of another type.

    `inputs`, `outputs` are values as written, `input_types`, `output_types` the words for them.
    """

    id: int | None
    name: str
    parent: int | None
    inputs: list
    input_types: list
    outputs: list
    output_types: list
    attrs: dict[str, object]

    def number(self, attr: str) -> int | None:
        """An attribute that is an integer."""
        return integer(self.attrs.get(attr))

    def text(self, attr: str) -> str | None:
        """An attribute that is a text."""
        value = self.attrs.get(attr)
        return value if isinstance(value, str) else None


def node_of(raw: dict) -> Node:
    """The node in a JSON object.

    Schema 1.0.1 has flat members (`parent`, `inputs`, `input_types`, `rf_id`); from 1.0.2 on
    `ctrl_deps` is the parent, values and types are inside `inputs`, the rest is in `attrs`.
    """
    name = raw.get("name")
    inputs, input_types = _side(raw, "input")
    outputs, output_types = _side(raw, "output")
    listed = raw.get("attrs")
    attrs: dict[str, object]
    if isinstance(listed, list):
        attrs = {
            a["name"]: a.get("value")
            for a in listed
            if isinstance(a, dict) and isinstance(a.get("name"), str)
        }
    else:
        attrs = {k: raw[k] for k in _OLD_ATTRS if k in raw}
    parent = raw.get("ctrl_deps", raw.get("parent"))
    if isinstance(parent, list):
        parent = parent[0] if parent else None
    return Node(
        integer(raw.get("id")),
        name if isinstance(name, str) else "",
        integer(parent),
        inputs,
        input_types,
        outputs,
        output_types,
        attrs,
    )


def _side(raw: dict, side: str) -> tuple[list, list]:
    values = raw.get(f"{side}s")
    types = raw.get(f"{side}_types")
    if isinstance(values, dict):
        values, types = values.get("values"), values.get("types")
    return values if isinstance(values, list) else [], types if isinstance(types, list) else []


class Tensor(NamedTuple):
    """A tensor among a node's values."""

    id: int
    n_elements: int
    itemsize: int


MAX_VALUES = 1 << 16
"""Values of a node that are looked through for tensors."""


def tensors(values: object) -> list[Tensor]:
    """The tensors in a value or a (nested) list of values, in order.

    Each is written as [id, storage, offset, elements, bytes of an element, device].
    """
    out: list[Tensor] = []
    todo = [values]
    seen = 0
    while todo and seen < MAX_VALUES:
        value = todo.pop()
        seen += 1
        if type(value) is not list or not value:
            continue
        if len(value) >= 6 and type(value[5]) is str and type(value[0]) is int:
            ident, n, itemsize = integer(value[0]), integer(value[3]), integer(value[4])
            if ident is not None and n is not None and itemsize is not None:
                out.append(Tensor(ident, max(n, 0), max(itemsize, 0)))
            continue
        todo += [v for v in reversed(value[:MAX_VALUES]) if type(v) is list]
    return out
