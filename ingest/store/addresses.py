"""Addresses in object stores: what they may be, and how they are shown without secrets."""

from __future__ import annotations

import re

from ..errors import UsageError

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SECRETS = re.compile(r"""//[^/@\s]*@|[?#]\S*?(?="?(?:\s|$))""")


def is_address(text: str) -> bool:
    """Whether a text is a URL of another place than this machine's disks."""
    return _SCHEME.match(text) is not None and not text.startswith("file://")


def shown(text: str) -> str:
    """A URL for people: without user, password and query, which may be secrets."""
    scheme, between, rest = text.partition("://")
    place, slash, path = rest.partition("/")
    user, _, host = place.rpartition("@")
    place = host if ":" in user or scheme.lower().startswith("s3") else place
    return f"{scheme}{between}{place}{slash}{path.partition('?')[0]}"


def without_secrets(text: str) -> str:
    """A message of another library, with what looks like part of a signed URL cut out."""
    return _SECRETS.sub(lambda m: "//" if m[0].startswith("//") else "", text)


def check(text: str) -> None:
    """Raises UsageError for credentials in an address, which would be stored and shown."""
    user = text.partition("://")[2].partition("/")[0].rpartition("@")[0]
    if ":" in user or (user and text.lower().startswith("s3")):
        raise UsageError(
            f"{shown(text)}: credentials do not belong in an address; set them in the environment "
            "or in the store's own configuration"
        )


def folder_address(text: str) -> str:
    """The address of a folder in one form. Raises UsageError for what cannot be one."""
    check(text)
    scheme, _, rest = text.partition("://")
    parts = rest.rstrip("/").split("/")
    if not rest.strip("/"):
        raise UsageError(f"{scheme}://: the address names no bucket")
    if any(c in rest for c in "*?[]#\\") or not rest.isprintable():
        raise UsageError(f"{shown(text)}: a folder's address has none of the characters *?[]#\\")
    if "::" in rest or any(p in (".", "..") for p in parts) or "" in parts[1:]:
        raise UsageError(f"{shown(text)}: not the address of one folder")
    return f"{scheme.lower()}://{'/'.join(parts)}"
