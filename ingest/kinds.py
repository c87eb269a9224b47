"""Which kinds of address a warehouse can have, and what is said of the others."""

from __future__ import annotations

import importlib.util
import os
import re

from .errors import UsageError

_ONE_SLASH = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/(?!/)")
_ENDPOINT = re.compile(r"https?://[^/\s]+", re.I)
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")

PACKAGES = {
    "s3": ("s3fs", "'retime[s3]'"),
    "s3a": ("s3fs", "'retime[s3]'"),
    "gs": ("gcsfs", "gcsfs"),
    "gcs": ("gcsfs", "gcsfs"),
    "abfs": ("adlfs", "adlfs"),
    "abfss": ("adlfs", "adlfs"),
    "az": ("adlfs", "adlfs"),
    "oss": ("ossfs", "ossfs"),
    "oci": ("ocifs", "ocifs"),
    "tos": ("tosfs", "tosfs"),
    "hf": ("huggingface_hub", "huggingface_hub"),
}
"""By scheme: the module that reads it, and what `pip install` takes."""

_ARROWS = ("hdfs", "viewfs")
"""Those of pyarrow, which needs what they are of to say whether it knows them."""

_NONE = frozenset((
    "arrow_hdfs", "async_wrapper", "asynclocal", "asyncwrapper", "blockcache", "box", "cached",
    "dask", "data", "dir", "dropbox", "filecache", "ftp", "ftps", "gdrive", "generic", "gist",
    "git", "github", "jlab", "jupyter", "libarchive", "local", "pyscript", "reference", "scp",
    "sftp", "simplecache", "smb", "ssh", "tar", "wandb", "webdav", "zip",
))  # fmt: skip
"""Schemes of fsspec, and others', that are no stores of objects."""

_STORES = "s3://BUCKET/FOLDER (gs://, abfs:// and others with their packages) or a folder on a disk"


def shown(text: str) -> str:
    """An address for people, without what may be secret."""
    from .store import addresses  # only now: a training process checks, too, and it takes pyarrow

    return addresses.shown(text)


def check(text: str) -> None:
    """Raises UsageError for an address that no warehouse can have; whatever else, it may.

    Nothing is asked over a network, and no package is needed (`check_package`).
    """
    if one := _ONE_SLASH.match(text):
        scheme = one[1].lower()
        if scheme in ("file", "http", "https") or _is_store(scheme):
            raise UsageError(
                f"{shown(text)}: one slash behind {one[1]}: makes a path of it; write {one[1]}://"
                + ("/path" if scheme == "file" else "BUCKET/FOLDER")
            )
        return
    scheme, between, _ = text.partition("://")
    if not between or "/" in scheme or text.startswith("file://"):
        return
    scheme = scheme.lower()
    if scheme in ("http", "https"):
        raise UsageError(
            f"{shown(text)}: a web address is no warehouse; name s3://BUCKET/FOLDER, and the "
            "server that has it by AWS_ENDPOINT_URL"
        )
    if scheme == "file":
        raise UsageError(f"{shown(text)}: write file:// in small letters, or the path alone")
    if not _is_store(scheme):
        raise UsageError(f"{shown(text)}: {scheme}:// is no store for a warehouse; name {_STORES}")
    if scheme in ("s3", "s3a"):
        check_endpoint()


def check_package(text: str) -> None:
    """Raises UsageError, with what to install, where an address needs a package that is not here.

    One of fsspec's that is not in `PACKAGES` is found out about when it is first used.
    """
    scheme, between, _ = text.partition("://")
    module, install = PACKAGES.get(scheme.lower(), ("", ""))
    if between and module and importlib.util.find_spec(module) is None:
        place = f"{shown(text)}: " if text[len(scheme) + 3 :] else ""
        raise UsageError(
            f"{place}{scheme.lower()}:// needs the package {module}, which is not installed: "
            f"pip install {install}"
        )


def check_endpoint() -> None:
    """Raises UsageError where the environment names an S3 server that cannot be one."""
    for name in _ENDPOINTS:
        said = os.environ.get(name, "")
        if said and not _ENDPOINT.match(said):
            host = said.rpartition("@")[2].partition("?")[0][:100]
            raise UsageError(
                f"{name} is {host!r}: it needs http:// or https:// before the server's name, as "
                "in http://127.0.0.1:9000"
            )


def _is_store(scheme: str) -> bool:
    """Whether a scheme may be that of a store; others are asked for what is not listed."""
    if scheme in PACKAGES or scheme in _ARROWS:
        return True
    if scheme in _NONE:
        return False
    import fsspec

    from .store.arrow import file_system

    return scheme in fsspec.available_protocols() or file_system(scheme) is not None
