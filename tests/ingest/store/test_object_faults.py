"""Many writers and a reader over a store that throttles, fails and cuts connections: no row is
lost or doubled."""

import contextlib
import os
import signal
import threading
from collections import Counter

import pytest
from retime.ingest import object_commits, store
from retime.ingest.clashes import RankClash
from retime.ingest.errors import NoSources, StoreBusy, WarehouseError
from retime.ingest.run import ingest
from retime.ingest.store import claims, reading
from retime.ingest.warehouse import Warehouse

RANKS = 8
ROWS = 100


def events(snapshot):
    """How often each event of each rank is there."""
    found = Counter()
    for file in snapshot.files["events"]:
        rows = reading.whole(file).read(["rank", "event_id", "dur_ns"])
        found.update(zip(*(rows[c].to_pylist() for c in rows.column_names), strict=True))
    return found


def undisturbed(folder, traces, ranks):
    paths = [traces(folder / "in" / f"{r}.fake", r, rows=ROWS) for r in range(ranks)]
    ingest(folder / "local", paths, job="j")
    return paths, events(Warehouse(folder / "local").snapshot("j"))


@pytest.fixture
def local(tmp_path, traces):
    """(paths of RANKS traces, their events in an undisturbed warehouse)."""
    return undisturbed(tmp_path, traces, RANKS)


@pytest.fixture
def few(tmp_path, traces):
    """The same of three ranks, where one is done something to and others stand beside it."""
    return undisturbed(tmp_path, traces, 3)


class Reader(threading.Thread):
    """Takes snapshots of a job until told to stop; keeps the number of rows of each rank seen."""

    def __init__(self, place):
        super().__init__()
        self.place = place
        self.seen = []
        self.odd = []
        self.done = threading.Event()

    def run(self):
        warehouse = Warehouse(self.place)
        while not self.done.wait(0.05):
            try:
                found = events(warehouse.snapshot("j"))
            except StoreBusy:
                continue
            except WarehouseError as e:
                if "no warehouse" not in str(e) and "no job" not in str(e):
                    self.odd.append(e)
                continue
            self.odd += [row for row, n in found.items() if n != 1]
            self.seen.append(Counter(rank for rank, *_ in found))


def test_eight_writers_of_their_own_ranks_and_a_reader(
    s3_server, local, place, proxy, soon, bringers
):
    paths, expected = local
    proxy.rule = s3_server.at_random(0.15, seed=1)
    reader = Reader(place)
    reader.start()
    started = [bringers.start(place, "j", [path]) for path in paths]
    said = [bringers.told(p) for p in started]
    reader.done.set()
    reader.join()
    assert [s.get("code") for s in said] == [0] * RANKS, said
    assert len({d.fault for d in proxy.log}) >= 6  # all kinds of faults were met
    # Every rank that was seen was there whole.
    assert reader.odd == []
    assert {n for seen in reader.seen for n in seen.values()} <= {ROWS}
    proxy.rule = None
    assert events(Warehouse(place).snapshot("j")) == expected
    folder = store.folder(Warehouse(place).job_folder("j"))
    assert folder.names(claims.FOLDER) == []


def test_eight_writers_of_the_same_ranks(s3_server, local, place, proxy, bringers):
    paths, expected = local
    proxy.rule = s3_server.at_random(0.1, seed=2)
    orders = [paths[n:4] + paths[:n] for n in range(4)] * 2
    started = [bringers.start(place, "j", some) for some in orders]
    said = [bringers.told(p) for p in started]
    assert [s.get("code") for s in said] == [0] * RANKS, said
    proxy.rule = None
    found = events(Warehouse(place).snapshot("j"))
    assert found == Counter({e: 1 for e in expected if e[0] < 4})
    status = Counter(s for of in said for s in of["status"])
    # Whoever tried again finds its own; otherwise each is new to one.
    assert status["new"] <= 4
    assert status["new"] + status["already"] == 4 * RANKS


def test_of_eight_different_traces_of_a_rank_one_stands(
    s3_server, tmp_path, traces, place, proxy, bringers
):
    paths = [traces(tmp_path / f"{n}.fake", 0, rows=ROWS, salt=n, no_peek=True) for n in range(8)]
    proxy.rule = s3_server.at_random(0.1, seed=3)
    started = [bringers.start(place, "j", [path]) for path in paths]
    said = [bringers.told(p) for p in started]
    proxy.rule = None
    assert Counter(s.get("code", s.get("error")) for s in said) == {0: 1, "RankClash": 7}, said
    snapshot = Warehouse(place).snapshot("j")
    assert snapshot.problems == []
    assert snapshot.manifests[0].name == str(paths[[s.get("code") for s in said].index(0)])
    assert set(events(snapshot).values()) == {1}
    assert len(events(snapshot)) == ROWS


