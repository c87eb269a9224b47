"""What a user has said of a job that its traces do not; kept in the job's folder."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from .errors import WarehouseError
from .schema import Problem

FILE = "_settings.json"
"""Name in the job's folder; hive readers skip what begins with an underscore."""

MOST_BYTES = 4 << 20
"""A larger file is not read: it is an input like any other."""


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


def read(job_folder: Path) -> Settings:
    """The job's settings, empty where nobody set any. Raises WarehouseError for a damaged file."""
    path = job_folder / FILE
    try:
        with open(path, "rb") as f:
            text = f.read(MOST_BYTES + 1)
    except FileNotFoundError:
        return Settings()
    except OSError as e:
        raise WarehouseError(f"{path}: cannot be read: {e.strerror or e}") from e
    if len(text) > MOST_BYTES:
        raise WarehouseError(f"{path}: larger than {MOST_BYTES} bytes; remove it and set anew")
    try:
        return msgspec.json.decode(text, type=Settings)
    except (msgspec.DecodeError, msgspec.ValidationError) as e:
        raise WarehouseError(f"{path}: not settings ({e}); remove it and set anew") from e


def write(job_folder: Path, settings: Settings) -> None:
    """Replaces the job's settings, whole or not at all. Raises WarehouseError where it cannot."""
    path = job_folder / FILE
    try:
        handle, name = tempfile.mkstemp(dir=job_folder, prefix=f"{FILE}.")
        try:
            with os.fdopen(handle, "wb") as f:
                f.write(msgspec.json.format(msgspec.json.encode(settings), indent=1))
                f.flush()
                os.fsync(f.fileno())
            os.chmod(name, 0o644)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as e:
        raise WarehouseError(f"{path}: cannot be written: {e.strerror or e}") from e


def replaced(settings: Settings, **fields: Any) -> Settings:
    """The settings with some fields changed, the others as they are."""
    return msgspec.structs.replace(settings, **fields)


def digest(settings: Settings) -> str:
    """A text that is the same for the same settings; empty for none."""
    if settings == Settings():
        return ""
    return hashlib.sha256(msgspec.json.encode(settings)).hexdigest()[:16]


def kernel_rules(job_folder: Path) -> tuple[KernelRule, ...]:
    """What a user said of kernels; nothing where the settings are damaged, which is told apart."""
    try:
        return tuple(read(job_folder).kernels)
    except WarehouseError:
        return ()


def of_derived(job_folder: Path) -> tuple[Settings, str, list[Problem]]:
    """The settings that derived tables follow, a text that changes with them, and what was wrong.

    Damaged settings count as none; the text differs from that of none, so that what is derived
    then can say so.
    """
    try:
        said = read(job_folder)
    except WarehouseError as e:
        return Settings(), "damaged", [Problem("bad_settings", f"left aside: {e}")]
    return said, digest(replaced(said, kernels=[])), []
