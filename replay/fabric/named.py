"""A fabric by name: a preset that comes with the package, or a file."""

from __future__ import annotations

import difflib
import os
from importlib import resources
from pathlib import Path

from ...ingest.errors import UsageError
from . import toml
from .description import Fabric

_PACKAGE = __name__.rpartition(".")[0]


def presets() -> tuple[str, ...]:
    """Names of the fabrics that come with the package, sorted."""
    folder = resources.files(_PACKAGE) / "presets"
    return tuple(sorted(f.name[:-5] for f in folder.iterdir() if f.name.endswith(".toml")))


def preset(name: str, gpus: int | None = None) -> Fabric:
    """A fabric that comes with the package, with as many hosts as `gpus` fill.

    Raises UsageError for an unknown name, with the nearest ones, and BadFabric for GPUs that do
    not fill its hosts.
    """
    known = presets()
    if name not in known:
        close = difflib.get_close_matches(name.lower(), known, 3, 0.4)
        near = [n for n in known if n not in close and name and name.lower() in n]
        hint = " or ".join(close + near) or ", ".join(known)
        raise UsageError(f"no fabric preset is called {name[:80]!r}: {hint} would work")
    text = (resources.files(_PACKAGE) / "presets" / f"{name}.toml").read_text("utf-8")
    return toml.parse(text, where=f"preset {name}", gpus=gpus)


def load(what: str | os.PathLike[str], gpus: int | None = None) -> Fabric:
    """A preset by its name, a TOML file by its path, or a file's text; `gpus` sets the hosts anew.

    Text is told by its line breaks, a path by its ending, its slashes or that it is there. Raises
    UsageError (BadFabric) in one sentence that says what would work.
    """
    if isinstance(what, str) and "\n" in what:
        return toml.parse(what, where="fabric", gpus=gpus)
    said = os.fspath(what)
    try:
        path = Path(said)
        is_file = not isinstance(what, str) or path.suffix == ".toml" or "/" in said
        is_file = is_file or (path.is_file() and said not in presets())
    except (OSError, ValueError):
        is_file = False
    if not is_file:
        try:
            return preset(said, gpus)
        except UsageError as e:
            if said in presets():
                raise
            raise UsageError(f"{e}; a file's name ends in .toml") from e
    return toml.parse(_text(path), where=said[:200], gpus=gpus)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(toml.MAX_BYTES + 1)
        if len(data) > toml.MAX_BYTES:
            raise UsageError(f"{path}: a fabric file has at most {toml.MAX_BYTES} bytes")
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise UsageError(f"{path}: not text in UTF-8 (byte {e.start})") from e
    except (OSError, ValueError) as e:
        reason = getattr(e, "strerror", None) or "not a path"
        raise UsageError(f"{path}: {reason}; presets are {', '.join(presets())}") from e
