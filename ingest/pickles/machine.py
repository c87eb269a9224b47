"""The state of one pickle being read: its position, stack, marks, memo, and their bounds."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from ..errors import Damaged, UnusableInput
from ..values import printable
from .safe_globals import (
    MAKERS,
    Element,
    Maker,
    Members,
    Pairs,
    Refused,
    Unbuilt,
    array_of,
    set_byte_order,
)

MAX_BUILT_BYTES = 384 << 20
"""About what the containers and texts of one pickle may take in memory."""

MAX_OPCODES = 8_000_000
MAX_LINE = 65536
MAX_SAME_HASH = 64
"""Keys of one dictionary that may share a hash: tuples of numbers can be made to collide."""

_PLAIN_KEYS = frozenset({str, bool, float, type(None), bytes})


class Tensors(Protocol):
    """What a file of tensors adds: makers of its own, and storages by their persistent id."""

    def maker(self, module: str, name: str) -> Any:
        """The value that stands for a global, None where it is not one of its own."""
        ...

    def storage(self, pid: Any) -> Any:
        """The storage of a persistent id. Raises Refused."""
        ...


class Cut(Exception):
    """The data ends inside an opcode."""


_NOTHING = object()


class Machine:
    """One pickle being read: its position, stack, marks and memo."""

    def __init__(self, data: bytes, start: int, name: str, tensors: Tensors | None):
        self.data = data
        self.name = name
        self.pos = self.start = start
        self.tensors = tensors
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: list[Any] = []
        self.room = MAX_BUILT_BYTES
        self.same_hash: dict[tuple[int, int], int] = {}
        self.kept: list[set] = []

    def run(self, handlers: dict[int, Callable[[Machine], Any]]) -> Any:
        """The value that is left at STOP. Raises UnusableInput, Damaged where the data ends."""
        data, end, at = self.data, len(self.data), self.pos
        try:
            for _ in range(MAX_OPCODES):
                at = self.pos
                if at >= end:
                    raise Cut
                op = data[at]
                self.pos = at + 1
                if op == 0x2E:
                    if self.marks or len(self.stack) != 1:
                        raise Refused("ends with values left over")
                    return self.stack.pop()
                handler = handlers.get(op)
                if handler is None:
                    raise Refused(f"has an unknown opcode ({op:#04x})")
                handler(self)
                if self.room < 0:
                    raise Refused(f"takes more than {MAX_BUILT_BYTES >> 20} MiB when it is built")
            raise Refused(f"has more than {MAX_OPCODES} opcodes")
        except Refused as e:
            raise UnusableInput(f"refused: a pickle that {e}", path=self.name, offset=at) from None
        except Cut:
            raise Damaged("a pickle that is cut", path=self.name, offset=at) from None
        except (IndexError, KeyError, TypeError, ValueError, OverflowError, struct.error) as e:
            what = f"a damaged pickle ({type(e).__name__} in opcode {data[at]:#04x})"
            raise UnusableInput(what, path=self.name, offset=at) from None

    def close_open(self) -> Any:
        """What a pickle that is cut holds so far: what lists and dictionaries that are still open
        have got is put into them. Raises Refused where the outermost value is no such container.
        """
        while self.marks:
            values = self.since_mark()
            into = self.stack[-1] if self.stack else None
            if type(into) is list:
                into.extend(values)
            elif type(into) is dict:
                self.put_all(into, zip(values[::2], values[1::2], strict=False))
            else:
                raise Refused("is cut where nothing of it can be used")
        if not self.stack or type(self.stack[0]) not in (list, dict):
            raise Refused("is cut where nothing of it can be used")
        return self.stack[0]

    def take(self, n: int) -> bytes:
        """The next n bytes."""
        at = self.pos
        if n > len(self.data) - at:
            raise Cut
        self.pos = at + n
        return self.data[at : at + n]

    def line(self) -> bytes:
        """The rest of the line, without its end."""
        at = self.pos
        end = self.data.find(b"\n", at, at + MAX_LINE)
        if end < 0:
            if len(self.data) - at < MAX_LINE:
                raise Cut
            raise Refused("has a line that is too long")
        self.pos = end + 1
        return self.data[at:end]

    def since_mark(self) -> list:
        """The values above the last mark, taken off the stack."""
        at = self.marks.pop()
        found = self.stack[at:]
        del self.stack[at:]
        return found

    def top(self, kind: type) -> Any:
        """The value on top, which must be of a kind."""
        value = self.stack[-1]
        if type(value) is not kind:
            raise Refused("fills a container that is none")
        return value

    def text(self, raw: bytes) -> str:
        """Bytes as text."""
        found = raw.decode("utf-8", "replace")
        self.room -= len(raw) if found.isascii() else 4 * len(found)
        return found

    def key(self, into: Any, key: Any) -> None:
        """Lets through what can be a key at no cost: plain values and small tuples of them."""
        kind = type(key)
        if kind in _PLAIN_KEYS:
            return
        if kind is int:
            if -(1 << 64) < key < (1 << 64):
                return
            raise Refused("has a key of more than 64 bits")
        if kind is not tuple:
            raise Refused("has a key that is neither a number nor a text")
        n, level = 0, [key]
        for _ in range(8):
            inner = []
            for part in level:
                n += len(part)
                if n > 1000:
                    raise Refused("has a key of too many parts")
                for v in part:
                    if type(v) is tuple:
                        inner.append(v)
                    else:
                        self.key(into, v)
            if not inner:
                break
            level = inner
        else:
            raise Refused("has a key that is nested too deep")
        same = (id(into), hash(key))
        count = self.same_hash[same] = self.same_hash.get(same, 0) + 1
        self.room -= 200
        if count > MAX_SAME_HASH:
            raise Refused("has keys made to collide")

    def put_all(self, into: dict, pairs: Iterable[tuple[Any, Any]]) -> None:
        """Sets items of a dictionary."""
        for key, value in pairs:
            if type(key) is not str:
                self.key(into, key)
            into[key] = value
            self.room -= 100

    def put_members(self, into: set, values: list) -> None:
        """Adds members to a set."""
        for value in values:
            self.key(into, value)
            into.add(value)
            self.room -= 60

    def frozen(self, members: set) -> frozenset:
        """The members as a frozenset. The set itself is kept: `same_hash` knows it by its id."""
        self.kept.append(members)
        self.room -= 216 + 60 * len(members)
        return frozenset(members)

    def note(self, at: int) -> None:
        """Notes the value on top in the memo; no index can be above the opcodes so far."""
        value = self.stack[-1]
        memo = self.memo
        if at == len(memo):
            memo.append(value)
        elif at < len(memo):
            memo[at] = value
        else:
            if at > self.pos - self.start:
                raise Refused(f"notes its value number {at}, of which it cannot have so many")
            memo.extend([_NOTHING] * (at - len(memo)))
            memo.append(value)
        if type(value) is Unbuilt:
            value.places.append(at)

    def recall(self, at: int) -> None:
        """Puts a value of the memo on the stack."""
        value = self.memo[at]
        if value is _NOTHING:
            raise Refused("uses a value that it has not noted")
        self.stack.append(value)

    def find(self, module: Any, name: Any) -> Any:
        """What stands for a global. Raises Refused, with its name, for all that is not known."""
        if type(module) is not str or type(name) is not str:
            raise Refused("asks for a global without a name")
        found: Any = MAKERS.get((module, name))
        if found is None and self.tensors is not None:
            found = self.tensors.maker(module, name)
        if found is None:
            raise Refused(f"asks for {printable(f'{module}.{name}', 200)}, which is not read")
        return found

    def call(self, what: Any, args: Any) -> None:
        """Puts what a maker makes of arguments on the stack."""
        if not isinstance(what, Maker):
            raise Refused("calls something that is no known type")
        if type(args) is not tuple or len(args) > 20:
            raise Refused(f"calls {what.name} with arguments of no use")
        try:
            made = what.make(*args)
        except TypeError:
            raise Refused(f"calls {what.name} with arguments of no use") from None
        self.room -= 100
        if type(made) is Pairs:
            pairs, made = made, {}
            self.put_all(made, pairs)
        elif type(made) is dict:
            self.room -= 100 * len(made)
        elif type(made) is Members:
            frozen, members = made.frozen, set()
            self.put_members(members, made)
            made = self.frozen(members) if frozen else members
        elif type(made) in (list, bytes):
            self.room -= 8 * len(made)
        self.stack.append(made)

    def build(self) -> None:
        """Gives the value below the top its state, which is on top."""
        state = self.stack.pop()
        what = self.stack[-1]
        if type(what) is Element:
            set_byte_order(what, state)
        elif type(what) is Unbuilt:
            made = self.stack[-1] = array_of(state)
            for at in what.places:
                if self.memo[at] is what:
                    self.memo[at] = made
        elif type(what) is not dict or type(state) is not dict:
            # (Attributes of an OrderedDict, as module states have, are no part of its content.)
            raise Refused("sets the state of something that has none")

    def integer(self, raw: bytes) -> int:
        """Bytes as a signed integer."""
        return int.from_bytes(raw, "little", signed=True)

    def sized(self, size: struct.Struct) -> bytes:
        """The bytes behind a length field."""
        return self.take(size.unpack(self.take(size.size))[0])
