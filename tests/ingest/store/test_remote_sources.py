"""Traces in object stores: files, folders, globs and archives by their URL."""

import gzip
import io
import tarfile
import zipfile

import pytest
from retime.ingest import store
from retime.ingest.errors import StoreBusy, UnusableInput, UsageError
from retime.ingest.remote_sources import Scratch
from retime.ingest.run import ingest, job_id_of
from retime.ingest.sources import find_sources
from retime.ingest.warehouse import Warehouse


def names(paths, place, scratch=None):
    odd = []
    found = list(find_sources(paths, lambda name, p: odd.append((name, p.code)), scratch))
    return [s.name.removeprefix(f"{place}/") for s in found], odd


@pytest.fixture
def folder(place):
    return store.folder(place)


def test_what_urls_name(place, folder):
    for name in ("run/rank10", "run/rank2", "run/.hidden", "run/.git/x", "run/deep/y", "other/z"):
        folder.put(name, b"FAKE")
    folder.put("run/empty", b"")
    assert names([f"{place}/run/"], place) == (
        ["run/deep/y", "run/rank2", "run/rank10"],
        [(f"{place}/run/empty", "empty_file")],
    )
    assert names([f"{place}/run"], place)[0] == ["run/deep/y", "run/rank2", "run/rank10"]
    assert names([f"{place}/run/rank2"], place)[0] == ["run/rank2"]
    assert names([f"{place}/*/rank*"], place)[0] == ["run/rank2", "run/rank10"]
    assert names([f"{place}/**/[yz]"], place)[0] == ["other/z", "run/deep/y"]
    assert names([f"{place}/o*"], place)[0] == ["other/z"]
    assert names([f"{place}/run/rank2", f"{place}/run"], place)[0] == [
        "run/rank2", "run/deep/y", "run/rank10",
    ]  # fmt: skip
    with pytest.raises(UnusableInput, match="no such object or folder"):
        names([f"{place}/nothing"], place)
    with pytest.raises(UnusableInput, match="no object matches"):
        names([f"{place}/no*"], place)
    with pytest.raises(UnusableInput, match="is empty"):
        names([f"{place}/run/empty"], place)
    with pytest.raises(UnusableInput, match="no such bucket"):
        names(["s3://nobucket/x"], place)
    with pytest.raises(UsageError, match="credentials") as e:
        names(["s3://key:SECRET@bucket/x"], place)
    assert "SECRET" not in str(e.value)
    # What cannot be found is a problem beside what can.
    found, odd = names([f"{place}/run/rank2", f"{place}/nothing"], place)
    assert (found, odd) == (["run/rank2"], [(f"{place}/nothing", "unusable")])


def test_archives_are_opened(place, folder):
    zipped, tarred = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as z:
        z.writestr("a/rank0", b"FAKE one")
        z.writestr("a/rank1", gzip.compress(b"FAKE two"))
    with tarfile.open(fileobj=tarred, mode="w:gz") as t:
        for n, text in enumerate((b"FAKE three", b"FAKE four")):
            info = tarfile.TarInfo(f"rank{n}")
            info.size = len(text)
            t.addfile(info, io.BytesIO(text))
    folder.put("x.zip", zipped.getvalue())
    folder.put("x.tgz", tarred.getvalue())
    folder.put("x.gz", gzip.compress(b"FAKE five"))
    scratch = Scratch()
    found = list(find_sources([place], lambda *_: None, scratch))
    read = {}
    for source in found:
        with source.open() as f:
            read[source.name.removeprefix(f"{place}/")] = f.read()
    assert read == {
        "x.gz": b"FAKE five",
        "x.tgz!rank0": b"FAKE three",
        "x.tgz!rank1": b"FAKE four",
        "x.zip!a/rank0": b"FAKE one",
        "x.zip!a/rank1": b"FAKE two",
    }
    where = scratch.path
    assert where.is_dir()
    del scratch
    assert not where.exists()


def test_ingest_from_one_place_of_a_store_into_another(tmp_path, traces, place, folder, proxy):
    local = Warehouse(tmp_path / "local")
    for rank in range(3):
        path = traces(tmp_path / "in" / f"rank{rank}.fake", rank, rows=50)
        folder.put(f"traces/run-7/rank{rank}.fake", path)
    ingest(local, tmp_path / "in", job="x")
    report = ingest(f"{place}/warehouse", f"{place}/traces/run-7/")
    assert (report.job, report.exit_code) == ("run-7", 0)
    assert sorted(s.name for s in report.sources) == [
        f"{place}/traces/run-7/rank{rank}.fake" for rank in range(3)
    ]
    there, here = Warehouse(f"{place}/warehouse").manifests("run-7")[0], local.manifests("x")[0]
    assert [m.sha256 for m in there] == [m.sha256 for m in here]
    assert [{t: [(p.rows, p.sha256) for p in ps] for t, ps in m.tables.items()} for m in there] == [
        {t: [(p.rows, p.sha256) for p in ps] for t, ps in m.tables.items()} for m in here
    ]
    again = ingest(f"{place}/warehouse", [f"{place}/traces/run-7"])
    assert [s.status for s in again.sources] == ["already"] * 3
    # Into a local warehouse, nothing of what was fetched stays.
    ingest(local, f"{place}/traces/run-7/*", job="y")
    assert not [p for p in local.path.rglob("*") if "source" in p.name]


