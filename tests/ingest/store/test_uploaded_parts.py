"""Parts that one process uploads for the manifest that another lets stand; what a node must see."""

import pytest
from retime.ingest import clashes, detect, object_commits, staging, store
from retime.ingest.errors import WarehouseError
from retime.ingest.on_ray import Seen, nodes, staged
from retime.ingest.roster import Roster
from retime.ingest.run import ingest
from retime.ingest.sources import find_sources
from retime.ingest.warehouse import Warehouse


@pytest.fixture
def uploaded(tmp_path, place, traces):
    """`uploaded(rank)` uploads a made-up trace as a node does, and gives what it answers."""
    folder = store.folder(f"{place}/job=j")

    def upload(rank, **said):
        path = tmp_path / f"{rank}-{len(said)}.fake"
        traces(path, rank, **said)
        (source,) = find_sources([str(path)], lambda name, problem: None)
        module = detect.FORMATS["fake"].module
        task = (source, "fake", module, None, 1, 1, str(folder))
        return staged.stage_and_upload(*task, lambda done: None)

    return upload


@pytest.fixture
def folder(place):
    return store.folder(f"{place}/job=j")


def parts(folder):
    return sorted(name for name in folder.sizes() if name.endswith(".parquet"))


def files(done):
    return sorted(p.file for p in done.manifest.parts)


def test_they_count_when_their_manifest_stands_and_are_gone_where_it_was_there(
    place, folder, uploaded, tmp_path
):
    first, second = uploaded(0), uploaded(0)
    assert first.moves == []
    assert files(first) != files(second)
    assert parts(folder) == sorted(files(first) + files(second))
    assert not any(name.startswith("_manifests/") for name in folder.sizes())
    roster = Roster(folder)
    assert staging.commit(folder, tmp_path, [], first.manifest, roster) is True
    assert staging.commit(folder, tmp_path, [], second.manifest, roster) is False
    assert parts(folder) == files(first)
    (standing,), bad = Warehouse(place).manifests("j")
    assert (standing, bad) == (first.manifest, [])


def test_those_of_a_source_that_clashes_or_is_given_up_are_gone(folder, uploaded, tmp_path):
    roster = Roster(folder)
    first = uploaded(0)
    assert staging.commit(folder, tmp_path, [], first.manifest, roster)
    with pytest.raises(clashes.RankClash):
        staging.commit(folder, tmp_path, [], uploaded(0, rows=7).manifest, roster)
    assert parts(folder) == files(first)
    left = [uploaded(1), uploaded(2)]
    object_commits.give_up(folder, [done.manifest for done in left])
    assert parts(folder) == files(first)


def test_one_that_went_meanwhile_is_told_and_nothing_stands(folder, uploaded, tmp_path):
    done = uploaded(0)
    folder.remove(files(done)[:1])
    with pytest.raises(WarehouseError, match=r"gone or cut since it was uploaded, so .*0-0\.fake"):
        staging.commit(folder, tmp_path, [], done.manifest, Roster(folder))
    assert folder.sizes() == {}


def test_where_the_store_fails_in_the_middle_what_was_uploaded_waits_for_no_one(
    folder, uploaded, proxy, soon
):
    def rule(request):
        refused = request.op == "PUT" and request.key.rpartition("job=j/")[2].startswith("_staged")
        return (403, "AccessDenied") if refused else None

    proxy.rule = rule
    with pytest.raises(WarehouseError, match="AccessDenied"):
        uploaded(0)
    assert parts(folder) == []


def test_what_waits_for_its_turn_is_removed_where_the_ingest_fails(
    tmp_path, place, folder, uploaded, traces, monkeypatch
):
    for rank in range(3):
        traces(tmp_path / "in" / f"{rank}.fake", rank, no_peek=True)

    def results(*_):
        yield 2, uploaded(2)  # it waits for those before it, whose ranks are not known
        yield 1, WarehouseError("no more")

    monkeypatch.setattr("retime.ingest.run._staged", results)
    with pytest.raises(WarehouseError, match=r"no more \(0 of 3 new sources are in\)"):
        ingest(place, tmp_path / "in", job="j")
    assert parts(folder) == []


def test_what_a_node_must_see_of_a_store(place, folder, proxy, soon):
    with nodes.shared_folder(folder) as wanted:
        assert nodes.unseen(wanted) == ""
        (token,) = folder.sizes()  # what was tried is gone again
        folder.put(token, b"of another store")
        assert nodes.unseen(wanted) == f"has another {folder}/_claims than this machine"
        folder.remove([token])
        said = nodes.unseen(wanted)
        assert said.startswith(f"does not see {folder}/_claims (its AWS_ENDPOINT_URL ")
    proxy.rule = lambda request: (403, "AccessDenied") if request.op == "PUT" else None
    said = nodes.refusal("10.0.0.3", nodes.unseen([Seen(str(folder), made=True)]))
    assert said.startswith(f"node 10.0.0.3 has no way to {folder}/_claims/probe-")
    assert "access refused, cannot be written (AccessDenied)" in said
    assert said.count("\n") == 0
    assert folder.sizes() == {}


def test_of_inputs_in_a_store_one_a_bucket_is_looked_for(place, folder, proxy):
    for name in ("a/0.parquet", "a/1.parquet", "b/2.parquet"):
        folder.put(name, b"12345")
    files = [folder.address(name) for name in folder.sizes()]
    wanted = nodes.shared_files(files)
    assert wanted == [Seen(files[0], 5)]
    assert nodes.unseen(wanted) == ""
    assert nodes.unseen([Seen(files[0], 6)]) == f"has another {files[0]} (5 bytes, here 6)"
    gone = nodes.unseen([Seen(f"{place}/nothing", 5)])
    assert gone.startswith(f"does not see {place}/nothing (its AWS_ENDPOINT_URL ")