def test_writers_killed_at_any_moment_and_their_ranks_brought_again(
    local, place, proxy, monkeypatch, soon, bringers
):
    monkeypatch.setattr(claims, "TERM_S", 0.3)
    monkeypatch.setattr(claims, "SPREAD_S", 0.01)
    paths, expected = local
    victims = {}

    def rule(request):
        # The n-th writer dies at its n-th write; its request arrives or not.
        if request.op == "PUT" and (who := request.key.rpartition("/")[0]) and victims:
            n, process = victims.popitem()
            if n:
                victims[n - 1] = process
            else:
                os.kill(process[0], signal.SIGKILL)
                return "cut_request" if who.endswith("events") else None
        return None

    proxy.rule = rule
    died = 0
    for n, path in enumerate(paths[:5]):
        process = bringers.start(place, "j", [path])
        victims[n] = process
        died += bringers.told(process) == {"died": -signal.SIGKILL}
        victims.clear()
        with contextlib.suppress(NoSources):
            assert set(events(Warehouse(place).snapshot("j")).values()) <= {1}
    proxy.rule = None
    assert died == 5
    report = ingest(place, paths, job="j")
    assert report.exit_code == 0
    assert events(Warehouse(place).snapshot("j")) == expected


@pytest.mark.parametrize("fault", ["cut_before_answer", "cut_request", "slow_down"])
def test_a_manifests_answer_that_never_comes(few, place, proxy, soon, fault):
    paths, expected = few
    ingest(place, paths[1:], job="j")
    met = []

    def rule(request):
        if request.op == "PUT" and "/_manifests/" in request.key and len(met) < 3:
            met.append(request.key)
            return fault
        return None

    proxy.rule = rule
    report = ingest(place, paths[:1], job="j")
    assert [s.status for s in report.sources] == ["new"]
    assert met
    assert events(Warehouse(place).snapshot("j")) == expected


def test_a_manifest_of_which_nobody_knows_whether_it_stands(few, place, proxy, soon):
    """It was written, and no answer ever came: what it names must not be removed."""
    paths, expected = few
    ingest(place, paths[1:], job="j")
    stands = []

    def rule(request):
        if "/_manifests/" in request.key and request.op == "PUT":
            stands.append(request.key)
            return "cut_before_answer" if len(stands) == 1 else "slow_down"
        return "slow_down" if stands else None

    proxy.rule = rule
    with pytest.raises(StoreBusy):
        ingest(place, paths[:1], job="j")
    proxy.rule = None
    assert events(Warehouse(place).snapshot("j")) == expected
    assert [s.status for s in ingest(place, paths[:1], job="j").sources] == ["already"]


def test_a_listing_that_lies_about_a_size_leaves_the_source_out(few, place, proxy):
    paths, expected = few
    ingest(place, paths, job="j")
    warehouse = Warehouse(place)
    (m,) = [m for m in warehouse.manifests("j")[0] if m.ranks == [1]]
    part = m.tables["events"][0]

    def lie(status, headers, body):
        at = body.find(part.file.encode())
        size = b"<Size>%d</Size>" % part.bytes
        where = body.find(size, at)
        return status, headers, body[:where] + b"<Size>7</Size>" + body[where + len(size) :]

    proxy.rule = lambda r: lie if r.op == "LIST" and "delimiter=&" in r.query else None
    snapshot = warehouse.snapshot("j")
    assert [p.code for p in snapshot.problems] == ["bad_manifest"]
    assert events(snapshot) == Counter({e: 1 for e in expected if e[0] != 1})
    proxy.rule = None
    assert events(warehouse.snapshot("j")) == expected


def test_a_cut_object_with_an_honest_manifest_is_an_error_and_no_fewer_rows(few, place, soon):
    """It was cut after the snapshot was taken."""
    paths, _ = few
    ingest(place, paths, job="j")
    warehouse = Warehouse(place)
    snapshot = warehouse.snapshot("j")
    folder = store.folder(warehouse.job_folder("j"))
    (m,) = [m for m in warehouse.manifests("j")[0] if m.ranks == [1]]
    file = m.tables["events"][0].file
    folder.put(file, folder.read(file, 1 << 20)[:500])
    with pytest.raises(WarehouseError, match="damaged"):
        events(snapshot)


def test_two_different_traces_of_a_rank_in_one_moment(tmp_path, traces, place, monkeypatch):
    """Both have looked and seen nobody; the claim lets one through."""
    one = traces(tmp_path / "one.fake", 0, no_peek=True)
    two = traces(tmp_path / "two.fake", 0, salt=5, no_peek=True)
    both = threading.Barrier(2)
    upload = object_commits._upload

    def meet(*arguments):
        done = upload(*arguments)
        both.wait(30)
        return done

    ended = []

    def bring_it(path):
        try:
            ended.append(ingest(place, path, job="j", derive_now=False).exit_code)
        except RankClash:
            ended.append("clash")

    threads = [threading.Thread(target=bring_it, args=(p,)) for p in (one, two)]
    with monkeypatch.context() as m:
        m.setattr(object_commits, "_upload", meet)
        for t in threads:
            t.start()
        for t in threads:
            t.join(60)
    assert sorted(map(str, ended)) == ["0", "clash"]
    snapshot = Warehouse(place).snapshot("j")
    assert snapshot.problems == []
    assert set(events(snapshot).values()) == {1}
