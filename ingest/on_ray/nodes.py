"""The nodes of a cluster: whether each can do the work, and the sentence for one that cannot."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .. import store
from ..errors import RetimeError, UsageError, line_of
from ..rooms import writing
from ..store import Folder, reading
from ..store.addresses import shown, without_secrets
from ..store.claims import FOLDER as CLAIMS
from .connection import ClusterError

PACKAGES = ("retime", "pyarrow", "polars", "numpy", "numba", "duckdb")
"""Of these every node has what the driver has: another version may give other bytes."""

PROBE_S = 60.0
"""So long a node may take to start a worker and look around."""

MOST_SEEN = 256
"""Files of an input that a node looks for; more of them tell no more."""


class Seen(NamedTuple):
    """A path that a node must see as the driver does.

    `size_bytes` of a file, or the `token` that it holds; of a folder (both None) that it is there.
    `made` is a folder in which the node must be able to make files. Paths may be addresses in an
    object store.
    """

    path: str
    size_bytes: int | None = None
    token: str | None = None
    made: bool = False


@contextlib.contextmanager
def shared_folder(folder: Path | Folder) -> Iterator[list[Seen]]:
    """What tells on another node that it has this very folder and can write into it.

    A file in it, for as long as the context lasts. Raises WarehouseError where it cannot be made.
    """
    token = secrets.token_hex(16)
    if isinstance(folder, Folder) and folder.local is None:
        # Among the claims, which go with the orphans where this process dies.
        name = f"{CLAIMS}/seen-{secrets.token_hex(8)}"
        folder.put(name, token.encode())
        try:
            yield [Seen(folder.address(name), token=token), Seen(str(folder), made=True)]
        finally:
            with contextlib.suppress(RetimeError, OSError):
                folder.remove([name])
        return
    place = Path(str(folder))
    path = place / f"seen-{secrets.token_hex(8)}"
    with writing(place):
        path.write_text(token)
    try:
        yield [Seen(str(path), token=token), Seen(str(place), made=True)]
    finally:
        path.unlink(missing_ok=True)


def shared_files(paths: Iterable[str]) -> list[Seen]:
    """The files of an input, one of each folder first; those that are not there are left out.

    Of those in an object store one a bucket: whoever may read that has its own way to the store.
    """
    by_folder: dict[str, list[str]] = {}
    by_bucket: dict[str, str] = {}
    for path in dict.fromkeys(paths):
        if path.startswith(("http://", "https://")):
            continue  # needs no credentials, or has them in itself
        if store.is_address(path):
            by_bucket.setdefault("/".join(path.split("/", 3)[:3]), path)
        else:
            by_folder.setdefault(os.path.dirname(path), []).append(path)
    first = [of_it[0] for of_it in by_folder.values()]
    rest = [path for of_it in by_folder.values() for path in of_it[1:]]
    seen = []
    for path in by_bucket.values():
        with contextlib.suppress(OSError):
            seen.append(Seen(path, reading.size_of(path)))
    for path in (first + rest)[:MOST_SEEN]:
        with contextlib.suppress(OSError):
            seen.append(Seen(path, os.stat(path).st_size))
    return seen


def unseen(wanted: Sequence[Seen]) -> str:
    """What this machine does not see as the driver does, as the end of a sentence; "" if nothing.

    On the node "10.0.0.3 does not see /data/x" it is "does not see /data/x".
    """
    for one in wanted:
        if cannot := (_no_object if store.is_address(one.path) else _no_file)(one):
            return cannot
    return ""


def _no_file(one: Seen) -> str:
    try:
        if one.made:
            probe = Path(one.path) / f"probe-{secrets.token_hex(8)}"
            probe.touch()
            probe.unlink()
        elif one.token is not None:
            with open(one.path, "rb") as f:
                if f.read(len(one.token) + 1) != one.token.encode():
                    return f"has another {os.path.dirname(one.path)} than this machine"
        else:
            with open(one.path, "rb") as f:
                size = os.fstat(f.fileno()).st_size
            if size != one.size_bytes:
                return f"has another {one.path} ({size} bytes, here {one.size_bytes})"
    except OSError as e:
        shown_path = os.path.dirname(one.path) if one.token is not None else one.path
        verb = "cannot write into" if one.made else "does not see"
        return f"{verb} {shown_path} ({e.strerror or e})"
    return ""


def _no_object(one: Seen) -> str:
    """The same of what lies in an object store, with this machine's own credentials."""
    above, _, name = one.path.rpartition("/")
    try:
        if one.made:
            probe, folder = f"{CLAIMS}/probe-{secrets.token_hex(8)}", store.folder(one.path)
            folder.put(probe, b"")
            folder.remove([probe])
        elif one.token is not None:
            if store.folder(above).read(name, len(one.token) + 1) != one.token.encode():
                return f"has another {above} than this machine"
        elif (size := reading.size_of(one.path)) != one.size_bytes:
            return f"has another {shown(one.path)} ({size} bytes, here {one.size_bytes})"
    except FileNotFoundError:
        place = above if one.token is not None else one.path
        return f"does not see {shown(place)} (its AWS_ENDPOINT_URL may be of another store)"
    except UsageError as e:
        return f"cannot open {shown(one.path)}: {e}"
    except (RetimeError, OSError) as e:
        return f"has no way to {without_secrets(line_of(e))}"
    return ""


