"""Machine code of compiled functions in a file of the user's cache, called without the compiler.

Importing numba takes a second and compiling some more. Functions over arrays and integers that
allocate nothing and raise nothing need neither once they are compiled: llvmlite alone loads their
object code in milliseconds. Where there is none, `start` lets a process of its own make it.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import importlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from . import caches

FORMAT = 2
"""Of the file, and of how the code is called."""

MAX_BYTES = 16 << 20
STALE_S = 180.0
"""Nobody compiles for so long: who began was killed."""

KEPT_DAYS = 30
"""Files of other versions that nobody wrote for so long go when a new one is written."""

_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from retime.ingest.machine_code import make_named; make_named(sys.argv[2], sys.argv[3])"
)


class Function(NamedTuple):
    """A function of the compiled module: its name, argument types and result.

    Types are those of numpy (`i8`, `u1`; `f8` in arrays alone), for an array with its dimensions
    behind a colon (`i8:2`) and an `A` where it may have any strides (`u1:2A`). The result is an
    `i8`, or nothing at all.
    """

    name: str
    arguments: str
    returns: bool = True


class Code(NamedTuple):
    """Functions of one module that are compiled together, and the modules they depend on."""

    module: str
    functions: tuple[Function, ...]
    sources: tuple[str, ...]


_OF_C = ("memset", "memcpy", "memmove")
_NEVER_CALLED = ("NRT_MemInfo_call_dtor",)
"""What numba frees arrays with that have an owner: those given here have none."""

Functions = dict[str, Callable[..., Any]]

_loaded: dict[Code, Functions] = {}
_engines: list[Any] = []
_makers: dict[Code, subprocess.Popen | None] = {}


def plain() -> bool:
    """Whether functions are wanted as they are written, or checked: then nothing kept is used."""
    return any(
        os.environ.get(name, "0") not in ("", "0")
        for name in (
            "NUMBA_BOUNDSCHECK",
            "NUMBA_DISABLE_JIT",
            "NUMBA_DEBUG",
            "NUMBA_FULL_TRACEBACKS",
        )
    )


def is_loaded(code: Code) -> bool:
    """Whether this process has the functions, so that calling them costs nothing more."""
    return code in _loaded


def load(code: Code) -> Functions | None:
    """The functions by name, from this process or from the file that keeps them; else None."""
    if plain():
        return None
    found = _loaded.get(code)
    if found is None:
        with contextlib.suppress(OSError, RuntimeError, ValueError, ImportError):
            path = _path(code)
            if path.exists():
                found = _loaded[code] = _linked(code, _read(path))
    return found


def start(code: Code) -> bool:
    """Begins to make the code in a process of its own; whether it, or somebody else, is at it."""
    if plain():
        return False
    if code in _makers:
        return is_making(code)
    try:
        path = _path(code)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not caches.own(path.parent):
            return False
        if not _begin(path):
            _makers[code] = None
            return True
        try:
            _makers[code] = subprocess.Popen(
                [sys.executable, "-P", "-c", _START, json.dumps(sys.path), code.module, str(path)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # what it makes is for the next run, too
            )
        except BaseException:
            _making(path).unlink(missing_ok=True)
            raise
    except (OSError, RuntimeError, ImportError):
        return False
    return True


def is_making(code: Code) -> bool:
    """Whether it was begun here or found begun, and has not failed as far as is known."""
    if code not in _makers:
        return False
    maker = _makers[code]
    if maker is not None:
        return maker.poll() in (None, 0)
    try:
        return time.time() - _making(_path(code)).stat().st_mtime < STALE_S
    except (OSError, RuntimeError, ImportError):
        return False


def wait() -> bool:
    """Waits for code that is made elsewhere for this process; whether there was any to wait for."""
    waited = False
    for code, maker in _makers.items():
        while code not in _loaded and is_making(code) and not _path(code).exists():
            waited = True
            if maker is None:
                time.sleep(0.05)
            else:
                maker.wait()
    return waited


def make_named(module: str, path: str) -> None:
    """Makes the code that a module of that name declares beside it; see `make`."""
    package, _, name = module.rpartition(".")
    declared = importlib.import_module(f"{package}.{name}_code")
    try:
        make(declared.CODE, Path(path), getattr(declared, "check", None))
    finally:
        _making(Path(path)).unlink(missing_ok=True)


def make(
    code: Code, path: Path | None = None, check: Callable[[Functions], None] | None = None
) -> None:
    """Compiles the functions, lets `check` try them and keeps them.

    Raises OSError, and whatever numba and `check` raise.
    """
    path = _path(code) if path is None else path
    module = importlib.import_module(code.module)
    objects = [(f.name, *_compiled(getattr(module, f.name), f)) for f in code.functions]
    payload = b"".join(text for _, _, text in objects)
    head = {name: [symbol, len(text)] for name, symbol, text in objects}
    if check is not None:  # a call that ends the process leaves no file
        check(_linked(code, (head, payload)))
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as f:
        try:
            text = json.dumps(head).encode() + b"\n" + payload
            f.write(hashlib.sha256(text).hexdigest().encode() + b"\n" + text)
            f.close()
            os.replace(f.name, path)
        except BaseException:
            os.unlink(f.name)
            raise
    for other in path.parent.glob("code-*"):
        if other != path and time.time() - other.stat().st_mtime > KEPT_DAYS * 86_400:
            other.unlink(missing_ok=True)


def _compiled(function: Any, declared: Function) -> tuple[str, bytes]:
    """(symbol, object code) of a function that numba compiles, without its Python sides."""
    import numba
    from numba import types

    def typed(text: str) -> Any:
        name, dimensions, layout = _taken_apart(text)
        if name[0] == "f" and not dimensions:
            raise ValueError(f"{declared.name}: a number that is no integer is handed in an array")
        kind = {"u": "uint", "i": "int", "f": "float"}[name[0]]
        scalar = getattr(types, f"{kind}{8 * int(name[1:])}")
        return types.Array(scalar, dimensions, layout) if dimensions else scalar

    options = {**function.targetoptions, "_nrt": False}
    options |= {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    options.pop("nopython", None)
    bare = numba.njit(**options)(function.py_func)
    bare.compile(tuple(map(typed, declared.arguments.split())))
    (made,) = bare.overloads.values()
    library = made.library
    needed = {f.name for f in library._final_module.functions if f.is_declaration}
    needed = {n for n in needed if not n.startswith("llvm.")} - set(_OF_C) - set(_NEVER_CALLED)
    if needed:
        raise RuntimeError(f"{declared.name} needs what nothing kept has: {sorted(needed)}")
    return made.fndesc.llvm_func_name, library._get_compiled_object()


def _taken_apart(text: str) -> tuple[str, int, str]:
    """(type, dimensions, layout as numba calls it) of an argument of a `Function`."""
    name, _, rest = text.partition(":")
    return name, int(rest.removesuffix("A") or 0), "A" if rest.endswith("A") else "C"


def _path(code: Code) -> Path:
    """The file for this text, compiler and processor. Raises RuntimeError for who has no home."""
    import llvmlite
    import llvmlite.binding as llvm

    found = hashlib.sha256()
    for part in (
        FORMAT, code, numba_version(), llvmlite.__version__, llvm.get_default_triple(),
        llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten(),
        os.environ.get("NUMBA_CPU_NAME"), os.environ.get("NUMBA_CPU_FEATURES"),
        os.environ.get("NUMBA_OPT"),
    ):  # fmt: skip
        found.update(repr(part).encode() + b"\0")
    here = Path(__file__).resolve().parent
    for source in code.sources:
        found.update((here / source).read_bytes() + b"\0")
    name = code.module.rpartition(".")[2]
    return caches.folder() / f"code-{name}-{found.hexdigest()[:24]}"


def numba_version() -> bytes | str:
    """What tells numba's versions apart, without importing it: how code is called is its own.

    A file of numba says it in no time; looking through what is installed takes longer than to load
    the code.
    Raises ImportError where it is not installed.
    """
    found = importlib.util.find_spec("numba")
    if found is None or found.origin is None:
        raise ImportError("numba is not installed")
    with contextlib.suppress(OSError):
        return Path(found.origin).with_name("_version.py").read_bytes()
    from importlib.metadata import version

    return version("numba")


def _making(path: Path) -> Path:
    return path.with_name(path.name + ".making")


def _begin(path: Path) -> bool:
    """Whether it is this process's turn to make the file; of several, one makes it."""
    mark = _making(path)
    for _ in range(2):
        try:
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            return True
        except FileExistsError:
            with contextlib.suppress(FileNotFoundError):
                if time.time() - mark.stat().st_mtime < STALE_S:
                    return False
                mark.unlink()
    return False


