"""The operations on objects as S3's own requests: pages, conditions and deletions in bulk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from . import patience
from .drivers import Driver, entry_of
from .folder import Entry

AT_ONCE = 1000
"""Objects that one request lists or deletes."""


class S3(Driver):
    """Over s3fs, which finds credentials as every AWS tool does."""

    def get(self, address: str, start: int, end: int) -> bytes:
        try:
            return self.fs.cat_file(self.path(address), start=start, end=end)
        except OSError as e:
            if patience.code_of(e) == "InvalidRange" or patience.status_of(e) == 416:
                return b""  # it ends before
            raise

    def head(self, address: str) -> Entry | None:
        bucket, key, _ = self.fs.split_path(self.path(address))
        try:
            found = self.fs.call_s3("head_object", Bucket=bucket, Key=key)
        except FileNotFoundError:
            return None
        return entry_of({**found, "size": found["ContentLength"]})

    def put(self, address: str, data: bytes, new: bool) -> None:
        condition = {"IfNoneMatch": "*"} if new else {}
        bucket, key, _ = self.fs.split_path(self.path(address))
        try:
            self.fs.call_s3("put_object", Bucket=bucket, Key=key, Body=data, **condition)
        except OSError as e:
            if patience.code_of(e) == "PreconditionFailed" or patience.status_of(e) == 412:
                raise FileExistsError(address) from e
            raise

    def put_file(self, address: str, source: Path) -> None:
        self.fs.put_file(str(source), self.path(address))

    def below(self, address: str) -> Iterator[tuple[str, Entry]]:
        for page, prefix in self._pages(address, ""):
            for found in page.get("Contents", []):
                name = found["Key"][len(prefix) :]
                if name and not name.endswith("/"):
                    yield name, entry_of({**found, "size": found["Size"]})

    def names(self, address: str) -> list[str]:
        names: set[str] = set()
        for page, prefix in self._pages(address, "/"):
            names |= {
                p["Prefix"][len(prefix) :].rstrip("/") for p in page.get("CommonPrefixes", [])
            }
            names |= {f["Key"][len(prefix) :] for f in page.get("Contents", [])}
        return sorted(names - {""})

    def _pages(self, address: str, delimiter: str) -> Iterator[tuple[dict, str]]:
        """Pages of a listing with the prefix that all names in them have; each page is retried."""
        bucket, key, _ = self.fs.split_path(self.path(address))
        prefix = f"{key.rstrip('/')}/" if key else ""
        more: dict[str, str] = {}
        while True:
            page = patience.patiently(
                lambda more=more: self.fs.call_s3(
                    "list_objects_v2", Bucket=bucket, Prefix=prefix, Delimiter=delimiter,
                    MaxKeys=AT_ONCE, **more,
                ), address, "listed",
            )  # fmt: skip
            yield page, prefix
            token = page.get("NextContinuationToken")
            if not page.get("IsTruncated") or not token:
                return
            more = {"ContinuationToken": token}

    def remove(self, addresses: Iterable[str]) -> None:
        by_bucket: dict[str, list[str]] = {}
        for address in addresses:
            bucket, key, _ = self.fs.split_path(self.path(address))
            by_bucket.setdefault(bucket, []).append(key)
        for bucket, keys in by_bucket.items():
            if len(keys) == 1:
                self.fs.call_s3("delete_object", Bucket=bucket, Key=keys[0])
                continue
            for at in range(0, len(keys), AT_ONCE):
                some = [{"Key": k} for k in keys[at : at + AT_ONCE]]
                said = self.fs.call_s3(
                    "delete_objects", Bucket=bucket, Delete={"Objects": some, "Quiet": True}
                )
                for one in said.get("Errors", []):
                    if one.get("Code") != "NoSuchKey":
                        raise _NotDeleted(one)


class _NotDeleted(OSError):
    """An object that a request for many did not delete."""

    def __init__(self, said: dict):
        super().__init__(str(said.get("Code")))
        self.response = {"Error": {"Code": str(said.get("Code") or "")}}
