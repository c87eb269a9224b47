"""What paths name: files, folders, globs, archives; and streams that are cut, bad or too big."""

import gzip
import hashlib
import io
import os
import pickle
import tarfile
import zipfile
import zlib

import pytest
from retime.ingest import archives, gunzip
from retime.ingest.errors import UnusableInput
from retime.ingest.sources import find_sources, stream_defect

TEXT = b'{"traceEvents": []}\n'


def found(*paths):
    problems = []
    out = list(find_sources([str(p) for p in paths], lambda name, p: problems.append((name, p))))
    return out, problems


def read(source):
    with source.open() as f:
        return f.read()


def test_plain_file(tmp_path):
    path = tmp_path / "rank0.json"
    path.write_bytes(TEXT)
    (source,), problems = found(path)
    assert (source.name, source.size_bytes, source.mmap_path) == (str(path), len(TEXT), path)
    assert read(source) == TEXT
    assert problems == []


def test_sha256_is_of_the_stored_bytes(tmp_path):
    stored = gzip.compress(TEXT, mtime=0)
    (tmp_path / "a.json.gz").write_bytes(stored)
    (source,), _ = found(tmp_path / "a.json.gz")
    assert source.sha256 == hashlib.sha256(stored).hexdigest()
    assert source.mmap_path is None
    assert read(source) == TEXT


def test_gzip_of_several_members_and_padding(tmp_path):
    path = tmp_path / "a.gz"
    path.write_bytes(
        gzip.compress(b"one ") + gzip.compress(b"") + gzip.compress(b"two") + b"\0\0\n"
    )
    (source,), _ = found(path)
    with source.open() as f:
        assert f.read() == b"one two"
        assert stream_defect(f) is None


@pytest.mark.parametrize(
    ("behind", "text", "defect"),
    [
        (b"", b"", None),
        (gzip.compress(b" two"), b" two", None),
        (b"rubbish" * 9999, b"", "bytes that are not gzip follow the compressed data"),
    ],
    ids=["nothing", "a member", "rubbish"],
)
def test_gzip_filled_up_to_where_a_read_ends(tmp_path, behind, text, defect):
    stored = gzip.compress(b"one")
    filled = stored + bytes(gunzip.IN_BYTES - len(stored))
    (tmp_path / "a.gz").write_bytes(filled + behind)
    (source,), _ = found(tmp_path / "a.gz")
    with source.open() as f:
        assert f.read() == b"one" + text
        assert stream_defect(f) == defect


def test_gzip_members_that_each_fill_a_read_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(gunzip, "RATIO_AFTER_BYTES", 0)
    monkeypatch.setattr(gunzip, "MAX_RATIO", 2)
    member = gzip.compress(os.urandom(5000), 0)
    monkeypatch.setattr(gunzip, "IN_BYTES", len(member))
    (tmp_path / "a.gz").write_bytes(member * 40)
    (source,), _ = found(tmp_path / "a.gz")
    with source.open() as f:
        assert len(f.read()) == 200_000


@pytest.mark.parametrize("size", [1, 7, 64, 1 << 16])
def test_gzip_read_in_pieces(tmp_path, size):
    text = bytes(range(256)) * 999
    (tmp_path / "a.gz").write_bytes(gzip.compress(text[:1000]) + gzip.compress(text[1000:]))
    (source,), _ = found(tmp_path / "a.gz")
    with source.open() as f:
        assert b"".join(iter(lambda: f.read(size), b"")) == text


def test_gzip_cut_gives_what_is_before_the_cut(tmp_path):
    text = os.urandom(100_000)
    (tmp_path / "a.gz").write_bytes(gzip.compress(text)[:60_000])
    (source,), _ = found(tmp_path / "a.gz")
    with source.open() as f:
        got = f.read()
        assert stream_defect(f) == "the compressed data is cut"
    assert 50_000 < len(got) < 60_000
    assert text.startswith(got)


def test_gzip_damaged_or_followed_by_rubbish(tmp_path):
    stored = bytearray(gzip.compress(os.urandom(100_000)))
    stored[-6] ^= 0xFF  # in the checksum
    (tmp_path / "bad.gz").write_bytes(stored)
    (tmp_path / "more.gz").write_bytes(gzip.compress(TEXT) + b"rubbish")
    (bad, more), _ = found(tmp_path)
    with bad.open() as f:
        f.read()
        assert "damaged" in (stream_defect(f) or "")
    with more.open() as f:
        assert f.read() == TEXT
        assert "not gzip" in (stream_defect(f) or "")


