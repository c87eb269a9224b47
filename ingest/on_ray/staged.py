"""Sources staged on a Ray cluster: each by `stage_source` on some node.

Into the one folder that all nodes have; for a job in an object store into the node's own, from
where the node uploads it, so that no row passes through the driver.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

from .. import object_commits, rooms, staging, store
from ..errors import StoreBusy, StoreRefused, WarehouseError
from ..source import Source
from ..stage import Staged, stage_source
from . import nodes, tasks
from .connection import connected


def stage(
    address: str,
    sources: Sequence[tuple],
    job: store.Place,
    staged: Path,
    n_workers: int | None,
    on_progress: Callable[[int, int], None] | None,
) -> Generator[tuple[int, Any]]:
    """(index, Staged or exception) for each source as it finishes, as `workers.run` gives them.

    A source is the arguments of `stage_source`. Of a job on a disk its folder is below `staged`,
    which every node must have. Of one in an object store its parts are there when it is given:
    its manifest has the token of who brought them, and nothing is to be moved.

    Raises UsageError or ClusterError, before anything is read, where the cluster cannot be reached
    or a node cannot do the work; WarehouseError where `staged` or the store cannot be written.
    """
    folder = store.folder(job)
    uploads = folder.local is None
    with connected(address) as ray, nodes.shared_folder(folder if uploads else staged) as wanted:
        wanted += nodes.shared_files(path for s in sources for path in paths_of(s[0]))
        # Workers live on: many small sources are worth as much preparation as a large one.
        each = sum(s[5] for s in sources) // max(1, tasks.cpus(ray))
        afresh = [(*s[:5], each, str(folder) if uploads else s[6]) for s in sources]
        function = f"{__name__}:{'stage_and_upload' if uploads else 'stage_afresh'}"
        yield from tasks.run(ray, function, afresh, n_workers, on_progress, wanted=wanted)


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
    with rooms.writing(place):
        place.mkdir(exist_ok=True)
    done = stage_source(
        source, format, parser, rank, threads, process_bytes, str(place / name), progress
    )
    return done._replace(moves=[(f"{name}/{file}", goal) for file, goal in done.moves])


def stage_and_upload(
    source: Source,
    format: str,
    parser: str,
    rank: int | None,
    threads: int,
    process_bytes: int,
    job: str,
    progress: Callable[[int], None],
) -> Staged:
    """`stage_source` on this node's own disk, and the parts uploaded under a token of this try.

    `job` is the job's address. What a try that died left here goes with the next one on this
    node; what it had uploaded no manifest will ever name, and goes with the job's orphans.
    """
    folder = store.folder(job)
    try:
        with staging.staging(folder) as scratch:
            place = scratch / "parts"
            done = stage_source(
                source, format, parser, rank, threads, process_bytes, str(place), progress
            )
            manifest = object_commits.upload(folder, place, done.moves, done.manifest)
    except (StoreBusy, StoreRefused):
        raise
    except WarehouseError as e:  # of its disk
        raise WarehouseError(f"node {nodes.here()}: {e}") from e
    return done._replace(manifest=manifest, moves=[])


def paths_of(source: Source) -> list[str]:
    """The files behind a source: those of its members, or the archive that it is in.

    Paths, or addresses in an object store.
    """
    if source.members:
        return [path for member in source.members for path in paths_of(member)]
    opened = source.open_stored
    while (archive := getattr(opened, "archive", None)) is not None:
        opened = archive.open_stored
    path = getattr(opened, "path", None) or getattr(opened, "url", None)
    return [] if path is None else [str(path)]
