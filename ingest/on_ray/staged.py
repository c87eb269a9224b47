"""Sources staged on a Ray cluster: each by `stage_source` on some node, into the one folder."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

from .. import staging
from ..source import Source
from ..stage import Staged, stage_source
from . import nodes, tasks
from .connection import connected


def stage(
    address: str,
    sources: Sequence[tuple],
    staged: Path,
    n_workers: int | None,
    on_progress: Callable[[int, int], None] | None,
) -> Generator[tuple[int, Any]]:
    """(index, Staged or exception) for each source as it finishes, as `workers.run` gives them.

    A source is the arguments of `stage_source`; its folder is below `staged`, which every node
    must have. Raises UsageError or ClusterError, before anything is read, where the cluster cannot
    be reached or a node cannot do the work; WarehouseError where `staged` cannot be written.
    """
    with connected(address) as ray, nodes.shared_folder(staged) as wanted:
        wanted += nodes.shared_files(path for s in sources for path in paths_of(s[0]))
        # Workers live on: many small sources are worth as much preparation as a large one.
        each = sum(s[5] for s in sources) // max(1, tasks.cpus(ray))
        afresh = [(*s[:5], each, *s[6:]) for s in sources]
        yield from tasks.run(
            ray, f"{__name__}:stage_afresh", afresh, n_workers, on_progress, wanted=wanted
        )


def stage_afresh(
    source: Source,
    format: str,
    parser: str,
    rank: int | None,
    threads: int,
    process_bytes: int,
    folder: str,
    progress: Callable[[int], None],
) -> Staged:
    """`stage_source` into a new folder below `folder`, whatever an earlier try left there.

    A try that was given up may still be writing: its node may only have been out of reach.
    """
    place, name = Path(folder), secrets.token_hex(8)
    with staging.writing(place):
        place.mkdir(exist_ok=True)
    done = stage_source(
        source, format, parser, rank, threads, process_bytes, str(place / name), progress
    )
    return done._replace(moves=[(f"{name}/{file}", goal) for file, goal in done.moves])


def paths_of(source: Source) -> list[str]:
    """The files on disk behind a source: those of its members, or the archive that it is in."""
    if source.members:
        return [path for member in source.members for path in paths_of(member)]
    opened = source.open_stored
    while (archive := getattr(opened, "archive", None)) is not None:
        opened = archive.open_stored
    path = getattr(opened, "path", None)
    return [] if path is None else [str(path)]
