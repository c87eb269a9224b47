"""What the globals that a pickle may name stand for: inert makers of plain values, no imports."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Refused(Exception):
    """A maker was given what it does not take; the message ends a sentence about the pickle."""


class Maker(NamedTuple):
    """Stands for a class or function of that name: called with a pickle's arguments, which are
    anybody's. It only builds plain values."""

    name: str
    make: Callable[..., Any]


class Element:
    """A NumPy element type while it is being read: its byte order comes in a later opcode."""

    __slots__ = ("dtype",)

    def __init__(self, dtype: np.dtype):
        self.dtype = dtype


class Unbuilt:
    """A NumPy array whose shape and bytes come in a later opcode; `places`: where it is noted."""

    __slots__ = ("places",)

    def __init__(self) -> None:
        self.places: list[int] = []


_ELEMENT = re.compile(r"[<>|=]?(\?|b1|i[1248]|u[1248]|f[248]|c8|c16)")
MAX_DIMS = 32


def _dict(name: str) -> Maker:
    def make(*args: Any) -> dict:
        if not args:
            return {}
        if len(args) == 1 and type(args[0]) is dict:
            return args[0]
        if len(args) == 1 and type(args[0]) is list:
            # Python 2 wrote an OrderedDict as a list of pairs; the reader checks the keys.
            pairs = args[0]
            if all(type(p) in (list, tuple) and len(p) == 2 for p in pairs):
                return Pairs((p[0], p[1]) for p in pairs)  # type: ignore[return-value]
        raise Refused(f"gives {name} something else than a dictionary")

    return Maker(name, make)


class Pairs(list):
    """Keys and values that are to become a dictionary, once the reader has checked the keys."""


class Members(list):
    """Values that are to become a set (`frozen`: a frozenset), once the reader has checked them."""

    frozen = False


def _defaultdict(factory: Any = None) -> dict:
    if factory is not None and not (isinstance(factory, Maker) and factory.name in _FACTORIES):
        raise Refused("gives collections.defaultdict a factory that is no plain type")
    return {}


def _deque(values: Any = (), maxlen: Any = None) -> list:
    if type(values) not in (list, tuple):
        raise Refused("gives collections.deque something else than a list")
    return list(values)


def _members(frozen: bool) -> Callable[..., Any]:
    def make(values: Any = ()) -> Members:
        if type(values) not in (list, tuple):
            raise Refused("gives a set something else than a list")
        made = Members(values)
        made.frozen = frozen
        return made

    return make


def _encode(text: Any, encoding: Any = "latin1") -> bytes:
    if type(text) is not str or encoding not in ("latin1", "latin-1", "iso-8859-1"):
        raise Refused("asks _codecs.encode for something else than bytes as Latin-1")
    return text.encode("latin-1")


def _bytes(value: Any = b"", encoding: Any = "latin-1") -> bytes:
    if type(value) is bytes:
        return value
    if type(value) is str and encoding in ("latin1", "latin-1"):
        return value.encode("latin-1")
    if type(value) in (list, tuple) and all(type(v) is int and 0 <= v <= 255 for v in value):
        numbers: Any = value
        return bytes(numbers)
    raise Refused("gives bytes something else than bytes")


def _complex(real: Any = 0.0, imaginary: Any = 0.0) -> complex:
    if type(real) not in (int, float) or type(imaginary) not in (int, float):
        raise Refused("gives complex something else than two numbers")
    return complex(real, imaginary)


def _plain(kind: type) -> Callable[..., Any]:
    def make(*args: Any) -> Any:
        if args:
            raise Refused(f"calls {kind.__name__}, where only the type itself is expected")
        return kind()

    return make


def element(text: Any) -> np.dtype:
    """The NumPy type that a plain numeric code (`i8`, `<f4`, `?`) means. Raises Refused."""
    if type(text) is bytes:
        text = text.decode("latin-1")
    if type(text) is not str or not _ELEMENT.fullmatch(text):
        shown = repr(text)[:40] if type(text) is str else type(text).__name__
        raise Refused(f"asks for NumPy elements that are not plain numbers ({shown})")
    return np.dtype(text)


def _dtype(code: Any, align: Any = False, copy: Any = False) -> Element:
    return Element(element(code))


def set_byte_order(kind: Element, state: Any) -> None:
    """The state of a NumPy type: of it only the byte order matters for plain numbers."""
    if type(state) is not tuple or len(state) < 2 or any(v is not None for v in state[2:5]):
        raise Refused("describes a NumPy element type that is no plain number")
    order = state[1].decode("latin-1") if type(state[1]) is bytes else state[1]
    if order not in ("<", ">", "|", "="):
        raise Refused("describes a NumPy element type of an unknown byte order")
    if order in ("<", ">"):
        kind.dtype = kind.dtype.newbyteorder(">" if order == ">" else "<")


