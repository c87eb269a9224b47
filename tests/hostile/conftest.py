"""One warehouse of hostile jobs for all tests of this room, and the command line called in it."""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import retime
from retime import cli
from retime.analysis import escaping

from . import corpus

JOBS = ("kineto", "slower", "plain", "logs")

ACTS = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ud800-\udfff\U000e0000-\U000e0fff]"
)
"""What no screen and no JSON may hold, said here apart from how it is done: controls but for the
end of a line, directions, what has no width, surrogates, tags."""

STYLE = re.compile(r"\x1b\[[0-9;]*m|\r?\x1b\[(?:2K|1A|\?25[lh])|\r(?=\x1b)")
"""Colours, and how a bar of progress is drawn: what retime itself prints on a terminal."""


class Called(NamedTuple):
    """What a command left."""

    code: int
    out: str
    err: str
    dirty: list[str]
    """Texts that reached the console without being cleaned."""


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def call(*args: str, terminal: bool = False) -> Called:
    """Runs a command line in this process, its output as on a pipe or as on a terminal."""
    out, err = (_Terminal(), _Terminal()) if terminal else (io.StringIO(), io.StringIO())
    dirty: list[str] = []
    whole = escaping.one_for_one

    def seen(text: str) -> str:
        safe = whole(text)
        if safe != text:
            dirty.append(text[:200])
        return safe

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(escaping, "one_for_one", seen)
        patch.setenv("TERM", "xterm-256color")
        patch.setenv("COLUMNS", "100")
        patch.setenv("RETIME_THREADS", "1")  # of a few rows, more threads only take longer
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = cli.run(list(args))
    return Called(code, out.getvalue(), err.getvalue(), dirty)


class Made(NamedTuple):
    """The hostile jobs: their traces, the warehouse, and a folder for what commands write."""

    root: Path
    url: str
    out: Path
    ingested: dict[str, Called]

    def run(self, *args: str, **how: bool) -> Called:
        """A command in this warehouse."""
        return call(*args, "--warehouse", self.url, **how)

    def job(self, name: str) -> Any:
        """A job of the warehouse."""
        return retime.open(self.url).job(name)


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    """The warehouse, whose own path is hostile, too; nobody changes its jobs."""
    root = tmp_path_factory.mktemp("hostile")
    (root / "here").mkdir()
    before = os.getcwd()
    os.chdir(root / "here")
    traces = corpus.write(root)
    url = str(root / f"w'\"`$(touch {corpus.PWNED}-url); [x]{{y}} %s #?*")
    ingested = {
        job: call("ingest", str(path), "--job", job, "--warehouse", url, "--workers", "1")
        for job, path in traces.items()
    }
    (root / "out").mkdir()
    yield Made(root, url, root / "out", ingested)
    os.chdir(before)


@pytest.fixture(autouse=True)
def _nothing_ran(made: Made) -> Iterator[None]:
    """After each test: no name was run as a command or taken for a path."""
    there = set(Path("/tmp").glob(f"{corpus.PWNED}*"))
    yield
    assert set(Path("/tmp").glob(f"{corpus.PWNED}*")) == there
    assert ran(made.root) == []


def ran(folder: Path) -> list[str]:
    """Files whose names begin as those do that the names' commands would make."""
    mine = Path(folder) / "traces-logs"
    return [
        str(p)
        for p in folder.rglob(f"{corpus.PWNED}*")
        if mine not in p.parents and not p.name.endswith(".no")
    ]


@pytest.fixture(scope="session")
def cleaned() -> Callable[[Called], str]:
    """Asserts that nothing a command printed acts on a terminal; gives both of its streams."""

    def check(said: Called) -> str:
        text = STYLE.sub("", said.out + said.err)
        found = ACTS.search(text)
        assert found is None, ascii(text[max(0, found.start() - 80) : found.end() + 80])
        assert said.dirty == []
        return text

    return check