_Kept = tuple[dict[str, Any], bytes]
"""Symbol and bytes of each function, and all their object code."""


def _read(path: Path) -> _Kept:
    """Head and object codes of a file that only this user can have written. Raises ValueError."""
    with open(path, "rb") as f:
        if not caches.own(f.fileno()) or not caches.own(path.parent):
            raise ValueError(f"{path}: others may write to it")
        text = f.read(MAX_BYTES)
    digest, _, text = text.partition(b"\n")
    if digest != hashlib.sha256(text).hexdigest().encode():
        raise ValueError(f"{path}: damaged")
    head, _, payload = text.partition(b"\n")
    return json.loads(head), payload


def _linked(code: Code, kept: _Kept) -> Functions:
    import llvmlite.binding as llvm

    head, payload = kept
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), jit=True
    )
    # LLVM takes what it cannot find for address 0.
    c = ctypes.CDLL(None) if os.name == "posix" else ctypes.cdll.msvcrt
    for name in (*_OF_C, *_NEVER_CALLED):
        symbol = c[name if name in _OF_C else "abort"]
        llvm.add_symbol(name, ctypes.cast(symbol, ctypes.c_void_p).value)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    _engines.append(engine)
    at = 0
    for _, size in head.values():
        engine.add_object_file(llvm.ObjectFileRef.from_data(payload[at : at + size]))
        at += size
    engine.finalize_object()
    found = {}
    for function in code.functions:
        address = engine.get_function_address(head[function.name][0])
        if not address:
            raise ValueError(f"no {function.name} in the file")
        found[function.name] = _caller(address, function)
    return found