def _reconstruct(kind: Any = None, shape: Any = None, code: Any = None) -> Unbuilt:
    if not isinstance(kind, Maker) or kind.name != "numpy.ndarray":
        raise Refused("asks for a NumPy array of another class")
    return Unbuilt()


def array_of(state: Any) -> np.ndarray:
    """The array that the state of an unbuilt one describes, read-only. Raises Refused."""
    if type(state) is not tuple or len(state) not in (4, 5):
        raise Refused("describes a NumPy array in an unknown way")
    shape, kind, fortran, raw = state[-4:]
    return filled(raw, kind, shape, "F" if fortran is True else "C")


def filled(raw: Any, kind: Any, shape: Any, order: Any) -> np.ndarray:
    """Raw bytes as a read-only array; the shape must be what the bytes hold. Raises Refused."""
    if type(raw) is not bytes or not isinstance(kind, Element) or order not in ("C", "F"):
        raise Refused("describes a NumPy array that is not one of plain numbers")
    if type(shape) is int:
        shape = (shape,)
    if type(shape) is not tuple or len(shape) > MAX_DIMS:
        raise Refused("describes a NumPy array of an impossible shape")
    n = 1
    for size in shape:
        if type(size) is not int or not 0 <= size < 1 << 40:
            raise Refused("describes a NumPy array of an impossible shape")
        n *= size
    if n * kind.dtype.itemsize != len(raw):
        raise Refused("describes a NumPy array that is not as large as its bytes")
    found = np.frombuffer(raw, kind.dtype)
    if kind.dtype == np.bool_:
        found = np.frombuffer(raw, np.uint8) != 0
    elif not kind.dtype.isnative:
        found = found.astype(kind.dtype.newbyteorder("="))
    found = found.reshape(shape, order=order)
    found.flags.writeable = False
    return found


def _scalar(kind: Any = None, raw: Any = None) -> Any:
    """A NumPy scalar becomes the Python number it is."""
    return filled(raw, kind, (1,), "C")[0].item()


def _frombuffer(raw: Any = None, kind: Any = None, shape: Any = None, order: Any = "C") -> Any:
    return filled(raw, kind, shape, order)


_NUMPY = {
    "scalar": ("numpy.core.multiarray", "numpy._core.multiarray"),
    "_reconstruct": ("numpy.core.multiarray", "numpy._core.multiarray"),
    "_frombuffer": ("numpy.core.numeric", "numpy._core.numeric"),
}
_BUILTINS: dict[str, Callable[..., Any]] = {
    "set": _members(False),
    "frozenset": _members(True),
    "bytes": _bytes,
    "bytearray": _bytes,
    "complex": _complex,
    "list": _plain(list),
    "dict": _plain(dict),
    "tuple": _plain(tuple),
    "int": _plain(int),
    "float": _plain(float),
    "bool": _plain(bool),
    "str": _plain(str),
}
_FACTORIES = frozenset(
    {f"builtins.{n}" for n in ("list", "dict", "set", "int", "float", "str", "bool", "tuple")}
    | {"collections.OrderedDict", "collections.Counter"}
)


def _table() -> dict[tuple[str, str], Maker]:
    found = {
        ("collections", "OrderedDict"): _dict("collections.OrderedDict"),
        ("collections", "Counter"): _dict("collections.Counter"),
        ("collections", "defaultdict"): Maker("collections.defaultdict", _defaultdict),
        ("collections", "deque"): Maker("collections.deque", _deque),
        ("_codecs", "encode"): Maker("_codecs.encode", _encode),
        ("numpy", "dtype"): Maker("numpy.dtype", _dtype),
        ("numpy", "ndarray"): Maker("numpy.ndarray", _plain(tuple)),
    }
    makers = {"scalar": _scalar, "_reconstruct": _reconstruct, "_frombuffer": _frombuffer}
    for name, modules in _NUMPY.items():
        for module in modules:
            found[(module, name)] = Maker(f"{module}.{name}", makers[name])
    for name, make in _BUILTINS.items():
        for module in ("builtins", "__builtin__"):
            found[(module, name)] = Maker(f"builtins.{name}", make)
    # What the older protocols call int and str.
    found[("__builtin__", "long")] = found[("builtins", "int")]
    found[("__builtin__", "unicode")] = found[("builtins", "str")]
    return found


MAKERS: dict[tuple[str, str], Maker] = _table()
"""By module and name as the pickle spells them. What is not here is refused by name."""
