"""The work of ingest, analyses and replays as tasks of a Ray cluster."""

from .connection import ClusterError, check_address, connected
from .nodes import Seen, shared_files, shared_folder
from .tasks import cpus, run

__all__ = [
    "ClusterError",
    "Seen",
    "check_address",
    "connected",
    "cpus",
    "run",
    "shared_files",
    "shared_folder",
]
