"""What a user has said of a job that its traces do not; kept in the job's folder."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from . import store
from .errors import StoreBusy, StoreRefused, UsageError, WarehouseError
from .schema import Problem
from .store import Folder, Place, TooLarge

FILE = "_settings.json"
"""Name in the job's folder; hive readers skip what begins with an underscore."""

MOST_BYTES = 4 << 20
"""A larger file is not read: it is an input like any other."""

MOST_RULES = 1000
"""Of each kind; those after them are left out."""


class DimRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Communicators whose identity, name or description matches `pattern` are of `dim`."""

    pattern: str
    dim: str


class KernelRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Kernels whose name matches `pattern` are of `category`; comes before the built-in table."""

    pattern: str
    category: str


class Settings(msgspec.Struct, frozen=True):
    """All that a user said: rules (the first match wins) and parallel degrees."""

    dims: list[DimRule] = []
    degrees: dict[str, int] = {}
    """dim -> its degree, from the fastest-varying dimension to the slowest."""
    kernels: list[KernelRule] = []
    step_annotation: str = ""
    """Pattern of the annotations that are the steps, whatever else looks like steps."""


def read(job_folder: Place) -> Settings:
    """The job's settings as they stand, empty where nobody set any: to be changed and written.

    What is wrong in single rules `usable` tells. Raises WarehouseError for a damaged file.
    """
    folder = store.folder(job_folder)
    text = _text(folder)
    return Settings() if text is None else _decoded(folder.address(FILE), text)


def _text(folder: Folder) -> bytes | None:
    path = folder.address(FILE)
    try:
        return folder.read(FILE, MOST_BYTES)
    except FileNotFoundError:
        return None
    except TooLarge as e:
        told = f"{path}: larger than {MOST_BYTES} bytes; remove it and set anew"
        raise WarehouseError(told) from e
    except OSError as e:
        raise WarehouseError(f"{path}: cannot be read: {e.strerror or e}") from e


def _decoded(path: str, text: bytes) -> Settings:
    try:
        return msgspec.json.decode(text, type=Settings)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as e:
        raise WarehouseError(f"{path}: not settings ({e}); remove it and set anew") from e


def check_text(text: str, place: str) -> None:
    """Raises UsageError, beginning with `place`, for bytes of a command line that are no UTF-8.

    They come as lone surrogates, which no file of settings and no pattern can hold.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{place}: {text[:80]!r} is not UTF-8") from None


def write(job_folder: Place, settings: Settings) -> None:
    """Replaces the job's settings, whole or not at all.

    Raises WarehouseError where it cannot, UsageError for text that is not UTF-8.
    """
    for text in _texts(settings):
        check_text(text, "what a job is told")
    folder = store.folder(job_folder)
    path = folder.address(FILE)
    try:
        if folder.local is not None and not folder.local.is_dir():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        folder.put(FILE, msgspec.json.format(msgspec.json.encode(settings), indent=1))
    except OSError as e:
        raise WarehouseError(f"{path}: cannot be written: {e.strerror or e}") from e


def _texts(settings: Settings) -> Iterator[str]:
    yield settings.step_annotation
    yield from settings.degrees
    for rule in (*settings.dims, *settings.kernels):
        yield from msgspec.structs.astuple(rule)


def replaced(settings: Settings, **fields: Any) -> Settings:
    """The settings with some fields changed, the others as they are."""
    return msgspec.structs.replace(settings, **fields)


def digest(settings: Settings) -> str:
    """A text that is the same for the same settings; empty for none."""
    if settings == Settings():
        return ""
    return hashlib.sha256(msgspec.json.encode(settings)).hexdigest()[:16]


class Usable(NamedTuple):
    """What can be followed of a job's settings."""

    said: Settings
    problems: tuple[Problem, ...]
    """What was left out, and why; code `bad_settings`."""
    digest_derived: str
    """A text that changes with what derived tables follow, and with what is wrong."""


def usable(job_folder: Place) -> Usable:
    """The settings without what is wrong in them; none where they are damaged.

    Left out are rules that are none, those after `MOST_RULES` of a kind, and degrees of which any
    is below 1.
    """
    folder = store.folder(job_folder)
    try:
        text = _text(folder)
    except (StoreBusy, StoreRefused):
        raise  # what was said is there, and cannot be seen
    except WarehouseError as e:
        return _damaged(e, str(e).encode())
    return Usable(Settings(), (), "") if text is None else _usable(folder.address(FILE), text)


@lru_cache(maxsize=16)
def _usable(path: str, text: bytes) -> Usable:
    try:
        said = _decoded(path, text)
    except WarehouseError as e:
        return _damaged(e, text)
    wrong: list[str] = []
    for what, rules in (("dimensions", said.dims), ("kernels", said.kernels)):
        if len(rules) > MOST_RULES:
            wrong.append(f"{len(rules)} rules for {what}; only the first {MOST_RULES} are followed")
    degrees = said.degrees
    if bad := [f"{dim[:80]}={n}" for dim, n in degrees.items() if n < 1]:
        wrong.append(f"degrees left aside: {', '.join(bad[:3])}: a degree is 1 or more")
        degrees = {}
    rules, odd = _sound(said.kernels[:MOST_RULES])
    wrong += odd
    said = replaced(said, dims=said.dims[:MOST_RULES], degrees=degrees, kernels=rules)
    problems = tuple(Problem("bad_settings", f"{path}: {text}") for text in wrong)
    derived = _digest_of(text) if wrong else digest(replaced(said, kernels=[]))
    return Usable(said, problems, derived)


def _sound(rules: list[KernelRule]) -> tuple[list[KernelRule], list[str]]:
    from . import kernel_rules  # it is about these rules, and imports them

    sound, wrong = [], []
    for n, one in enumerate(rules, 1):
        try:
            sound.append(kernel_rules.rule(one.pattern, one.category, f"rule {n} for kernels"))
        except UsageError as e:
            wrong.append(f"left aside: {e}")
    if len(wrong) > MOST_TOLD:
        wrong[MOST_TOLD:] = [f"{len(wrong) - MOST_TOLD} more rules for kernels left aside"]
    return sound, wrong


MOST_TOLD = 20
"""Wrong rules that are told one by one."""


def _damaged(e: WarehouseError, text: bytes) -> Usable:
    return Usable(Settings(), (Problem("bad_settings", f"left aside: {e}"),), _digest_of(text))


def _digest_of(text: bytes) -> str:
    return f"wrong-{hashlib.sha256(text).hexdigest()[:16]}"