def test_natural_order_of_numbers_of_any_length(tmp_path):
    long = "9" * 5000  # more digits than int() takes
    ordered = ["r", "r0", "r00", "r002", "r2", "r\u0663", "r10", "r10a", f"r{long}", f"r1{long}"]
    backwards = ordered[::-1]
    assert sorted(backwards, key=archives.natural_order) == ordered
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as z:
        for name in backwards:
            z.writestr(name, TEXT)
    sources, problems = found(tmp_path / "a.zip")
    assert [s.name.rpartition("!")[2] for s in sources][:8] == ordered[:8]
    assert [len(read(s)) for s in sources] == [len(TEXT)] * 10
    assert problems == []


def test_folder_in_natural_order_without_hidden_entries(tmp_path):
    for name in ("rank10.json", "rank2.json", ".hidden.json", ".git/x.json", "sub/rank0.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(TEXT)
    (tmp_path / "empty.json").touch()
    (tmp_path / "gone.json").symlink_to(tmp_path / "nowhere")
    (tmp_path / "sub" / "link.json").symlink_to(tmp_path / "rank2.json")
    out, problems = found(tmp_path)
    names = [os.path.relpath(s.name, tmp_path) for s in out]
    # The link is the same file as rank2.json and comes once.
    assert names == ["rank2.json", "rank10.json", "sub/rank0.json"]
    assert [p.code for _, p in problems] == ["empty_file", "not_a_file"]


def test_a_file_named_twice_comes_once(tmp_path):
    (tmp_path / "a.json").write_bytes(TEXT)
    out, _ = found(tmp_path / "a.json", tmp_path, f"{tmp_path}/*.json")
    assert len(out) == 1


def test_links_to_files_are_followed(tmp_path):
    (tmp_path / "data").write_bytes(TEXT)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rank0.json").symlink_to(tmp_path / "data")
    out, problems = found(tmp_path / "in")
    assert [read(s) for s in out] == [TEXT]
    assert problems == []


@pytest.mark.parametrize(
    ("make", "path", "message"),
    [
        (lambda d: None, "no.json", "no such file or folder"),
        (lambda d: None, "*.json", "no file matches"),
        (lambda d: (d / "e.json").touch(), "e.json", "the file is empty"),
        (lambda d: (d / "dir").mkdir(), "dir", "nothing in it"),
        (lambda d: (d / "l").symlink_to(d / "none"), "l", "does not exist"),
        (lambda d: os.mkfifo(d / "fifo"), "fifo", "neither a file nor a folder"),
        (lambda d: zipfile.ZipFile(d / "z.zip", "w").close(), "z.zip", "nothing in it"),
        (lambda d: (d / "z.zip").write_bytes(b"PK\x03\x04 no zip"), "z.zip", "cannot be read"),
    ],
)
def test_nothing_usable(tmp_path, make, path, message):
    make(tmp_path)
    with pytest.raises(UnusableInput, match=message):
        found(tmp_path / path)


def test_zip_members(tmp_path):
    path = tmp_path / "ranks.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("job/rank1.json", TEXT + b"1")
        z.writestr("job/rank0.json.gz", gzip.compress(TEXT))
        z.writestr("__MACOSX/._rank0.json", b"x")
        link = zipfile.ZipInfo("job/link.json")
        link.external_attr = 0o120777 << 16
        z.writestr(link, "/etc/passwd")
        z.writestr("job/empty.json", b"")
    out, problems = found(path)
    assert [s.name for s in out] == [
        f"{path}!job/rank0.json.gz",
        f"{path}!job/rank1.json",
    ]
    assert [read(s) for s in out] == [TEXT, TEXT + b"1"]
    assert [s.mmap_path for s in out] == [None, None]
    assert sorted(p.code for _, p in problems) == ["archive_link", "empty_file"]


def _tar(path, mode, members):
    with tarfile.open(path, mode) as t:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            if data is None:
                info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
                t.addfile(info)
            else:
                info.size = len(data)
                t.addfile(info, io.BytesIO(data))
    return path


MEMBERS = {
    "j/rank2.json": TEXT * 3,
    "j/rank10.json.gz": gzip.compress(TEXT),
    "j/link": None,
    "../../evil.json": TEXT + b"e",
}


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_tar_members(tmp_path, mode):
    path = _tar(tmp_path / "ranks.tar", mode, MEMBERS)
    out, problems = found(path)
    assert [s.name for s in out] == [
        f"{path}!../../evil.json",
        f"{path}!j/rank2.json",
        f"{path}!j/rank10.json.gz",
    ]
    # Any order, and again.
    assert [read(s) for s in (out[2], out[0], out[1], out[2])] == [
        TEXT,
        TEXT + b"e",
        TEXT * 3,
        TEXT,
    ]
    assert [(n.rpartition("!")[2], p.code) for n, p in problems] == [
        ("j/link", "archive_link"),
        ("../../evil.json", "archive_path"),
    ]
    # Nothing was written where a member's name pointed.
    assert sorted(os.listdir(tmp_path)) == ["ranks.tar"]


def test_tar_that_is_cut_keeps_the_members_before(tmp_path):
    path = _tar(tmp_path / "a.tar", "w", {"rank0.json": TEXT, "rank1.json": b"x" * 100_000})
    path.write_bytes(path.read_bytes()[:3000])
    out, problems = found(path)
    assert read(out[0]) == TEXT
    assert ("truncated_archive", "lost") in [(p.code, p.severity) for _, p in problems]


def test_archive_in_an_archive_is_said(tmp_path):
    inner = _tar(tmp_path / "inner.tar", "w", {"rank0.json": TEXT}).read_bytes()
    (tmp_path / "inner.tar").unlink()
    _tar(tmp_path / "outer.tar", "w", {"inner.tar": inner})
    _, problems = found(tmp_path / "outer.tar")
    assert [p.code for _, p in problems] == ["nested_archive"]


def test_control_characters_in_member_names_are_not_shown(tmp_path):
    path = _tar(tmp_path / "a.tar", "w", {"a\x1b[31m\n.json": TEXT})
    (source,), _ = found(path)
    assert source.name == f"{path}!a?[31m?.json"


def test_sources_can_be_sent_to_another_process(tmp_path):
    _tar(tmp_path / "a.tar", "w:gz", MEMBERS)
    (tmp_path / "b.json").write_bytes(TEXT)
    with zipfile.ZipFile(tmp_path / "c.zip", "w") as z:
        z.writestr("rank0.json", TEXT)
    out, _ = found(tmp_path)
    assert len(out) == 5
    for source in out:
        copy = pickle.loads(pickle.dumps(source))
        assert read(copy) == read(source)
        assert copy.sha256 == source.sha256


def test_bomb_is_refused_while_reading(tmp_path, monkeypatch):
    monkeypatch.setattr(gunzip, "RATIO_AFTER_BYTES", 5 << 20)
    monkeypatch.setattr(gunzip, "MAX_RATIO", 100)
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(bytes(8 << 20)))
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("rank0.json", bytes(8 << 20))
    for name in ("bomb.gz", "bomb.zip"):
        (source,), _ = found(tmp_path / name)
        with source.open() as f, pytest.raises(UnusableInput, match="refused"):
            f.read()


