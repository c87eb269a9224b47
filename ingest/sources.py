"""Sources of an ingest: what files, folders, globs and archives the given paths name."""

from __future__ import annotations

import glob as globbing
import os
from collections.abc import Iterator
from pathlib import Path

from . import remote_sources
from .archives import (
    EMPTY_ZIP,
    ZIP,
    OnProblem,
    display,
    is_tar,
    natural_order,
    tar_members,
    zip_members,
)
from .errors import Damaged, UnusableInput
from .gunzip import GZIP, read_exactly, stream_defect
from .pickles.npz import is_npz
from .pickles.torchfile import is_torch_zip
from .schema import Problem
from .source import LocalFile, Source
from .store import addresses

__all__ = ["OnProblem", "Source", "display", "find_sources", "read_exactly", "stream_defect"]


_kept = remote_sources.Scratch()


def find_sources(
    paths: list[str], on_problem: OnProblem, scratch: remote_sources.Scratch | None = None
) -> Iterator[Source]:
    """Every input that the paths name, in a stable order, archives opened one level deep.

    A path is a file, a folder (walked; hidden entries skipped), a glob, or an archive (.zip, .tar,
    .tar.gz, told by content), here or in an object store. Archives of a store are fetched into
    `scratch`, which has to live as long as their members are used (else until the end). A file
    named twice comes once. A path that does not exist, a glob that matches nothing, a folder with
    nothing in it, an archive without members, and an empty file that was named itself are a
    problem beside other paths. Raises UnusableInput, the first, where no path gives a source;
    StoreBusy where a store is busy.
    """
    seen: set[str] = set()
    failed: list[UnusableInput] = []
    some = False
    for given in paths:
        found = 0
        try:
            if addresses.is_address(given):
                for one in remote_sources.objects_of(given, on_problem):
                    if one.url in seen:
                        found += 1
                        continue
                    seen.add(one.url)
                    named = one.url == given
                    for source in _sources_of_object(one, named, on_problem, scratch or _kept):
                        found += 1
                        yield source
                if not found:
                    raise UnusableInput("nothing in it", path=addresses.shown(given))
                continue
            for path in _files_of(given, on_problem):
                real = os.path.realpath(path)
                if real in seen:
                    found += 1
                    continue
                seen.add(real)
                named = os.path.normpath(path) == os.path.normpath(given)
                for source in _sources_of_file(path, named, on_problem):
                    found += 1
                    yield source
            if not found:
                raise UnusableInput("nothing in it", path=given)
        except UnusableInput as e:
            failed.append(e)
        finally:
            some = some or found > 0
    if failed and not some:
        raise failed[0]
    for e in failed:
        what = str(e).removeprefix(f"{e.path}: ")
        on_problem(e.path or "", Problem("unusable", what, "lost"))


def _files_of(given: str, on_problem: OnProblem) -> Iterator[str]:
    if os.path.isdir(given):
        yield from _walk(given, on_problem)
    elif os.path.lexists(given):
        if not os.path.exists(given):
            raise UnusableInput("a link to a file that does not exist", path=given)
        if not os.path.isfile(given):
            raise UnusableInput("neither a file nor a folder", path=given)
        yield given
    elif globbing.has_magic(given):
        matches = sorted(globbing.glob(given, recursive=True), key=natural_order)
        if not matches:
            raise UnusableInput("no file matches this pattern", path=given)
        for match in matches:
            if os.path.isdir(match):
                if "**" not in given:
                    yield from _walk(match, on_problem)
            elif os.path.isfile(match):
                yield match
    else:
        raise UnusableInput("no such file or folder", path=given)


def _walk(folder: str, on_problem: OnProblem) -> Iterator[str]:
    def unreadable(e: OSError) -> None:
        on_problem(
            str(e.filename), Problem("unreadable", f"folder cannot be read: {e.strerror}", "lost")
        )

    for here, dirs, files in os.walk(folder, onerror=unreadable):
        dirs[:] = sorted((d for d in dirs if not d.startswith(".")), key=natural_order)
        for name in sorted((f for f in files if not f.startswith(".")), key=natural_order):
            path = os.path.join(here, name)
            if os.path.isfile(path):
                yield path
            else:
                on_problem(path, Problem("not_a_file", "a broken link or device; skipped", "info"))


def _sources_of_file(path: str, named: bool, on_problem: OnProblem) -> Iterator[Source]:
    """The file itself, or the members of the archive it is."""
    try:
        size = os.path.getsize(path)
        with open(path, "rb") as f:
            magic = f.read(4)
    except OSError as e:
        if named:
            raise UnusableInput(f"cannot be read: {e.strerror}", path=path) from e
        on_problem(path, Problem("unreadable", f"cannot be read: {e.strerror}", "lost"))
        return
    if not size:
        if named:
            raise UnusableInput("the file is empty", path=path)
        on_problem(path, Problem("empty_file", "the file is empty; skipped", "warning"))
        return
    try:
        yield from _sources_in(path, size, magic, on_problem)
    except UnusableInput as e:
        if named:
            raise
        what = str(e).removeprefix(f"{path}: ")
        severity = "lost" if isinstance(e, Damaged) else "warning"
        on_problem(path, Problem("unusable", what, severity))


def _sources_of_object(
    one: remote_sources.RemoteObject,
    named: bool,
    on_problem: OnProblem,
    scratch: remote_sources.Scratch,
) -> Iterator[Source]:
    """The object itself, or the members of the archive it is."""
    name = addresses.shown(one.url)
    try:
        source = remote_sources.source_of(one)
        if not remote_sources.is_archive(source):
            yield source
            return
        copy = scratch.path / f"archive-{len(os.listdir(scratch.path))}"
        remote_sources.fetch(one, copy)
        with open(copy, "rb") as f:
            magic = f.read(4)
        yield from _sources_in(str(copy), one.size_bytes, magic, on_problem, name)
    except UnusableInput as e:
        if named:
            raise
        what = str(e).removeprefix(f"{name}: ")
        severity = "lost" if isinstance(e, Damaged) else "warning"
        on_problem(name, Problem("unusable", what, severity))


def sound(path: str) -> str:
    """A path as text that can be stored and printed: names on a disk need not be UTF-8."""
    return path.encode("utf-8", "replace").decode()


def _sources_in(
    path: str, size: int, magic: bytes, on_problem: OnProblem, name: str | None = None
) -> Iterator[Source]:
    """The source or sources in a local file, which may be a copy of `name`."""
    if magic in (ZIP, EMPTY_ZIP) and not is_torch_zip(path) and not is_npz(path):
        yield from zip_members(path, on_problem, name)
        return
    source = Source(
        name=sound(path) if name is None else name,
        size_bytes=size,
        open_stored=LocalFile(path),
        mmap_path=None if magic[:2] == GZIP else Path(path),
        compressed=magic[:2] == GZIP,
    )
    if is_tar(source.head(1024)):
        yield from tar_members(source, on_problem)
    else:
        yield source
