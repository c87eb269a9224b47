"""What `retime notebook` does and prints."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from .. import terminal
from . import opening, source

if TYPE_CHECKING:
    from ..doors import Warehouse


def command(
    of: Warehouse,
    job: str | None,
    name: str | None,
    *,
    to: Path | None = None,
    html: bool = False,
    against: str | None = None,
    force: bool = False,
    jupyter: bool = False,
    port: int | None = None,
    browser: bool = True,
    listed: bool = False,
    json: bool = False,
) -> int:
    """Lists, writes, runs or opens notebooks; the exit code."""
    if listed:
        rows = [{"name": n, "question": source.title(n)} for n in source.NAMES]
        if json:
            print(terminal.to_json(rows))
        else:
            titles = {"name": "notebook", "question": "question"}
            terminal.show_table(terminal.console(), rows, titles)
        return 0
    names = opening.chosen(name)
    # Before the job is looked for: without a tool nothing is going to be opened.
    module = None if html or to is not None else opening.tool(jupyter)
    at = opening.point(of, names, job, against)
    if html:
        paths, wrong = opening.write_html(names, to or opening.folder_of(at), at, force)
        _say(paths, json)
        for line in wrong:
            print(f"failed: {terminal.clean(line)}", file=sys.stderr)
        return 1 if wrong else 0
    if module is None:
        paths, _ = opening.write(names, to or Path(), at, force=force)
        _say(paths, json)
        return 0
    folder = opening.folder_of(at)
    paths, kept = opening.write(
        names, folder, at, suffixes=(opening.suffix(module),), force=force, keep=True
    )
    for path in kept:
        print(
            f"note: {terminal.clean(str(path))} was there and is not what would be written: it is "
            "opened as it is (--force writes it anew)",
            file=sys.stderr,
        )
    return opening.serve(module, paths[0] if name else folder, port, browser)


def _say(paths: list[Path], json: bool) -> None:
    if json:
        print(terminal.to_json([{"path": str(p)} for p in paths]))
        return
    for path in paths:
        print(terminal.clean(str(path)))
