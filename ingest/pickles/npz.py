"""Telling an .npz, NumPy's zip of named arrays, from an archive of sources."""

from __future__ import annotations

from .zips import first_member, members_where


def is_npz_head(head: bytes) -> bool:
    """Whether a zip's first member is an array, by its name."""
    name = first_member(head)
    return b"/" not in name and name.endswith(b".npy")


def is_npz(path: str) -> bool:
    """Whether all members of a local zip are arrays. False where it cannot be read."""
    names = members_where(path, is_npz_head)
    return bool(names) and all(n.endswith(".npy") and "/" not in n for n in names)
