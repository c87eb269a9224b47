"""All runs in one file and back, so that others can test their own tools on them."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

from .errors import LabError

PUBLISHED = Path(__file__).parent / "data" / "lab.zip"
"""The runs that the published table is of; README.md beside it says what they are."""

WHEN = (1980, 1, 1, 0, 0, 0)
"""Of every member: the same runs make the same file."""


def pack(data: Path, to: Path) -> str:
    """Writes the runs of a folder as a zip; returns what it holds, in a sentence."""
    files = sorted(p for p in data.rglob("*") if p.is_file()) if data.is_dir() else []
    if not files:
        raise LabError(f"no runs in {data}: python -m benchmarks.lab run makes them")
    with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
        for path in files:
            member = zipfile.ZipInfo(path.relative_to(data).as_posix(), WHEN)
            member.compress_type = zipfile.ZIP_DEFLATED
            z.writestr(member, path.read_bytes())
    runs = sum(p.name == "truth.json" for p in files)
    return f"{runs} runs in {to}, {to.stat().st_size / 1e6:.2f} MB"


def opened(data: Path, scratch: Path) -> Path:
    """The folder of runs: the one given, or what a zip holds, in `scratch`.

    Raises LabError for a file that is no zip, a damaged one and one without runs.
    """
    if not data.is_file():
        return data
    if not zipfile.is_zipfile(data):
        raise LabError(f"{data} is neither a folder of runs nor a zip that `pack` wrote")
    try:
        with zipfile.ZipFile(data) as z:
            z.extractall(scratch)
    except (zipfile.BadZipFile, zlib.error, EOFError) as e:
        raise LabError(f"{data} is damaged ({e}): pack or fetch it again") from e
    if not next(scratch.glob("*/*/truth.json"), None):
        raise LabError(f"{data} holds no runs: `pack` puts RUN/REPEAT/truth.json and traces there")
    return scratch