def test_a_small_block_that_holds_much_is_given_in_pieces(tmp_path):
    (tmp_path / "a.gz").write_bytes(gzip.compress(bytes(64 << 20)))
    (source,), _ = found(tmp_path / "a.gz")
    with source.open() as f:
        assert f.read(10) == bytes(10)
        assert f.n_out <= gunzip.OUT_BYTES
        assert sum(map(len, iter(lambda: f.read(1 << 20), b""))) == (64 << 20) - 10


def test_size_limit(tmp_path, monkeypatch):
    (tmp_path / "a.gz").write_bytes(gzip.compress(os.urandom(2000)))
    (source,), _ = found(tmp_path / "a.gz")
    monkeypatch.setattr(gunzip, "MAX_MEMBER_BYTES", 1000)
    with source.open() as f, pytest.raises(UnusableInput, match="refused"):
        f.read()


def test_same_bytes_without_isal(tmp_path, monkeypatch):
    monkeypatch.setattr(gunzip, "_inflater", lambda: zlib.decompressobj(wbits=31))
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"a" * 10) + gzip.compress(b"b"))
    (source,), _ = found(tmp_path / "a.gz")
    assert read(source) == b"a" * 10 + b"b"


@pytest.mark.parametrize("out_bytes", [1, 100, 258, 1000, 4096])
def test_pieces_of_any_size_give_the_whole_and_no_false_cut(tmp_path, monkeypatch, out_bytes):
    monkeypatch.setattr(gunzip, "OUT_BYTES", out_bytes)
    for n in (1, 257, 258, 999, 1000, 1001, 4096):
        text = b"a" * n
        (tmp_path / "a.gz").write_bytes(gzip.compress(text) * 2)
        (source,), _ = found(tmp_path / "a.gz")
        with source.open() as f:
            assert f.read() == text * 2
            assert stream_defect(f) is None


