"""Degrees of a job of recorded operations, from the meta-*.yaml beside its file."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from ..schema import Problem

SIZES = ("world_size", "dp_size", "pp_size")
MAX_META_BYTES = 64 << 10

_SIZE = re.compile(r"[1-9][0-9]{0,8}")


def read_meta(path: Path | None, problems: list[Problem]) -> tuple[dict[str, int], str]:
    """The `SIZES` that the meta file of this trace says, and that file's name.

    Whatever is in the file, the trace is read: what cannot be used of it is added to `problems`.
    """
    beside = None if path is None else _meta_path(Path(path))
    if beside is None or not beside.is_file():
        what = "no meta-*.yaml beside the file: the world size is not known"
        problems.append(Problem("no_meta", what, "info"))
        return {}, ""
    try:
        with beside.open("rb") as f:
            text = f.read(MAX_META_BYTES + 1)
        if len(text) > MAX_META_BYTES:
            raise ValueError(f"larger than {MAX_META_BYTES} bytes")
        # The base loader knows neither tags nor types: every scalar is a text.
        said = yaml.load(text.decode(), Loader=yaml.BaseLoader)
    except RecursionError:
        said = _unusable(beside.name, "nested too deeply", problems)
    except (yaml.YAMLError, ValueError, OSError) as e:
        said = _unusable(beside.name, str(e), problems)
    meta: dict[str, int] = {}
    for size in SIZES:
        value = said.get(size) if isinstance(said, dict) else None
        if isinstance(value, str) and _SIZE.fullmatch(value):
            meta[size] = int(value)
        elif value is not None:
            _unusable(
                beside.name, f"{size} is not a number of ranks: {str(value)[:40]!r}", problems
            )
    return meta, beside.name


def _unusable(name: str, why: str, problems: list[Problem]) -> None:
    problems.append(Problem("bad_meta", f"{name} is not readable: {why[:300]}"))


def _meta_path(path: Path) -> Path | None:
    if not path.name.startswith("trace-"):
        return None
    return path.with_name("meta-" + path.name.removeprefix("trace-")).with_suffix(".yaml")
