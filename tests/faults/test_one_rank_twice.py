"""Two different traces of one rank from two nodes at the same moment: one is in, the other told."""

import pytest
import small_job
from whole import undisturbed, whole


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """(paths, expected) of two runs of a job that differ in every rank's trace."""
    folder = tmp_path_factory.mktemp("runs")
    found = []
    for salt in (0, 1):
        paths = small_job.write(folder / f"in{salt}", range(2), salt=salt)
        found.append((paths, undisturbed(folder / f"w{salt}", paths)))
    assert found[0][1]["events"] != found[1][1]["events"]
    return found


def test_uploads_of_two_nodes_for_one_rank(tmp_path, runs, processes, place, long):
    for attempt in range(40 if long else 2 if place.kind == "disk" else 1):
        warehouse = place.new(f"w{attempt}")
        started = [
            processes.start("upload", paths[:1], warehouse, "j", tmp_path / f"spool{attempt}.{n}",
                            host=f"node{n}", **place.meets)
            for n, (paths, _) in enumerate(runs)
        ]  # fmt: skip
        came = [processes.wait(pid) for pid in started]
        assert [c.error for c in came] == ["", ""]
        states = [c.result[0][0] for c in came]
        assert sorted(states) == ["failed", "new"]
        winner = states.index("new")
        spool = tmp_path / f"spool{attempt}.{1 - winner}"
        (entry,) = (spool / "entries").glob("*.json")
        assert "rank 0 of job j clashes" in entry.read_text()
        # What was refused changes nothing, again and again, and the rest of the winner comes in.
        again = processes.run("upload", [], None, None, spool, {"retry": True}, **place.meets)
        assert again.result[0] == ["failed"]
        paths, expected = runs[winner]
        more = processes.run("upload", paths, warehouse, "j", tmp_path / "spool", **place.meets)
        assert more.result[0] == ["already", "new"]
        whole(warehouse, "j", expected, paths)
