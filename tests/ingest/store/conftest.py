"""A proxy before a server of S3's protocol for the tests of this folder, and who writes there."""

import importlib.util
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


def _loaded(name):
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


bring = _loaded("bring")


@pytest.fixture
def proxy(s3_server, s3_url, monkeypatch):
    """A proxy before the server that every client in this test uses; it fails when told to."""
    proxy = s3_server.Proxy(s3_url)
    for name, value in s3_server.credentials(proxy.url).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    yield proxy
    proxy.close()


@pytest.fixture
def place(s3_server, proxy, tmp_path_factory):
    """The address of an empty folder in the bucket."""
    return f"s3://{s3_server.BUCKET}/{tmp_path_factory.mktemp('place').name}"


@pytest.fixture
def soon(monkeypatch):
    """Tries again without long pauses."""
    from retime.ingest.store import patience

    monkeypatch.setattr(patience, "FIRST_DELAY_S", 0.001)
    monkeypatch.setattr(patience, "MOST_DELAY_S", 0.02)


@pytest.fixture(scope="session")
def bringers():
    """Processes that bring made-up traces."""
    bringers = bring.Bringers()
    yield bringers
    bringers.close()