def refusal(node: str, cannot: str) -> str:
    """The sentence about a node that does not see something (`unseen`)."""
    if "://" in cannot:
        return (
            f"node {node} {cannot}: every node needs its own access to the object store (in the "
            "environment that Ray was started in there, a profile, or the machine's role)"
        )
    return (
        f"node {node} {cannot}: sources and warehouse must lie on a file system "
        "that all nodes have at the same path, or in an object store"
    )


def unseen_once(wanted: Sequence[tuple]) -> str:
    """`unseen`, looked at once by a process for what it has found in order."""
    key = tuple(wanted)
    if key in _IN_ORDER:
        return ""
    cannot = unseen([Seen(*w) for w in wanted])
    if not cannot:
        _IN_ORDER.clear()
        _IN_ORDER.add(key)
    return cannot


_IN_ORDER: set[tuple] = set()


def versions() -> dict[str, str]:
    """Versions of what decides about bytes, in this process."""
    from importlib import import_module, metadata

    found = {}
    for name in PACKAGES:
        try:
            # Of retime what is imported counts: a checkout on the path need not be installed.
            found[name] = (
                import_module(name).__version__ if name == "retime" else metadata.version(name)
            )
        except Exception as e:
            found[name] = f"missing: {type(e).__name__}: {e}"[:200]
    return found


def check(ray: Any, wanted: Sequence[Seen]) -> None:
    """Asks every node that has CPUs. Raises ClusterError, which names the first that is unfit."""
    nodes = [n for n in ray.nodes() if n["Alive"] and n["Resources"].get("CPU", 0) >= 1]
    if not nodes:
        raise ClusterError("the Ray cluster has no node with a CPU for work")
    here = versions()
    strategy = _affinity()
    look = ray.remote(num_cpus=0, max_retries=2)(_prober())
    asked = {
        look.options(scheduling_strategy=strategy(n["NodeID"], soft=False)).remote(
            [tuple(w) for w in wanted]
        ): n
        for n in nodes
    }
    left, until = list(asked), time.monotonic() + PROBE_S
    while left:
        done, left = ray.wait(left, num_returns=1, timeout=max(0.0, until - time.monotonic()))
        if not done:
            name = name_of(asked[left[0]])
            raise ClusterError(
                f"node {name} of the Ray cluster gave no sign of life in {PROBE_S:g} s"
            )
        node = asked[done[0]]
        try:
            found, cannot = ray.get(done[0])
        except (ray.exceptions.NodeDiedError, ray.exceptions.TaskUnschedulableError):
            continue  # it left meanwhile: nothing will be run there
        except ray.exceptions.RayError as e:
            raise ClusterError(f"node {name_of(node)}: a task cannot run: {line_of(e)}") from e
        _same_versions(name_of(node), found, here)
        if cannot:
            raise ClusterError(refusal(name_of(node), cannot))


def _affinity() -> Callable[..., Any]:
    from importlib import import_module

    return import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy


def name_of(node: dict[str, Any]) -> str:
    """A node for people: its address, and enough of its id where several share one."""
    return f"{node['NodeManagerAddress']} ({node['NodeID'][:8]})"


def here() -> str:
    """The node that this worker runs on, in the same form as far as it knows."""
    from importlib import import_module

    ray = import_module("ray")
    with contextlib.suppress(Exception):
        context = ray.get_runtime_context()
        ip = import_module("ray.util").get_node_ip_address()
        return f"{ip} ({context.get_node_id()[:8]})"
    return socket.gethostname()


def _same_versions(node: str, found: dict[str, str], here: dict[str, str]) -> None:
    for name, version in here.items():
        there = found.get(name, "missing")
        if there.startswith("missing"):
            raise ClusterError(
                f"node {node} has no {name} ({there.removeprefix('missing: ')}): install "
                f"'retime[ray]' {here['retime']} there"
            )
        if there != version:
            raise ClusterError(
                f"node {node} has {name} {there}, this machine {version}: results could differ; "
                "install the same version on all machines"
            )


def _prober() -> Callable[[list[tuple]], tuple[dict[str, str], str]]:
    """The look around as a function that is sent as code: the node may have no retime."""

    def probe(wanted: list[tuple]) -> tuple[dict[str, str], str]:
        try:
            from importlib import import_module

            nodes = import_module("retime.ingest.on_ray.nodes")
        except Exception as e:
            return {"retime": f"missing: {type(e).__name__}: {e}"[:200]}, ""
        return nodes.versions(), nodes.unseen([nodes.Seen(*w) for w in wanted])

    return probe
