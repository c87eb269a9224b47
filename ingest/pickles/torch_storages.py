"""The zip form of `torch.save`: its members as mapped bytes, its storages as tensors' arrays."""

from __future__ import annotations

import mmap
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..errors import Damaged, UnusableInput
from ..values import printable
from . import safe_pickle
from .safe_globals import MAX_DIMS, Maker, Refused
from .zips import ZIP

MAX_CONVERTED_BYTES = 512 << 20
"""What storages that cannot be used as they stand (bfloat16, bool, the other byte order) may take
in memory together."""

_DTYPES: dict[str, str] = {
    "float16": "f2", "float32": "f4", "float64": "f8", "bfloat16": "u2", "bool": "u1",
    "int8": "i1", "int16": "i2", "int32": "i4", "int64": "i8",
    "uint8": "u1", "uint16": "u2", "uint32": "u4", "uint64": "u8",
    "complex64": "c8", "complex128": "c16",
}  # fmt: skip
"""By PyTorch's name: how an element is stored."""

_STORAGES: dict[str, str] = {
    "HalfStorage": "float16", "FloatStorage": "float32", "DoubleStorage": "float64",
    "BFloat16Storage": "bfloat16", "BoolStorage": "bool", "CharStorage": "int8",
    "ShortStorage": "int16", "IntStorage": "int32", "LongStorage": "int64",
    "ByteStorage": "uint8", "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
}  # fmt: skip


class StorageType:
    """Stands for a class of storages; `dtype` is None for one of plain bytes."""

    __slots__ = ("dtype",)

    def __init__(self, dtype: str | None):
        self.dtype = dtype


class Storage:
    """A storage that a pickle refers to: the key of its member, its type and its elements."""

    __slots__ = ("dtype", "key", "n")

    def __init__(self, key: str, dtype: str | None, n: int):
        self.key, self.dtype, self.n = key, dtype, n


def load_zip(path: Path, name: str) -> Any:
    """The value in a local file of the zip form; `name` is what errors call it."""
    members = _Members(path, name)
    tensors = _Tensors(members)
    return safe_pickle.loads(bytes(members.read("data.pkl")), name=name, tensors=tensors)


class _Members:
    """The members of one file, stored as they are, found by their name without the folder."""

    def __init__(self, path: Path, name: str):
        self.name = name
        try:
            with open(path, "rb") as f:
                self._map = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
                f.seek(0)
                with zipfile.ZipFile(f) as z:
                    infos = z.infolist()
        except (OSError, ValueError, struct.error, NotImplementedError, zipfile.BadZipFile) as e:
            raise Damaged(f"a file of torch.save that cannot be read: {e}", path=name) from e
        self._infos: dict[str, zipfile.ZipInfo] = {}
        self._checked: dict[str, memoryview] = {}
        for info in infos:
            inner = info.filename.partition("/")[2]
            if inner in self._infos:
                raise UnusableInput("refused: two members of one name", path=name)
            self._infos[inner] = info
        if sum(i.file_size for i in infos) > len(self._map):
            raise UnusableInput("refused: its members are larger than itself", path=name)

    def read(self, inner: str) -> memoryview:
        """The bytes of a member, checked against their checksum once."""
        found = self._checked.get(inner)
        if found is None:
            found = self._checked[inner] = self._look(inner)
        return found

    def has(self, inner: str) -> bool:
        """Whether there is a member of that name."""
        return inner in self._infos

    def _look(self, inner: str) -> memoryview:
        info = self._infos.get(inner)
        shown = printable(inner, 100)
        if info is None:
            raise UnusableInput(f"has no member {shown}", path=self.name)
        at = info.header_offset
        if info.compress_type or info.flag_bits & 1 or info.compress_size != info.file_size:
            raise UnusableInput(
                f"refused: member {shown} is compressed or encrypted, which torch.save never does",
                path=self.name,
            )
        head = self._map[at : at + 30] if 0 <= at < len(self._map) else b""
        if len(head) < 30 or head[:4] != ZIP:
            raise Damaged(f"member {shown} is not where it should be", path=self.name)
        start = at + 30 + sum(struct.unpack("<HH", head[26:30]))
        data = memoryview(self._map)[start : start + info.file_size]
        if len(data) != info.file_size:
            raise Damaged(f"member {shown} is cut", path=self.name, offset=start)
        if zlib.crc32(data) != info.CRC:
            raise Damaged(f"member {shown} is damaged: its checksum is wrong", path=self.name,
                          offset=start)  # fmt: skip
        return data


