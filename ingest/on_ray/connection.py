"""The connection to a Ray cluster: what an address may be, and what is said where none answers."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import re
import socket
from collections.abc import Iterator
from typing import Any

from ..errors import RetimeError, UsageError, line_of
from .quiet import quiet

ANSWER_S = 10.0
"""So long an address may take to answer: Ray itself would go on trying for minutes."""

OBJECT_STORE_BYTES = 100 << 20
"""Of a cluster that is started for one call: results are small, rows never pass through it."""

_ADDRESS = re.compile(r"(ray://)?(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})")


class ClusterError(RetimeError):
    """A Ray cluster that cannot be reached, or whose nodes cannot do the work."""

    exit_code = 3


def library() -> Any:
    """Ray, imported only now. Raises UsageError where it is not installed."""
    # Nothing is told to anybody of a cluster that this process starts.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Else every start without a GPU warns of a change to come in how it hides GPUs.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        return importlib.import_module("ray")
    except ImportError as e:
        raise UsageError("--ray needs Ray: pip install 'retime[ray]'") from e


def check_address(address: str) -> str:
    """The address itself. Raises UsageError where it is none that Ray knows.

    "local" (a cluster in this machine, for this call), "auto" (the one that this machine is a
    node of, or $RAY_ADDRESS), "host:port" (the same, by its head) and "ray://host:port" (from any
    machine, through Ray's client server).
    """
    if address in ("auto", "local"):
        return address
    found = _ADDRESS.fullmatch(address)
    if found is None or not 0 < int(found[3]) < 65536:
        raise UsageError(
            f"--ray {address[:100]!r}: an address is auto, local, HOST:PORT or ray://HOST:PORT"
        )
    return address


@contextlib.contextmanager
def connected(address: str) -> Iterator[Any]:
    """Ray, connected to the cluster at `address` for as long as the context lasts.

    Where this process is connected already, that connection is used and stays. Raises UsageError
    for an address that cannot be or where Ray is missing, ClusterError where none answers.
    """
    check_address(address)
    ray = library()
    if ray.is_initialized():
        _same_cluster(ray, address)
        with quiet():
            yield ray
        return
    given = {"address": address}
    if address == "local":
        given |= {
            "num_cpus": len(os.sched_getaffinity(0)),
            "object_store_memory": OBJECT_STORE_BYTES,
            "include_dashboard": False,
        }
    else:
        _check_answer(_looked_up(address))
    with quiet():
        try:
            ray.init(**given, log_to_driver=False, logging_level=logging.ERROR)
        except (Exception, SystemExit) as e:
            with contextlib.suppress(Exception):
                ray.shutdown()
            raise _refused(address, e) from e
        try:
            yield ray
        finally:
            ray.shutdown()


def _same_cluster(ray: Any, address: str) -> None:
    """Raises UsageError where the process's own connection is to another cluster than asked for."""
    if address in ("auto", "local") or address.startswith("ray://"):
        return
    there = ray.get_runtime_context().gcs_address
    if _ip(address) != _ip(there):
        raise UsageError(
            f"this process is connected to the Ray cluster at {there}, not to {address}: "
            "call ray.shutdown() first, or say ray='auto'"
        )


def _ip(address: str) -> tuple[str, str]:
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError):
        found = socket.gethostbyname(host.strip("[]"))
        return ("here" if found.startswith("127.") or found == _own_ip() else found), port
    return host, port


def _own_ip() -> str:
    with contextlib.suppress(OSError):
        return socket.gethostbyname(socket.gethostname())
    return ""


def _looked_up(address: str) -> str:
    """What "auto" stands for here; other addresses as they are."""
    if address != "auto":
        return address
    try:
        found = importlib.import_module("ray._private.services").canonicalize_bootstrap_address(
            "auto"
        )
    except ConnectionError as e:
        raise ClusterError(
            "no Ray cluster runs on this machine: start one (ray start --head), join one "
            "(ray start --address=HOST:PORT), or give --ray HOST:PORT"
        ) from e
    except (ImportError, AttributeError, ValueError):
        return address
    return found or address


def _check_answer(address: str) -> None:
    """Raises ClusterError where nothing at `address` speaks as Ray does, after ANSWER_S at most."""
    found = _ADDRESS.fullmatch(address)
    if found is None:
        return
    host, port = found[2].strip("[]"), int(found[3])
    try:
        socket.create_connection((host, port), ANSWER_S).close()
    except OSError as e:
        late = isinstance(e, TimeoutError)
        why = f"no answer in {ANSWER_S:g} s" if late else e.strerror or line_of(e)
        raise ClusterError(f"no Ray cluster answers at {address}: {why}") from e
    if os.environ.get("RAY_USE_TLS", "0") not in ("", "0"):
        return  # its certificates are Ray's to check
    try:
        grpc = importlib.import_module("grpc")
    except ImportError:
        return
    with grpc.insecure_channel(f"{found[2]}:{port}") as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=ANSWER_S)
        except grpc.FutureTimeoutError as e:
            raise ClusterError(
                f"what listens at {address} is no Ray cluster (it does not speak gRPC)"
            ) from e


def _refused(address: str, error: BaseException) -> ClusterError:
    """The sentence for what `ray.init` raised."""
    said = str(error)
    versions = re.findall(r"(Ray|Python): ([0-9][0-9A-Za-z.]*)", said)
    if "ersion mismatch" in said:
        theirs, ours = (
            " and ".join(f"{name} {version}" for name, version in of_it)
            for of_it in (versions[:2], versions[2:])
        )
        listed = f"it has {theirs}, this process {ours}" if ours else line_of(error)
        return ClusterError(
            f"the Ray cluster at {address} has other versions: {listed}; install the same on all "
            "machines"
        )
    if "can't find" in said.lower() or "not find" in said.lower() or "raylet" in said.lower():
        return ClusterError(
            f"this machine is no node of the Ray cluster at {address} ({line_of(error)}): run on "
            "one of its nodes, or give ray://HOST:10001"
        )
    hint = ""
    if "uthent" in said or (address.startswith("ray://") and "timeout" in said):
        hint = "; one that asks for a token takes RAY_AUTH_MODE=token and RAY_AUTH_TOKEN here, too"
    return ClusterError(f"cannot connect to the Ray cluster at {address}: {line_of(error)}{hint}")