def _caller(address: int, function: Function) -> Callable[..., int | None]:
    """A Python function that calls the code at an address in numba's own convention.

    (result, exception, arguments) -> status. An array is: its owner twice (none), items, bytes of
    an item, address, shape, strides. The interpreter is let go meanwhile.
    """
    import numpy as np

    kinds: list[tuple[Any, int, bool]] = []
    for text in function.arguments.split():
        name, dimensions, layout = _taken_apart(text)
        kinds.append((np.dtype(name), dimensions, layout == "C"))
    # No argument types are declared: each argument comes converted.
    jump = ctypes.CFUNCTYPE(ctypes.c_int32)(address)
    number, pointer = ctypes.c_int64.from_param, ctypes.c_void_p.from_param
    # Most arrays are those of the call before: to convert one takes longer than a short call.
    last: list[tuple[Any, tuple[Any, ...]]] = [(lambda: None, ())] * len(kinds)

    def converted(i: int, value: Any) -> tuple[Any, ...]:
        dtype, n, in_order = kinds[i]
        if value.dtype != dtype or value.ndim != n or (in_order and not value.flags.c_contiguous):
            raise TypeError(f"{function.name}: not an array of {dtype}, {n} dimensions")
        head = pointer(None), pointer(None), number(value.size), number(value.itemsize)
        shape = map(number, (*value.shape, *value.strides))
        found = *head, pointer(value.ctypes.data), *shape
        last[i] = weakref.ref(value), found
        return found

    def call(*arguments: Any) -> int | None:
        flat: list[Any] = []
        for i, ((_, n, _), value) in enumerate(zip(kinds, arguments, strict=True)):
            if not n:
                flat.append(number(int(value)))
                continue
            known, found = last[i]
            flat += found if known() is value else converted(i, value)
        result, error = ctypes.c_int64(), ctypes.c_void_p()
        status = jump(ctypes.byref(result), ctypes.byref(error), *flat)
        if status not in (0, -2):  # -2 says None
            raise RuntimeError(f"{function.name} ended with {status}")
        return result.value if function.returns else None

    return call
