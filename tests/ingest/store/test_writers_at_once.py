"""Two at work on one job of an object store at the same moment: what either said stays true."""

import contextlib
import threading
from types import SimpleNamespace

import pytest
from retime.ingest import clashes, clock, detect, object_commits, staging, store
from retime.ingest.errors import StoreBusy, WarehouseError
from retime.ingest.keeping import prune
from retime.ingest.manifest import encoded, manifest_name
from retime.ingest.on_ray import staged
from retime.ingest.roster import Roster
from retime.ingest.run import ingest
from retime.ingest.sources import find_sources
from retime.ingest.store import claims
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
    assert staging.commit(folder, tmp_path, [], late, Roster(folder))
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
    now = clock.clock_ns
    monkeypatch.setattr(clock, "clock_ns", lambda place: now(place) + int(25 * 3600e9))
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
        staging.commit(folder, tmp_path, [], late, Roster(folder))
    assert not any(f.startswith("_manifests/") for f in folder.sizes())


def test_a_claim_is_no_surer_for_having_been_read(place, monkeypatch):
    """Others count from when they first saw it, not from when its holder last looked."""
    now = [1000.0]
    monkeypatch.setattr(claims.time, "monotonic", lambda: now[0])
    folder = store.folder(place)
    with claims.claimed(folder, ["a"]) as mine:
        now[0] += 0.6 * claims.TERM_S
        mine.check()
        now[0] += 0.3 * claims.TERM_S
        folder.put("_claims/a", b"of who took over")
        with pytest.raises(StoreBusy, match="taken over"):
            mine.check()
    assert folder.read("_claims/a", 100) == b"of who took over"


@pytest.mark.parametrize("later", [True, False])
def test_of_two_traces_of_a_rank_that_both_came_to_stand_one_is_refused(
    tmp_path, place, folder, uploaded, monkeypatch, later
):
    """A writer so slow that another took its claims over and was done before it."""
    first, second = uploaded(1), uploaded(1, rows=7)
    mine, other = (second, first) if later else (first, second)
    stand = object_commits._stand

    def slow(*args, **said):
        monkeypatch.setattr(object_commits, "_stand", stand)
        folder.put(f"_manifests/{manifest_name(other)}", encoded(other), new=True)
        stand(*args, **said)

    monkeypatch.setattr(object_commits, "_stand", slow)
    monkeypatch.setattr(object_commits, "YIELD_S", 0.05)
    roster = Roster(folder)
    with pytest.raises(clashes.RankClash, match="rank 1 of job j clashes"):
        staging.commit(folder, tmp_path, [], mine, roster)
    assert roster.files == {manifest_name(other)}
    assert Warehouse(place).manifests("j") == ([other], [])
    assert {f for f in folder.sizes() if f.endswith(".parquet")} == {p.file for p in other.parts}


def test_two_that_see_each_other_do_not_both_give_way(
    tmp_path, place, folder, uploaded, monkeypatch
):
    first, second = uploaded(1), uploaded(1, rows=7)
    monkeypatch.setattr(object_commits, "YIELD_S", 1.0)
    meet = threading.Barrier(2)
    stand, said = object_commits._stand, {}

    def slow(*args, **new):
        meet.wait(30)  # both hold the claims, as far as they know
        stand(*args, **new)
        meet.wait(30)

    @contextlib.contextmanager
    def none(*_):
        yield SimpleNamespace(check=lambda: None)

    monkeypatch.setattr(object_commits, "_stand", slow)
    monkeypatch.setattr(object_commits, "claimed", none)

    def bring(m):
        try:
            said[m.id] = staging.commit(folder, tmp_path, [], m, Roster(folder))
        except clashes.RankClash:
            said[m.id] = "clash"

    threads = [threading.Thread(target=bring, args=(m,)) for m in (first, second)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert said == {first.id: True, second.id: "clash"}
    assert Warehouse(place).manifests("j") == ([first], [])
