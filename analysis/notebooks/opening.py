"""Gives a user the notebooks: copies that are theirs to change, a page of results, a browser."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ...ingest.errors import UsageError
from .. import outfile
from . import build, source

if TYPE_CHECKING:
    from ..doors import Warehouse

INSTALL = "pip install marimo"


class Point(NamedTuple):
    """What copies are pointed at."""

    warehouse: str
    job: str | None
    """None for the notebook about all jobs."""
    baseline: str | None = None

    def settings(self) -> dict[str, str | None]:
        """The settings of a notebook, by name."""
        return {"WAREHOUSE": self.warehouse, "JOB": self.job, "BASELINE": self.baseline}


def point(of: Warehouse, names: Sequence[str], job: str | None, against: str | None) -> Point:
    """Where notebooks of these names look. Raises WarehouseError for a job that is not there."""
    where = of.url if "://" in of.url else os.path.abspath(of.url)
    if list(names) == ["fleet"]:
        if not of.job_ids():
            of.job()
        return Point(where, None)
    return Point(where, of.job(job).id, of.job(against).id if against else None)


def chosen(name: str | None, names: Sequence[str] = source.NAMES) -> list[str]:
    """The notebook of that name, or all."""
    return list(names) if name is None else [source.named(name)]


def write(
    names: Sequence[str],
    folder: Path,
    at: Point,
    *,
    suffixes: Sequence[str] = (".py", ".ipynb"),
    force: bool = False,
    keep: bool = False,
) -> tuple[list[Path], list[Path]]:
    """Copies of notebooks, pointed at a warehouse and job: (all of them, those left as they were).

    A file that is there already is written anew with `force`, left as it is with `keep` (or where
    it is the same), and otherwise the reason for a UsageError, before anything is written.
    """
    texts = {
        folder / file: text
        for name in names
        for file, text in build.files(
            source.pointed(source.cells(name), at.settings()), name
        ).items()
        if file.endswith(tuple(suffixes))
    }
    for path in texts:
        outfile.checked(path)
    there = [p for p, text in texts.items() if p.exists() and _text(p) != text]
    if there and not (force or keep):
        more = f" and {len(there) - 1} more" if len(there) > 1 else ""
        raise UsageError(f"{there[0]}{more} there already: --force writes anew, --to elsewhere")
    outfile.folder(folder)
    for path, text in texts.items():
        if force or path not in there:
            with outfile.writing(path) as out:
                out.write(text.encode())
    return list(texts), [] if force else there


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def write_html(
    names: Sequence[str], folder: Path, at: Point, force: bool = False
) -> tuple[list[Path], list[str]]:
    """Runs notebooks and writes what they show: (pages, what went wrong).

    Needs neither marimo nor Jupyter. Raises UsageError for a page that is there already.
    """
    from . import page

    paths = {name: folder / f"{_safe(at.job or 'all')}-{name}.html" for name in names}
    if not force and (there := [p for p in paths.values() if p.exists()]):
        raise UsageError(f"{there[0]} is there already: --force writes it anew, --to elsewhere")
    wrong = []
    for path in paths.values():
        outfile.checked(path)
    for name, path in paths.items():
        shown = page.run(source.pointed(source.cells(name), at.settings()))
        wrong += [f"{name}, {error}" for error in page.errors(shown)]
        with outfile.writing(path) as out:
            out.write(page.page(shown, source.title(name)).encode())
    return list(paths.values()), wrong


def tool(jupyter: bool = False) -> str:
    """What opens notebooks here: marimo, jupyterlab or notebook (its module).

    Raises UsageError, with the command that installs it, where there is none.
    """
    for module in ("jupyterlab", "notebook") if jupyter else ("marimo", "jupyterlab", "notebook"):
        if find_spec(module):
            return module
    command = "pip install jupyterlab" if jupyter else INSTALL
    raise UsageError(
        f"{'Jupyter' if jupyter else 'marimo'} is not installed: {command}. (Without it: --html "
        "writes a page of results, --to DIR the files.)"
    )


def suffix(module: str) -> str:
    """The form that a tool opens."""
    return ".py" if module == "marimo" else ".ipynb"


def folder_of(at: Point) -> Path:
    """Where copies that are opened and pages lie: a folder for each job, below the current one."""
    return Path("retime-notebooks") / _safe(at.job or "all")


def command(module: str, path: Path, port: int | None, browser: bool) -> list[str]:
    """The command line that opens a file or folder in a browser."""
    line = [sys.executable, "-m", module, *(["edit"] if module == "marimo" else []), str(path)]
    if port is not None:
        line.append(f"--port={port}")
    if not browser:
        line.append("--headless" if module == "marimo" else "--no-browser")
    return line


def serve(module: str, path: Path, port: int | None = None, browser: bool = True) -> int:
    """Opens a file or folder, and returns the tool's exit code when it ends."""
    return subprocess.call(command(module, path, port, browser))


def _safe(name: str) -> str:
    return re.sub(r"[^\w.-]", "_", name).lstrip(".") or "_"
