"""Whether a job's folder holds what it says: manifests against files, and files without a manifest.

Nothing is changed here: `repair` follows what is found.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from .. import labels, settings, staging
from ..errors import WarehouseError
from ..manifest import Generation, Manifest, Part, table_of
from ..schema import TABLES
from . import compact, prune, tombstone
from .findings import INFO, LOST, WARNING, Finding, command

if TYPE_CHECKING:
    from ..store import Folder

AT_ONCE = 8
"""Files looked at side by side."""

BLOCK_BYTES = 1 << 20

Looked = Callable[[int], None]
"""Called with the bytes of a file that was looked at."""


class Job(NamedTuple):
    """A job's folder while it is looked at: its name, its files with their bytes."""

    id: str
    folder: Folder
    sizes: dict[str, int]
    url: str

    def finding(self, severity: str, code: str, file: str, what: str, do: str = "") -> Finding:
        """A finding about this job."""
        return Finding(self.id, severity, code, file, what, do)

    def command(self, *words: str) -> str:
        """A command line of retime about this warehouse."""
        return command(*words, "--warehouse", self.url)

    @property
    def repair(self) -> str:
        """The command that repairs this job."""
        return self.command("verify", self.id, "--repair")


def look(id: str, folder: Folder, *, deep: bool = False, looked: Looked | None = None) -> Job:
    raise NotImplementedError
