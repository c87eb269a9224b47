"""Telling an .npz, NumPy's zip of named arrays, from an archive of sources."""

from __future__ import annotations

import zipfile

_ZIP = b"PK\x03\x04"


def is_npz_head(head: bytes) -> bool:
    """Whether a zip's first member is an array, by its name."""
    if head[:4] != _ZIP or len(head) < 30:
        return False
    name = head[30 : 30 + int.from_bytes(head[26:28], "little")]
    return b"/" not in name and name.endswith(b".npy")


def is_npz(path: str) -> bool:
    """Whether all members of a local zip are arrays. False where it cannot be read."""
    try:
        with open(path, "rb") as f:
            if not is_npz_head(f.read(512)):
                return False
        with zipfile.ZipFile(path) as z:
            names = z.namelist()
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile):
        return False
    return bool(names) and all(n.endswith(".npy") and "/" not in n for n in names)
