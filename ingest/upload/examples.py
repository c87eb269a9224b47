"""The files that are shipped for schedulers: a Slurm epilog, a Kubernetes job, cron, a script."""

from __future__ import annotations

from pathlib import Path

from ..errors import UsageError

FILES = {
    "slurm": "slurm-epilog.sh",
    "slurm-conf": "upload.conf",
    "kubernetes": "kubernetes-job.yaml",
    "cron": "retime-upload.cron",
    "torch": "train.py",
}
"""Name on the command line, and file."""


def example(name: str) -> str:
    """The text of a shipped file. Raises UsageError for a name that there is not."""
    if name not in FILES:
        raise UsageError(f"no example {name[:40]!r}; there are {', '.join(FILES)}")
    return (Path(__file__).parent / "examples" / FILES[name]).read_text(encoding="utf-8")
