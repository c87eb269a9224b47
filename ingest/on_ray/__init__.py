"""The work of ingest, analyses and replays as tasks of a Ray cluster."""

from .connection import ClusterError, check_address, connected
from .nodes import Seen
from .tasks import run

__all__ = ["ClusterError", "Seen", "check_address", "connected", "run"]
