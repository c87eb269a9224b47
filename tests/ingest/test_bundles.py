"""Files that only together are a source, and which sources of one rank exclude each other."""

import zipfile

import pytest
from retime.ingest import detect, sources
from retime.ingest.bundles import bundled
from retime.ingest.errors import UsageError
from retime.ingest.run import ingest
from retime.ingest.schema import TABLES


class Folders:
    """A made-up format: the `.part` files of a folder are one source."""

    @staticmethod
    def looks_like(head, name):
        return False

    @staticmethod
    def bundle_of(path):
        return path.rpartition("/")[0] if path.endswith(".part") else None

    @staticmethod
    def parse(source, *, rank=None, threads=1):
        sizes = []
        for member in source.members:
            with member.open() as f:
                sizes.append(len(f.read()))
        yield "ranks", TABLES["ranks"].batch({"rank": [3], "source": [source.name]})
        yield (
            "counters",
            TABLES["counters"].batch(
                {"name": [m.name for m in source.members], "value": [float(n) for n in sizes]}
            ),
        )


@pytest.fixture
def folders(monkeypatch):
    monkeypatch.setitem(detect.FORMATS, "folders", detect.Format("folders", "", "many", True))
    real = detect.module
    monkeypatch.setattr(detect, "module", lambda n: Folders if n == "folders" else real(n))


def test_a_folders_files_are_one_source(tmp_path, folders):
    for name, text in (("a/1.part", "x"), ("a/2.part", "xyz"), ("b/1.part", "x"), ("c.txt", "?")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found = bundled(sources.find_sources([str(tmp_path)], lambda *_: None))
    names = {s.name: (f, [m.name for m in s.members], s.size_bytes) for s, f in found}
    a, b = f"{tmp_path}/a", f"{tmp_path}/b"
    assert names == {
        a: ("folders", [f"{a}/1.part", f"{a}/2.part"], 4),
        b: ("folders", [f"{b}/1.part"], 1),
        f"{tmp_path}/c.txt": (None, [], 1),
    }


def test_a_bundle_ingests_and_again_changes_nothing(tmp_path, folders):
    with zipfile.ZipFile(tmp_path / "in.zip", "w") as z:
        z.writestr("t/1.part", "x")
        z.writestr("t/2.part", "xyz")
    first = ingest(tmp_path / "w", str(tmp_path / "in.zip"), job="j")
    assert [(s.name, s.status, s.rows["counters"], s.ranks) for s in first.sources] == [
        (f"{tmp_path}/in.zip!t", "new", 2, [3])
    ]
    again = ingest(tmp_path / "w", str(tmp_path / "in.zip"), job="j")
    assert [s.status for s in again.sources] == ["already"]


def test_a_bundles_identity_is_its_members_names_and_bytes(tmp_path, folders):
    digests = set()
    for i, files in enumerate(({"1": "x", "2": "y"}, {"1": "y", "2": "x"}, {"1": "x", "3": "y"})):
        folder = tmp_path / str(i)
        folder.mkdir()
        for name, text in files.items():
            (folder / f"{name}.part").write_text(text)
        digests |= {
            s.sha256 for s, _ in bundled(sources.find_sources([str(folder)], lambda *_: None))
        }
    assert len(digests) == 3
    (tmp_path / "moved").mkdir()
    for name, text in {"1": "x", "2": "y"}.items():
        (tmp_path / "moved" / f"{name}.part").write_text(text)
    (same,) = bundled(sources.find_sources([str(tmp_path / "moved")], lambda *_: None))
    assert same[0].sha256 in digests


@pytest.mark.parametrize(
    ("first", "second", "clashes"),
    [
        ("timeline", "timeline", True),
        ("timeline", "one", False),
        ("timeline", "many", False),
        ("one", "one", False),
    ],
)
def test_what_a_rank_may_have_beside_its_timeline(
    tmp_path, monkeypatch, traces, first, second, clashes
):
    for name, holds in (("a", first), ("b", second)):
        monkeypatch.setitem(detect.FORMATS, name, detect.Format("fake_trace", "", holds))
    one = traces(tmp_path / "one.fake", 5)
    two = traces(tmp_path / "two.fake", 5, salt=1)
    ingest(tmp_path / "w", str(one), job="j", format="a")
    if clashes:
        with pytest.raises(UsageError, match="rank 5 of job j clashes"):
            ingest(tmp_path / "w", str(two), job="j", format="b")
        return
    report = ingest(tmp_path / "w", str(two), job="j", format="b")
    assert [s.status for s in report.sources] == ["new"]


@pytest.mark.parametrize(("holds", "clashes"), [("one", True), ("many", False)])
def test_a_second_source_of_the_same_format(tmp_path, monkeypatch, traces, holds, clashes):
    monkeypatch.setitem(detect.FORMATS, "a", detect.Format("fake_trace", "", holds))
    paths = [traces(tmp_path / f"{i}.fake", 5, salt=i) for i in range(2)]
    ingest(tmp_path / "w", str(paths[0]), job="j", format="a")
    if clashes:
        with pytest.raises(UsageError, match="rank 5 of job j clashes"):
            ingest(tmp_path / "w", str(paths[1]), job="j", format="a")
    else:
        report = ingest(tmp_path / "w", str(paths[1]), job="j", format="a")
        assert report.sources[0].status == "new"


def test_two_dumps_of_a_rank_in_one_call_leave_the_rest(tmp_path, monkeypatch, traces):
    monkeypatch.setitem(detect.FORMATS, "fake", detect.Format("fake_trace", "", "one"))
    for name, rank, salt in (("1", 5, 0), ("2", 5, 1), ("3", 6, 0)):
        traces(tmp_path / "in" / f"{name}.fake", rank, salt=salt)
    report = ingest(tmp_path / "w", str(tmp_path / "in"), job="j")
    assert [s.status for s in report.sources] == ["new", "refused", "new"]
    assert [p.code for p in report.sources[1].problems] == ["rank_clash"]
    assert report.exit_code == 1
