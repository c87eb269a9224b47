"""Two at work on one job of an object store at the same moment: what either said stays true."""

import pytest
from retime.ingest import detect, object_commits, staging, store
from retime.ingest.errors import WarehouseError
from retime.ingest.keeping import prune
from retime.ingest.on_ray import staged
from retime.ingest.run import ingest
from retime.ingest.sources import find_sources
from retime.ingest.warehouse import Warehouse


@pytest.fixture
def folder(place):
    return store.folder(f"{place}/job=j")


@pytest.fixture
def uploaded(tmp_path, folder, traces):
    """`uploaded(rank)` uploads a made-up trace's parts as a node does, and gives the manifest."""

    def upload(rank, **said):
        path = tmp_path / f"{rank}-{len(said)}.fake"
        traces(path, rank, **said)
        (source,) = find_sources([str(path)], lambda name, problem: None)
        task = (source, "fake", detect.FORMATS["fake"].module, None, 1, 1, str(folder))
        return staged.stage_and_upload(*task, lambda done: None).manifest

    return upload


def test_a_prune_leaves_what_a_node_has_only_just_uploaded(
    tmp_path, place, folder, traces, uploaded, monkeypatch
):
    ingest(place, traces(tmp_path / "0.fake", 0), job="j")
    late = uploaded(1)
    prune.prune(folder)
    removed = prune.finish(folder, 0)
    assert any(f.startswith("events/") for f in removed)  # of the pruned job: at once
    assert staging.commit(folder, tmp_path, [], late, {})
    (standing,), bad = Warehouse(place).manifests("j")
    assert (standing, bad) == (late, [])


def test_what_was_uploaded_for_nothing_goes_after_a_day(
    tmp_path, place, folder, traces, uploaded, monkeypatch
):
    ingest(place, traces(tmp_path / "0.fake", 0), job="j")
    left = {p.file for p in uploaded(1).parts}
    prune.prune(folder)
    prune.finish(folder, 0)
    assert set(folder.sizes()) == left
    now = staging.clock_ns
    monkeypatch.setattr(staging, "clock_ns", lambda place: now(place) + int(25 * 3600e9))
    Warehouse(place).remove_orphans("j", 0)
    assert folder.sizes() == {}


def test_parts_that_go_while_a_commit_waits_for_its_claims_are_missed(
    tmp_path, folder, uploaded, monkeypatch
):
    late = uploaded(1)
    claimed = object_commits.claimed

    def slow(*args):
        folder.remove([p.file for p in late.parts][:1])
        return claimed(*args)

    monkeypatch.setattr(object_commits, "claimed", slow)
    with pytest.raises(WarehouseError, match="gone or cut since it was uploaded"):
        staging.commit(folder, tmp_path, [], late, {})
    assert not any(f.startswith("_manifests/") for f in folder.sizes())
