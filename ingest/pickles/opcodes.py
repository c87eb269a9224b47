"""The opcodes of pickle protocols 0 to 5, carried out on the machine of `pickle_machine`."""

from __future__ import annotations

import codecs
import struct
from collections.abc import Callable
from typing import Any

from .machine import Cut, Machine
from .safe_globals import Refused

MAX_MARKS = 100
MAX_INT_BYTES = 1024

_SHORT_INT = struct.Struct("<H")
_INT = struct.Struct("<i")
_SIZE = struct.Struct("<I")
_LONG_SIZE = struct.Struct("<Q")
_DOUBLE = struct.Struct(">d")


def _mark(m: Machine) -> None:
    m.marks.append(len(m.stack))
    if len(m.marks) > MAX_MARKS:
        raise Refused(f"is nested more than {MAX_MARKS} deep")


def _int_line(m: Machine) -> None:
    raw = m.line()
    if raw in (b"00", b"01"):
        m.stack.append(raw == b"01")
        return
    raw = raw.removesuffix(b"L")
    if len(raw) > 2 * MAX_INT_BYTES:
        raise Refused("has an integer that is too long")
    m.stack.append(int(raw))


def _long(m: Machine, size: struct.Struct) -> None:
    n = size.unpack(m.take(size.size))[0]
    if not 0 <= n <= MAX_INT_BYTES:
        raise Refused(f"has an integer of {n} bytes")
    m.stack.append(m.integer(m.take(n)))


def _tuple(m: Machine, n: int) -> None:
    if len(m.stack) < n:
        raise IndexError
    made = tuple(m.stack[-n:])
    m.stack[-n:] = [made]
    m.room -= 48 + 8 * n


def _tuple_of_mark(m: Machine) -> None:
    made = tuple(m.since_mark())
    m.room -= 48 + 8 * len(made)
    m.stack.append(made)


def _new(m: Machine, value: Any, bytes_: int) -> None:
    m.stack.append(value)
    m.room -= bytes_


def _append(m: Machine) -> None:
    value = m.stack.pop()
    m.top(list).append(value)
    m.room -= 9


def _appends(m: Machine) -> None:
    values = m.since_mark()
    m.top(list).extend(values)
    m.room -= 9 * len(values)


def _set_item(m: Machine) -> None:
    value = m.stack.pop()
    key = m.stack.pop()
    m.put_all(m.top(dict), ((key, value),))


def _pairs(m: Machine) -> zip:
    values = m.since_mark()
    if len(values) % 2:
        raise Refused("has a key without a value")
    return zip(values[::2], values[1::2], strict=True)


def _set_items(m: Machine) -> None:
    pairs = _pairs(m)
    m.put_all(m.top(dict), pairs)


def _dict(m: Machine) -> None:
    made: dict = {}
    m.put_all(made, _pairs(m))
    _new(m, made, 64)


def _add_items(m: Machine) -> None:
    values = m.since_mark()
    m.put_members(m.top(set), values)


def _frozenset(m: Machine) -> None:
    made: set = set()
    m.put_members(made, m.since_mark())
    m.stack.append(m.frozen(made))


def _list(m: Machine) -> None:
    values = m.since_mark()
    _new(m, values, 88)


def _pop(m: Machine) -> None:
    if m.marks and m.marks[-1] == len(m.stack):
        m.marks.pop()
    else:
        m.stack.pop()


def _py2_text(m: Machine) -> None:
    raw = m.line()
    if len(raw) < 2 or raw[:1] != raw[-1:] or raw[:1] not in (b"'", b'"'):
        raise Refused("has a text without quotes")
    m.stack.append(m.text(codecs.escape_decode(raw[1:-1])[0]))  # type: ignore[arg-type]


def _unicode_line(m: Machine) -> None:
    found = m.line().decode("raw-unicode-escape", "replace")
    m.stack.append(m.text(found.encode("utf-8", "replace")))


def _global(m: Machine) -> None:
    module = m.line().decode("utf-8", "replace")
    m.stack.append(m.find(module, m.line().decode("utf-8", "replace")))


def _stack_global(m: Machine) -> None:
    name = m.stack.pop()
    m.stack.append(m.find(m.stack.pop(), name))


def _inst(m: Machine) -> None:
    module = m.line().decode("utf-8", "replace")
    what = m.find(module, m.line().decode("utf-8", "replace"))
    m.call(what, tuple(m.since_mark()))


def _obj(m: Machine) -> None:
    what, *args = m.since_mark()
    m.call(what, tuple(args))


def _reduce(m: Machine) -> None:
    args = m.stack.pop()
    m.call(m.stack.pop(), args)


def _new_obj_ex(m: Machine) -> None:
    named = m.stack.pop()
    if type(named) is not dict or named:
        raise Refused("makes something with named arguments")
    _reduce(m)


