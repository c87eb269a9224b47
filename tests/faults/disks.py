"""File systems in memory: small ones, and such that nobody can write."""

import contextlib
import subprocess

import pytest


@contextlib.contextmanager
def mounted(folder, *options):
    """A file system in memory; skips where this user may not mount one."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(folder)]
    try:
        made = subprocess.run(command, capture_output=True)
    except FileNotFoundError:
        pytest.skip("no mount command for a small file system")
    if made.returncode:
        pytest.skip(f"no small file system: {made.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def remount(folder, mode):
    """Makes one of them `ro` or `rw`."""
    subprocess.run(["mount", "-o", f"remount,{mode}", str(folder)], check=True)
