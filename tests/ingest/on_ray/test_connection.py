"""Addresses of clusters, and the one sentence where none answers: no cluster is started here."""

from __future__ import annotations

import socket
import sys
import threading

import pytest
from retime import cli
from retime.ingest.errors import UsageError
from retime.ingest.on_ray import connection
from retime.ingest.on_ray.quiet import quiet
from retime.ingest.run import ingest


@pytest.fixture
def with_ray(monkeypatch):
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'retime[ray]'")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.delenv("RAY_USE_TLS", raising=False)


@pytest.fixture
def silent():
    """The address of a server that takes connections and never says anything."""
    server = socket.create_server(("127.0.0.1", 0))
    yield f"127.0.0.1:{server.getsockname()[1]}"
    server.close()


@pytest.mark.parametrize(
    "address", ["auto", "local", "head:6379", "10.0.0.1:6379", "[::1]:6379", "ray://head-svc:10001"]
)
def test_addresses_that_ray_knows(address: str) -> None:
    assert connection.check_address(address) == address


@pytest.mark.parametrize(
    "address",
    [
        "",
        "head",
        "head:",
        "head:0",
        "head:65536",
        "http://head:1",
        "ray://me:secret@head:1",
        "a b:1",
    ],
)
def test_any_other_address_is_usage(address: str, tmp_path) -> None:
    with pytest.raises(UsageError, match="an address is auto, local, HOST:PORT or ray://HOST:PORT"):
        connection.check_address(address)
    with pytest.raises(UsageError, match="an address is"):
        ingest(tmp_path / "w", [tmp_path], ray=address)
    assert not (tmp_path / "w").exists()


def test_without_ray_the_extra_is_named(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with (
        pytest.raises(UsageError, match=r"pip install 'retime\[ray\]'"),
        connection.connected("auto"),
    ):
        pass


def test_nothing_listens(with_ray, silent: str, capfd, demo_job, tmp_path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = ["ingest", str(demo_job / "rank0.json.gz"), "--warehouse", str(tmp_path / "w")]
    assert cli.run([*command, "--ray", address, "--json"]) == 3
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith(f"retime: no Ray cluster answers at {address}: ")
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "w").exists()


def test_what_listens_is_no_cluster(with_ray, silent: str, monkeypatch) -> None:
    pytest.importorskip("grpc", reason="grpcio is not installed: pip install 'retime[ray]'")
    monkeypatch.setattr(connection, "ANSWER_S", 0.3)
    for address in (silent, f"ray://{silent}"):
        with (
            pytest.raises(connection.ClusterError, match="is no Ray cluster"),
            connection.connected(address),
        ):
            pass


def test_versions_that_differ_are_both_told() -> None:
    said = (
        "Version mismatch: The cluster was started with:\n    Ray: 2.40.0\n    Python: 3.12.1\n"
        "This process on node 10.0.0.1 was started with:\n    Ray: 2.60.0\n    Python: 3.11.9\n"
    )
    told = str(connection._refused("head:6379", RuntimeError(said)))
    assert told == (
        "the Ray cluster at head:6379 has other versions: it has Ray 2.40.0 and Python 3.12.1, "
        "this process Ray 2.60.0 and Python 3.11.9; install the same on all machines"
    )


def test_only_what_ray_prints_is_kept_off_stdout(capsys, monkeypatch) -> None:
    monkeypatch.delenv("RETIME_DEBUG", raising=False)

    def from_thread(name: str) -> None:
        thread = threading.Thread(target=lambda: print(f"from {name}"), name=name)
        thread.start()
        thread.join()

    before = sys.stdout
    with quiet():
        print("mine")
        from_thread("ray_listen_error_messages")
        from_thread("Thread-7 (_log_main)")
        from_thread("Thread-7 (mine)")
    assert sys.stdout is before
    assert capsys.readouterr() == ("mine\nfrom Thread-7 (mine)\n", "")
    monkeypatch.setenv("RETIME_DEBUG", "1")
    with quiet():
        from_thread("ray_listen_error_messages")
    assert capsys.readouterr() == ("", "from ray_listen_error_messages\n")