def _persistent(m: Machine) -> None:
    if m.tensors is None:
        raise Refused("refers to something outside itself")
    m.stack.append(m.tensors.storage(m.stack.pop()))


def _protocol(m: Machine) -> None:
    number = m.take(1)[0]
    if number > 5:
        raise Refused(f"is of protocol {number}, which is not known")


def _frame(m: Machine) -> None:
    if _LONG_SIZE.unpack(m.take(8))[0] > len(m.data) - m.pos:
        raise Cut


def _bytes(m: Machine, raw: bytes) -> None:
    _new(m, raw, 33 + len(raw))


def _refuse(what: str) -> Any:
    def handler(m: Machine) -> None:
        raise Refused(what)

    return handler


def _extension(size: int) -> Any:
    def handler(m: Machine) -> None:
        code = int.from_bytes(m.take(size), "little")
        raise Refused(f"asks for extension {code}, which is not read")

    return handler


HANDLERS: dict[int, Callable[[Machine], Any]] = {
    ord("("): _mark,
    ord("0"): _pop,
    ord("1"): lambda m: m.since_mark(),
    ord("2"): lambda m: m.stack.append(m.stack[-1]),
    ord("N"): lambda m: m.stack.append(None),
    0x88: lambda m: m.stack.append(True),
    0x89: lambda m: m.stack.append(False),
    ord("I"): _int_line,
    ord("L"): _int_line,
    ord("J"): lambda m: m.stack.append(_INT.unpack(m.take(4))[0]),
    ord("K"): lambda m: m.stack.append(m.take(1)[0]),
    ord("M"): lambda m: m.stack.append(_SHORT_INT.unpack(m.take(2))[0]),
    0x8A: lambda m: m.stack.append(m.integer(m.take(m.take(1)[0]))),
    0x8B: lambda m: _long(m, _INT),
    ord("F"): lambda m: m.stack.append(float(m.line())),
    ord("G"): lambda m: m.stack.append(_DOUBLE.unpack(m.take(8))[0]),
    ord("S"): _py2_text,
    ord("T"): lambda m: m.stack.append(m.text(m.sized(_SIZE))),
    ord("U"): lambda m: m.stack.append(m.text(m.take(m.take(1)[0]))),
    ord("V"): _unicode_line,
    ord("X"): lambda m: m.stack.append(m.text(m.sized(_SIZE))),
    0x8C: lambda m: m.stack.append(m.text(m.take(m.take(1)[0]))),
    0x8D: lambda m: m.stack.append(m.text(m.sized(_LONG_SIZE))),
    ord("B"): lambda m: _bytes(m, m.sized(_SIZE)),
    ord("C"): lambda m: _bytes(m, m.take(m.take(1)[0])),
    0x8E: lambda m: _bytes(m, m.sized(_LONG_SIZE)),
    0x96: lambda m: _bytes(m, m.sized(_LONG_SIZE)),
    ord("]"): lambda m: _new(m, [], 56),
    ord("l"): _list,
    ord("a"): _append,
    ord("e"): _appends,
    ord(")"): lambda m: m.stack.append(()),
    ord("t"): _tuple_of_mark,
    0x85: lambda m: _tuple(m, 1),
    0x86: lambda m: _tuple(m, 2),
    0x87: lambda m: _tuple(m, 3),
    ord("}"): lambda m: _new(m, {}, 64),
    ord("d"): _dict,
    ord("s"): _set_item,
    ord("u"): _set_items,
    0x8F: lambda m: _new(m, set(), 216),
    0x90: _add_items,
    0x91: _frozenset,
    ord("p"): lambda m: m.note(_index(m.line())),
    ord("q"): lambda m: m.note(m.take(1)[0]),
    ord("r"): lambda m: m.note(_SIZE.unpack(m.take(4))[0]),
    0x94: lambda m: m.note(len(m.memo)),
    ord("g"): lambda m: m.recall(_index(m.line())),
    ord("h"): lambda m: m.recall(m.take(1)[0]),
    ord("j"): lambda m: m.recall(_SIZE.unpack(m.take(4))[0]),
    ord("c"): _global,
    0x93: _stack_global,
    ord("R"): _reduce,
    ord("b"): lambda m: m.build(),
    ord("i"): _inst,
    ord("o"): _obj,
    0x81: _reduce,
    0x92: _new_obj_ex,
    ord("P"): _refuse("refers to something outside itself"),
    ord("Q"): _persistent,
    0x80: _protocol,
    0x95: _frame,
    0x82: _extension(1),
    0x83: _extension(2),
    0x84: _extension(4),
    0x97: _refuse("keeps a buffer outside itself"),
    0x98: _refuse("keeps a buffer outside itself"),
}


def _index(raw: bytes) -> int:
    if len(raw) > 18 or not raw.isdigit():
        raise Refused("notes a value under something that is no number")
    return int(raw)
