"""32 writers at once, and readers meanwhile."""

import pytest
import small_job
from retime.ingest.warehouse import Warehouse
from whole import undisturbed, whole

WRITERS = 32

IN_STORE = 4
"""The tests' server does one thing at a time; of so many, unless all are to be tried."""


@pytest.fixture
def wide(tmp_path, place, long):
    """(paths, expected) of a job of as many ranks as there are writers."""
    writers = WRITERS if long or place.kind == "disk" else IN_STORE
    paths = small_job.write(tmp_path / "in", range(writers), world=writers, steps=1)
    return paths, undisturbed(tmp_path / "undisturbed", paths)


def at_once(processes, acts, place):
    started = [processes.start(*act, **meets, **place.meets) for act, meets in acts]
    return [processes.wait(pid) for pid in started]


def read_well(came, ranks):
    """What a reader saw: never less than before, and no rank twice or in part."""
    assert came.error == ""
    assert came.result
    for seen in came.result:
        assert len(seen) == len(set(seen))
        assert set(seen) <= set(ranks)
    for before, after in zip(came.result, came.result[1:], strict=False):
        assert set(before) <= set(after)


def test_each_brings_a_rank_of_its_own(tmp_path, wide, processes, place):
    paths, expected = wide
    warehouse = place.new("w")
    first = processes.run("upload", paths[:1], warehouse, "j", tmp_path / "s", **place.meets)
    assert first.result[0] == ["new"]
    readers = [
        processes.start("watch", warehouse, "j", len(paths), **place.meets) for _ in range(2)
    ]
    came = at_once(
        processes,
        [
            (("upload", [path], warehouse, "j", tmp_path / f"s{n}"), {"host": f"node{n}"})
            for n, path in enumerate(paths[1:])
        ],
        place,
    )
    assert [c.error for c in came] == [""] * (len(paths) - 1)
    assert [(c.result[0], c.result[2]) for c in came] == [(["new"], [""])] * (len(paths) - 1)
    for pid in readers:
        read_well(processes.wait(pid), range(len(paths)))
    # Whoever brought the last rank derived: no reader needs to.
    store = Warehouse(warehouse)
    assert store.generation("j", store.manifests("j")[0]) is not None
    whole(warehouse, "j", expected, paths)


def test_all_bring_the_same_four(job, processes, place, long):
    paths, expected = job
    writers = WRITERS if long or place.kind == "disk" else IN_STORE
    warehouse = place.new("w")
    act = ("ingest", warehouse, paths, "j", {"derive_now": False})
    came = at_once(processes, [(act, {})] * writers, place)
    assert [c.error for c in came] == [""] * writers
    states = [s for c in came for s in c.result]
    assert states.count("new") == len(paths)
    assert states.count("already") == (writers - 1) * len(paths)
    assert processes.run("derive", warehouse, "j", **place.meets).result is True
    whole(warehouse, "j", expected, paths)
