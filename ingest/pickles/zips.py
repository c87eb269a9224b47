"""Zips that are one saved value: their first member's name, and all names, without their data."""

from __future__ import annotations

import zipfile
from collections.abc import Callable

ZIP = b"PK\x03\x04"


def first_member(head: bytes) -> bytes:
    """The name of the first member in a zip's first bytes; empty where they are of no zip."""
    if head[:4] != ZIP or len(head) < 30:
        return b""
    return head[30 : 30 + int.from_bytes(head[26:28], "little")]


def members_where(path: str, is_head: Callable[[bytes], bool]) -> list[str]:
    """The names in a local zip whose first bytes are so; none where not, or it cannot be read."""
    try:
        with open(path, "rb") as f:
            if not is_head(f.read(512)):
                return []
        with zipfile.ZipFile(path) as z:
            return z.namelist()
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile):
        return []