class _Tensors:
    """What PyTorch's own globals stand for, with the storages of one file."""

    def __init__(self, members: _Members):
        self._members = members
        big = members.has("byteorder") and bytes(members.read("byteorder")).strip() == b"big"
        self._order: Literal["<", ">"] = ">" if big else "<"
        self._arrays: dict[tuple[str, str], np.ndarray] = {}
        self._room = MAX_CONVERTED_BYTES
        self._makers = {
            ("torch._utils", "_rebuild_tensor"): Maker("torch._utils._rebuild_tensor", self._old),
            ("torch._utils", "_rebuild_tensor_v2"): Maker(
                "torch._utils._rebuild_tensor_v2", self._rebuild
            ),
            ("torch._utils", "_rebuild_tensor_v3"): Maker(
                "torch._utils._rebuild_tensor_v3", self._rebuild_typed
            ),
            ("torch._utils", "_rebuild_parameter"): Maker(
                "torch._utils._rebuild_parameter", _parameter
            ),
            ("torch", "Size"): Maker("torch.Size", _size),
            ("torch", "device"): Maker("torch.device", _device),
        }

    def maker(self, module: str, name: str) -> Any:
        """What stands for a global of PyTorch; None for those that are not read."""
        if module == "torch" and name in _STORAGES:
            return StorageType(_STORAGES[name])
        if (module, name) in (("torch", "UntypedStorage"), ("torch.storage", "UntypedStorage")):
            return StorageType(None)
        if module == "torch" and name in _DTYPES:
            return f"torch.{name}"
        return self._makers.get((module, name))

    def storage(self, pid: Any) -> Storage:
        """The storage of a persistent id: ("storage", type, key, location, number of elements)."""
        if type(pid) is not tuple or len(pid) != 5 or type(pid[1]) is not StorageType:
            raise Refused("refers to something outside itself that is no storage")
        _, kind, key, _, n = pid
        if type(key) is not str or type(n) is not int or n < 0:
            raise Refused("refers to a storage without a name or size")
        itemsize = np.dtype(_DTYPES[kind.dtype]).itemsize if kind.dtype else 1
        if n * itemsize > len(self._member(key)):
            raise Refused(f"claims a storage of {n} elements, of which the file holds fewer")
        return Storage(key, kind.dtype, n)

    def _member(self, key: str) -> memoryview:
        return self._members.read(f"data/{key}")

    def _array(self, key: str, dtype: str) -> np.ndarray:
        """All elements of a storage, read-only."""
        found = self._arrays.get((key, dtype))
        if found is not None:
            return found
        stored = np.dtype(_DTYPES[dtype]).newbyteorder(self._order)
        raw = self._member(key)
        found = np.frombuffer(raw[: len(raw) // stored.itemsize * stored.itemsize], stored)
        if dtype in ("bfloat16", "bool") or not stored.isnative:
            self._room -= 4 * found.nbytes
            if self._room < 0:
                limit = MAX_CONVERTED_BYTES >> 20
                raise Refused(f"needs more than {limit} MiB for storages that must be converted")
            if dtype == "bfloat16":
                found = (found.astype(np.uint32) << 16).view(np.float32)
            elif dtype == "bool":
                found = found != 0
            else:
                found = found.astype(stored.newbyteorder("="))
            found.flags.writeable = False
        self._arrays[(key, dtype)] = found
        return found

    def _old(self, storage: Any, offset: Any, size: Any, stride: Any) -> np.ndarray:
        return self._rebuild(storage, offset, size, stride)

    def _rebuild(
        self, storage: Any, offset: Any, size: Any, stride: Any, *rest: Any, dtype: Any = None
    ) -> np.ndarray:
        kind = dtype or getattr(storage, "dtype", None)
        if type(storage) is not Storage or kind is None:
            raise Refused("makes a tensor of something that is no storage")
        numbers = (offset, *_size(size), *_size(stride))
        if len(size) != len(stride) or len(size) > MAX_DIMS or min(numbers) < 0:
            raise Refused("describes a tensor of an impossible shape")
        if type(offset) is not int or max(numbers) >= 1 << 40:
            raise Refused("describes a tensor of an impossible shape")
        elements = self._array(storage.key, kind)
        n = 1
        for d in size:
            n *= d
        last = offset + sum((d - 1) * s for d, s in zip(size, stride, strict=True))
        if n and (last >= len(elements) or n > len(elements)):
            raise Refused("describes a tensor that is larger than its storage")
        if not n:
            return np.zeros(size, elements.dtype)
        itemsize = elements.itemsize
        return np.lib.stride_tricks.as_strided(
            elements[offset:], size, [s * itemsize for s in stride], writeable=False
        )

    def _rebuild_typed(
        self,
        storage: Any,
        offset: Any,
        size: Any,
        stride: Any,
        requires_grad: Any,
        hooks: Any,
        dtype: Any,
        metadata: Any = None,
    ) -> np.ndarray:
        if type(dtype) is not str or dtype.removeprefix("torch.") not in _DTYPES:
            raise Refused("makes a tensor of an unknown element type")
        return self._rebuild(storage, offset, size, stride, dtype=dtype.removeprefix("torch."))


def _size(value: Any = ()) -> tuple[int, ...]:
    if type(value) not in (tuple, list) or any(type(v) is not int for v in value):
        raise Refused("gives a shape that is not made of integers")
    return tuple(value)


def _device(kind: Any = "cpu", index: Any = None) -> str:
    if type(kind) is not str or type(index) not in (int, type(None)):
        raise Refused("gives torch.device something else than a text and a number")
    return kind if index is None else f"{kind}:{index}"


def _parameter(data: Any, requires_grad: Any = None, hooks: Any = None) -> np.ndarray:
    if type(data) is not np.ndarray:
        raise Refused("makes a parameter of something that is no tensor")
    return data
