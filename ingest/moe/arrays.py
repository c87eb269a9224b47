"""Arrays that a program saved under names: .npy, .npz, .pt and JSON, each checked for size."""

from __future__ import annotations

import math
import re
import zipfile
import zlib
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from ..errors import UnusableInput
from ..pickles.torchfile import is_torch_head
from ..pickles.zips import ZIP
from ..texts import whole
from ..values import integer
from .counted import MAX_EXPERTS

if TYPE_CHECKING:
    from ..sources import Source

NPY = b"\x93NUMPY"
PHYSICAL_TO_LOGICAL = ("physical_to_logical_map", "phy2log")
"""What programs call the map from physical to logical experts."""

MAX_BYTES = 1 << 28
"""Of one array, and of a whole JSON file."""

MAX_JSON_BYTES = 1 << 26
MAX_ELEMENTS = 1 << 26
MAX_ARRAYS = 4096
MAX_HEADER_BYTES = 4096
_HEADER = re.compile(
    rb"\{'descr': '([<>|=](?:b1|[iu][1248]|f[248]))', 'fortran_order': (True|False), "
    rb"'shape': \(((?:\d{1,12}L?(?:, ?|(?=\))))*)\),? ?\}\s*"
)


def load(source: Source, odd) -> Any:
    """What the file holds: an array (.npy), a dict of arrays (.npz), or what was saved (.pt, JSON).

    Raises UnusableInput where it is none of these, damaged, or too large.
    """
    head = source.head(8)
    if head.startswith(NPY):
        return npy(whole(source, odd, MAX_BYTES), source.name)
    if head.startswith(ZIP):
        with source.as_file() as path:
            found = _npz(path, source.name)
        if found is not None:
            return found
    if head.startswith((ZIP, b"\x80")):
        from ..pickles.torchfile import load as load_torch

        return load_torch(source)
    return from_json(whole(source, odd, MAX_JSON_BYTES), source.name)


def named(head: bytes, keys: tuple[str, ...]) -> set[str]:
    """Which of these names the first bytes of an .npz or of a file of torch.save have.

    In the pickle of the one a name is text with its length before it, in the other a member.
    """
    if not head.startswith(ZIP):
        return set()
    if is_torch_head(head):
        return {k for k in keys if b"X" + len(k).to_bytes(4, "little") + k.encode() in head}
    return {k for k in keys if k.encode() + b".npy" in head}