def test_members_of_a_compressed_tar_are_read_in_one_pass(tmp_path, monkeypatch):
    texts = {f"rank{i}.json": bytes([65 + i]) * 200_000 for i in range(6)}
    path = _tar(tmp_path / "a.tar.gz", "w:gz", texts)
    inflated = []
    real = gunzip.Gunzip._more

    def counted(self):
        before = self.n_out
        more = real(self)
        inflated.append(self.n_out - before)
        return more

    monkeypatch.setattr(gunzip.Gunzip, "_more", counted)
    out, _ = found(path)
    total = sum(map(len, texts.values()))
    assert sum(inflated) < 1.2 * total + gunzip.OUT_BYTES
    inflated.clear()
    # Heads and digests are known from the pass that listed them.
    assert [s.head(10) for s in out] == [t[:10] for t in texts.values()]
    assert [s.sha256 for s in out] == [hashlib.sha256(t).hexdigest() for t in texts.values()]
    assert [s.tail(10) for s in out] == [t[-10:] for t in texts.values()]
    assert inflated == []
    assert [read(s) for s in out] == list(texts.values())
    assert sum(inflated) < 1.2 * total + gunzip.OUT_BYTES
    # Back again, half read, and two at once.
    with out[3].open() as f:
        assert f.read(5) == texts["rank3.json"][:5]
    with out[1].open() as a, out[1].open() as b:
        assert (a.read(), b.read()) == (texts["rank1.json"], texts["rank1.json"])
    assert [read(s) for s in reversed(out)] == list(texts.values())[::-1]
    assert len(archives._parked) <= archives.PARKED_STREAMS


def test_an_archive_put_in_the_place_of_another_is_read_anew(tmp_path):
    for letter in (b"a", b"b"):
        path = _tar(tmp_path / "new.tar.gz", "w:gz", {f"rank{i}.json": letter * 99 for i in "01"})
        path.rename(tmp_path / "a.tar.gz")
        out, _ = found(tmp_path / "a.tar.gz")
        assert [read(s) for s in out] == [letter * 99] * 2


@pytest.mark.parametrize("size", [1, 100, 4096, 10_000])
def test_tails(tmp_path, size):
    text = bytes(range(256)) * 20
    (tmp_path / "a.json").write_bytes(text)
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(text))
    out, _ = found(tmp_path)
    assert [s.tail(size) for s in out] == [text[-size:]] * 2


def test_a_zip_member_that_cannot_be_opened_leaves_the_others(tmp_path):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("one.json", TEXT)
        z.writestr("two.json", TEXT)
    data = bytearray(path.read_bytes())
    second = data.index(b"PK\x03\x04", 4)
    data[second : second + 4] = b"XXXX"
    path.write_bytes(data)
    out, problems = found(path)
    assert [s.name for s in out] == [f"{path}!one.json"]
    assert [(n.rpartition("!")[2], p.code, p.severity) for n, p in problems] == [
        ("two.json", "unusable", "lost")
    ]


@pytest.mark.parametrize("name", ["/etc/passwd", "a/../../b.json", "C:/x.json", "..\\x.json"])
def test_names_that_point_outside_an_archive_are_said(tmp_path, name):
    path = _tar(tmp_path / "a.tar", "w", {name: TEXT})
    out, problems = found(path)
    assert [read(s) for s in out] == [TEXT]
    assert [p.code for _, p in problems] == ["archive_path"]
    assert sorted(os.listdir(tmp_path)) == ["a.tar"]