@pytest.mark.parametrize("fault", ["slow_down", "cut_answer"])
def test_a_store_that_fails_now_and_then(traces, tmp_path, place, folder, proxy, soon, fault):
    folder.put("rank0.fake", traces(tmp_path / "rank0.fake", 0, rows=3000))
    proxy.rule = lambda r: fault if r.n % 3 == 0 else None
    report = ingest(tmp_path / "warehouse", f"{place}/rank0.fake", job="j")
    assert report.sources[0].rows["events"] == 3000


def test_a_store_that_stays_busy_is_no_bad_input(tmp_path, place, folder, proxy, soon):
    folder.put("rank0.fake", b"FAKE")
    proxy.rule = lambda r: "slow_down"
    with pytest.raises(StoreBusy):
        ingest(tmp_path / "warehouse", f"{place}/rank0.fake", job="j")


def test_an_object_that_changes_while_it_is_read_is_not_taken(
    tmp_path, traces, place, folder, proxy
):
    folder.put("rank0.fake", traces(tmp_path / "a.fake", 0, rows=20))
    other = traces(tmp_path / "b.fake", 0, rows=20, salt=3).read_bytes()
    seen = []

    def rule(request):
        if request.op == "HEAD":
            seen.append(request.n)
            if len(seen) == 2:  # the look after it was fetched
                proxy.rule = None
                folder.put("rank0.fake", other)
        return None

    proxy.rule = rule
    with pytest.raises(UnusableInput, match="changed while it was read"):
        ingest(tmp_path / "warehouse", f"{place}/rank0.fake", job="j")
    assert len(seen) == 2


def test_a_signed_web_address_is_used_and_not_shown(tmp_path, traces, place, folder, proxy, caplog):
    folder.put("run/rank0.fake", traces(tmp_path / "a.fake", 0, rows=20))
    path = place.removeprefix("s3://")
    url = f"{proxy.url}/{path}/run/rank0.fake?X-Amz-Signature=SECRET"
    proxy.log.clear()
    report = ingest(tmp_path / "warehouse", url, job="j")
    assert [s.name for s in report.sources] == [url.partition("?")[0]]
    assert {d.request.query for d in proxy.log} == {"X-Amz-Signature=SECRET"}
    for file in (tmp_path / "warehouse").rglob("*.json"):
        assert b"SECRET" not in file.read_bytes()
    with pytest.raises(UnusableInput, match="no such object") as e:
        ingest(tmp_path / "warehouse", url.replace("rank0", "rank1"), job="j")
    assert "SECRET" not in str(e.value)
    assert "SECRET" not in caplog.text


def test_any_store_that_fsspec_has(tmp_path, traces):
    there = store.folder(f"memory://bucket/{tmp_path.name}")
    there.put("run/rank0.fake", traces(tmp_path / "a.fake", 0, rows=20))
    report = ingest(f"{there}/warehouse", f"{there}/run")
    assert (report.job, report.exit_code) == ("run", 0)
    assert [s.status for s in ingest(f"{there}/warehouse", f"{there}/run").sources] == ["already"]
    snapshot = Warehouse(f"{there}/warehouse").snapshot("run")
    assert len(snapshot.files["events"]) == 1


def test_a_job_is_named_after_its_url():
    assert job_id_of(["s3://bucket/traces/run-7/"]) == "run-7"
    assert job_id_of(["s3://bucket/traces/run-7"]) == "run-7"
    assert job_id_of(["s3://bucket/traces/run-7/rank3.json.gz"]) == "run-7"
    assert job_id_of(["s3://bucket/traces/one.json.gz"]) == "one"
    assert job_id_of(["s3://bucket/traces/run-7/*.json"]) == "run-7"
    assert job_id_of(["s3://bucket/t/rank0.json", "s3://bucket/t/rank1.json"]) == "t"
    assert job_id_of(["https://host/t/one.json?X-Amz-Signature=SECRET"]) == "one"