def from_json(data: bytes, name: str) -> Any:
    """JSON, or JSON lines as a list. Raises UnusableInput."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError, ValueError) as first:
        try:
            return msgspec.json.Decoder().decode_lines(data)
        except (msgspec.MsgspecError, RecursionError, ValueError):
            raise UnusableInput(f"not JSON to its end: {str(first)[:120]}", path=name) from first


def npy(data: bytes, name: str) -> np.ndarray:
    """The array of a .npy file: plain numbers only, and not one byte more than are there."""
    wide = data[6:7] != b"\1"
    begin = 12 if wide else 10
    end = begin + int.from_bytes(data[8:begin], "little")
    header = _HEADER.fullmatch(data, begin, end) if begin < end <= len(data) else None
    if header is None or end - begin > MAX_HEADER_BYTES:
        told = "a .npy without a header of plain numbers (integers, floats or booleans)"
        raise UnusableInput(told, path=name)
    dtype = np.dtype(header.group(1).decode())
    shape = tuple(int(n) for n in re.findall(rb"\d+", header.group(3)))
    n = math.prod(shape)
    if n * dtype.itemsize > len(data) - end:
        told = f"a .npy whose header says {n} elements; its {len(data) - end} bytes hold fewer"
        raise UnusableInput(told, path=name)
    array = np.frombuffer(data, dtype, n, end)
    return array.reshape(shape, order="F" if header.group(2) == b"True" else "C")


def _npz(path, name: str) -> dict[str, np.ndarray] | None:
    """The arrays of an .npz by name; None where the zip is something else."""
    try:
        with zipfile.ZipFile(path) as z:
            infos = z.infolist()
            if not infos or not all(i.filename.endswith(".npy") for i in infos):
                return None
            if len(infos) > MAX_ARRAYS:
                raise UnusableInput(f"more than {MAX_ARRAYS} arrays", path=name)
            found, left = {}, MAX_BYTES
            for info in infos:
                with z.open(info) as f:
                    data = f.read(left + 1)
                left -= len(data)
                if left < 0:
                    told = f"arrays of more than {MAX_BYTES >> 20} MiB"
                    raise UnusableInput(told, path=name)
                inner = info.filename.removesuffix(".npy")
                found[inner] = npy(data, f"{name}!{inner[:80]}")
            return found
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, zlib.error, EOFError, OSError,
            ValueError) as e:  # fmt: skip
        raise UnusableInput(f"a zip that cannot be read: {str(e)[:120]}", path=name) from e


def integers(value: Any, ndim: int) -> np.ndarray | None:
    """The value as an int64 array of so many dimensions, else None (ragged, another type)."""
    a = whole_numbers(value, ndim)
    return None if a is None else a.astype(np.int64, copy=False)


def whole_numbers(value: Any, ndim: int) -> np.ndarray | None:
    """The same of the type that it has: eight times the bytes may be too many at once."""
    a = numbers(value, ndim)
    if a is None or a.dtype.kind == "f":
        return None
    if a.dtype == np.uint64 and bool((a > (1 << 63) - 1).any()):
        return None
    return a


def numbers(value: Any, ndim: int) -> np.ndarray | None:
    """The value as an array of numbers (bool too) of so many dimensions, else None.

    None too for more than `MAX_ELEMENTS`: a tensor may say more than its file holds.
    """
    if isinstance(value, list | tuple):
        # Asked first: texts among the numbers would make an array as wide as the longest.
        if not _all_numbers(value, ndim):
            return None
        try:
            value = np.array(value)
        except (ValueError, OverflowError, TypeError, MemoryError):
            return None
    if not isinstance(value, np.ndarray) or value.ndim != ndim or value.dtype.kind not in "iufb":
        return None
    return value if value.size <= MAX_ELEMENTS else None


def _all_numbers(value: Any, ndim: int) -> bool:
    if not isinstance(value, list | tuple):
        return False
    if ndim == 1:
        return all(isinstance(v, int | float) for v in value)
    return all(_all_numbers(v, ndim - 1) for v in value)


def scalar(value: Any) -> int | None:
    """A whole number of 64 bits, also from an array of one element; else None."""
    if isinstance(value, np.ndarray) and value.size == 1 and value.dtype.kind in "iu":
        value = value.reshape(-1)[0]
    if isinstance(value, np.integer):
        value = int(value)
    return integer(value)


def first_scalar(values: dict, names: tuple[str, ...]) -> int | None:
    """The first of these that is a whole number; else None."""
    return next((v for n in names if (v := scalar(values.get(n))) is not None), None)


def first_map(values: dict, names: tuple[str, ...], ndim: int, odd) -> np.ndarray | None:
    """The first of these that is a map as `logical_map` takes it; else None."""
    return next(
        (m for n in names if (m := logical_map(values.get(n), ndim, odd)) is not None), None
    )


def logical_map(value: Any, ndim: int, odd) -> np.ndarray | None:
    """A map from physical to logical experts; what no expert can be is -1 in it, and told."""
    found = integers(value, ndim)
    if found is None:
        return None
    beyond = (found < -1) | (found >= MAX_EXPERTS)
    if beyond.any():
        told = "a map from physical to logical experts with ids that no expert can have; null"
        odd("map_damaged", told, count=int(beyond.sum()))
        found = np.where(beyond, -1, found)
    return found


def mapped(logical: np.ndarray | None, physical: np.ndarray) -> np.ndarray | None:
    """Logical experts of physical ones, -1 where the map does not reach; None without a map."""
    if logical is None or not len(logical):
        return None
    known = physical < len(logical)
    return np.where(known, logical[np.where(known, physical, 0)], -1)


def ranks_of(physical: np.ndarray, n_physical: int, n_ranks: int | None) -> np.ndarray | None:
    """The rank that holds each physical expert, where equally many are on each; else None."""
    if not n_ranks or n_ranks < 1 or n_physical < 1 or n_physical % n_ranks:
        return None
    return physical * n_ranks // n_physical
