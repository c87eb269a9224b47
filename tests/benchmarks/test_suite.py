"""The suite of benchmarks: turns, ratios by round, goals, growth, the page; no time is asserted.

Ways of the tests are small programs that say how long they took, so that every figure is known.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import sys
import threading

import pytest

from benchmarks import __main__ as command
from benchmarks.suite import (
    case,
    docs,
    growth,
    history,
    inputs,
    judge,
    process,
    profiling,
    rounds,
    run,
    table,
    words,
)
from benchmarks.suite.case import LIMIT, OURS, PEER, Bound, Case, Ratio, Way
from benchmarks.suite.stages import formats

SAYS = """
import json, pathlib, sys
log, name, *seconds = sys.argv[1:]
with open(log, "a") as f:
    f.write(name + "\\n")
k = pathlib.Path(log).read_text().split("\\n").count(name) - 1
print("something else\\n" + json.dumps({"seconds": float(seconds[k]), "answer": name[0]}))
"""


def says(log, name, *seconds):
    """A command that takes so many seconds in its first, second ... run, by what it says."""
    return (sys.executable, "-c", SAYS, str(log), name, *map(str, seconds))


@pytest.fixture
def known(tmp_path):
    """A case of three rounds of which every figure is known, and its log."""
    log = tmp_path / "log"
    return Case(
        "stage, known", "stage", 100, "MB",
        (Way("ours", OURS, says(log, "ours", 1, 2, 4), clock="inside_s"),
         Way("peer", PEER, says(log, "peer", 10, 10, 80), clock="inside_s"),
         Way("once", PEER, says(log, "once", 3), clock="inside_s", rounds=1),
         Way("half", LIMIT, says(log, "half", 1, 1, 1), clock="inside_s", amount=50),
         Way("absent", PEER, missing="nowhere")),
        (Ratio("ours", "peer", 10, "ten times"), Ratio("ours", "peer", 11, "eleven times"),
         Ratio("ours", "once"), Ratio("ours", "half", 1 / 3, "a third"),
         Ratio("ours", "absent", 2, "twice")),
        (Bound("ours", "seconds", 2.0, "two seconds"), Bound("ours", "rate", 60, "60 MB/s"),
         Bound("ours", "peak_bytes", 1e12, "memory"), Bound("absent", "seconds", 1, "it")),
        same=(("ours", "once"), ("peer",)),
    )  # fmt: skip


def measure(one, runs, tmp_path):
    return judge.judged(one, *rounds.measured(one, runs, tmp_path, lambda line: None))


def test_ways_run_by_turns_and_ratios_are_of_one_round(known, tmp_path):
    found = measure(known, 3, tmp_path)
    turns = (tmp_path / "log").read_text().split()
    assert turns == [
        "ours", "peer", "once", "half", "ours", "peer", "half", "ours", "peer", "half"
    ]  # fmt: skip
    ways = {w["name"]: w for w in found["ways"]}
    assert (ways["ours"]["median_s"], ways["ours"]["low_s"], ways["ours"]["high_s"]) == (2, 1, 4)
    assert ways["ours"]["rate"] == 50
    assert ways["once"]["rounds"][1:] == [None, None]
    assert ways["absent"]["missing"] == "nowhere"
    peer, _, once, half, absent = found["ratios"]
    # Medians of both would say 5: each round says 10, 5 and 20.
    assert peer["values"] == [10, 5, 20]
    assert (peer["median_times"], peer["low_times"], peer["high_times"]) == (10, 5, 20)
    assert once["values"] == pytest.approx([3, 1.5, 0.75])  # run once, beside every round
    assert half["values"] == [2, 1, 0.5]  # half the amount in a second: two seconds for all
    assert "values" not in absent
    assert absent["why"] == "absent: nowhere"


def test_a_goal_missed_is_said_missed(known, tmp_path):
    found = measure(known, 3, tmp_path)
    assert [(g["goal"], g["verdict"], g.get("edge")) for g in judge.goals(found)] == [
        ("ten times", "met", True),
        ("eleven times", "missed", True),
        ("a third", "met", False),
        ("twice", "not run", None),
        ("two seconds", "met", True),
        ("60 MB/s", "missed", True),
        ("memory", "met", False),
        ("it", "not run", None),
    ]
    assert judge.missed(found) == [("ours", "")]


def test_close_goals_have_further_rounds_of_all_that_decide_them(tmp_path):
    log = tmp_path / "log"
    one = Case(
        "c", "s", 1, "u",
        (Way("ours", OURS, says(log, "ours", 1, 1, 1, 1), clock="inside_s"),
         Way("peer", PEER, says(log, "peer", 1.05, 0.9, 0.8, 0.9), clock="inside_s", rounds=1),
         Way("far", PEER, says(log, "far", 9, 9), clock="inside_s"),
         Way("limit", LIMIT, says(log, "limit", 7, 7), clock="inside_s")),
        (Ratio("ours", "peer", 1, "as fast"), Ratio("ours", "far", 2, "twice"),
         Ratio("ours", "limit")),
        (Bound("ours", "peak_bytes", 1e12, "memory"),),
    )  # fmt: skip
    rounds_of, missing = rounds.measured(
        one, 2, tmp_path, lambda line: None, in_doubt=judge.in_doubt
    )
    turns = log.read_text().split()
    # The peer ran once, 5 % from the goal; then twice more, and the goal is missed by 10 %.
    assert turns == ["ours", "peer", "far", "limit", "ours", "far", "limit", *["ours", "peer"] * 2]
    peer, far, limit = judge.judged(one, rounds_of, missing)["ratios"]
    assert peer["values"] == [1.05, 1.05, 0.9, 0.8]
    assert (peer["verdict"], peer["edge"]) == ("missed", True)
    assert far["values"] == [9, 9]
    assert limit["values"] == [7, 7]
    sure = Case("c", "s", 1, "u", one.ways, (Ratio("ours", "peer", 0.5, "half"),))
    assert judge.in_doubt(sure, rounds_of, missing) == set()
    assert judge.in_doubt(one, {}, {"ours": "", "peer": "", "far": ""}) == set()


def test_what_a_ratio_could_be_at_most(known, tmp_path):
    instead = (Ratio("ours", "peer", 1, "it", instead=("half", "ours")),)
    found = measure(Case(**{**known.__dict__, "ratios": instead}), 3, tmp_path)
    # The peer's 10 seconds, were ours' 2 in the place of half's 1 all that differs.
    assert found["ratios"][0]["ceiling"] == pytest.approx(10 / 11)
    assert words.ratio(found["ratios"][0]) == "10 (5 to 20), 0.909 possible"
    gone = (Ratio("ours", "peer", 1, "it", instead=("half", "absent")),)
    found = measure(Case(**{**known.__dict__, "ratios": gone}), 1, tmp_path)
    assert "ceiling" not in found["ratios"][0]


def test_answers_that_differ_are_said(known, tmp_path):
    found = measure(known, 1, tmp_path)
    assert found["disagree"] == []  # both say "o"; one alone has nothing to agree with
    other = Case(**{**known.__dict__, "same": (("ours", "peer"),)})
    assert measure(other, 1, tmp_path / "..")["disagree"] == ["ours: o; peer: p"]
    assert judge.alike([1, {"a": 1.0}], [1, {"a": 1.0 + 1e-9}])
    assert not judge.alike({"a": 1.0}, {"a": 1.1})
    assert not judge.alike([1], [1, 2])


def test_the_slowest_of_some_parts():
    ways = (Way("w", OURS),)
    bounds = (Bound("w", "slowest", 3, "all"), Bound("w", "slowest", 1, "some", ("a", "b")))
    took = {"wall_s": 9, "cpu_s": 9, "inside_s": 9, "peak_bytes": 1,
            "parts": {"a": 0.5, "b": 0.75, "c": 4}}  # fmt: skip
    one = Case("n", "s", 1, "u", ways, bounds=bounds)
    found = judge.judged(one, {"w": [took]}, {})
    assert [(b["part"], b["values"], b["verdict"]) for b in found["bounds"]] == [
        ("c", [4], "missed"), ("b", [0.75], "met")
    ]  # fmt: skip
    assert judge.missed(found) == [("w", "c")]
    assert [docs._met(b) for b in found["bounds"]] == [
        "\nGoal, all: met by `a`, `b`. Over it: `c` 4.00 s.\n", "\nGoal, some: met by `a`, `b`.\n"
    ]  # fmt: skip


def test_peak_memory_is_that_of_the_process_itself(tmp_path):
    def peak(mb):
        code = f"b = bytearray({mb} << 20); b[::4096] = b'x' * len(b[::4096])"
        return process.run(Way("w", OURS, (sys.executable, "-c", code)), tmp_path)["peak_bytes"]

    # A child begins with the peak of the one that started it: this process may be large itself.
    assert 600 << 20 < peak(600) < 3000 << 20


def test_a_way_can_be_left_out(known):
    ways = run._without(known, "ee").ways
    assert [w.name for w in ways if w.missing] == ["peer", "absent"]
    assert "--skip ee" in ways[1].missing
    assert run._without(known, "") is known


def test_by_cpu_a_wait_costs_nothing(tmp_path):
    code = """
import json, time
time.sleep(0.4)
print(json.dumps({"seconds": 9.0, "cpu_s": 0.25, "parts": {"a": 8}, "cpu_parts": {"a": 0.5}}))"""
    way = Way("w", OURS, (sys.executable, "-c", code))
    told = process.run(way, tmp_path)
    assert (told["inside_s"], told["cpu_s"], told["parts"]) == (9, 0.25, {"a": 8})
    assert told["wall_s"] >= 0.4
    told = process.run(way, tmp_path, by_cpu=True)
    assert (told["inside_s"], told["cpu_s"], told["parts"]) == (0.25, 0.25, {"a": 0.5})
    assert told["wall_s"] < 0.4


def test_a_way_that_fails_is_told_and_a_fresh_folder_is_given(tmp_path):
    bad = "import sys; print('first'); sys.exit('last words')"
    code = "import os, sys; assert os.listdir(sys.argv[1]) == []; open(sys.argv[1] + '/x', 'w')"
    one = Case(
        "c", "s", 1, "u",
        (Way("bad", OURS, (sys.executable, "-c", bad)),
         Way("folder", OURS, (sys.executable, "-c", code, case.OUT))),
        (Ratio("folder", "bad", 1, "goal"),),
    )  # fmt: skip
    found = measure(one, 2, tmp_path)
    assert found["ways"][0]["missing"] == "failed: last words"
    assert len(found["ways"][1]["rounds"]) == 2
    assert found["ratios"][0]["verdict"] == "not run"
    assert list(tmp_path.iterdir()) == []


def grown(name, n, seconds, peak, parts=None):
    more = {} if parts is None else {"parts": parts}
    way = {"name": "ours", "median_s": seconds, "cpu_s": seconds, "peak_bytes": peak,
           "rounds": [more]}  # fmt: skip
    return {"growth": name, "grows": ["ours"], "n": n, "unit": "MB", "ways": [way]}


def test_exponents_of_growth_and_what_needs_a_reason(monkeypatch):
    cases = [
        *(grown("even", n, 2 * n, 7, {"part": n**2.0, "little": 1e-3}) for n in (1, 4, 16)),
        *(grown("flat", n, n**0.5, 7) for n in (16, 4, 1)),
        *(grown("late", n, s, 7) for n, s in ((1, 1), (4, 1), (16, 16))),
        grown("alone", 1, 1, 1),
    ]
    even, flat, late = growth.lines(cases)
    assert even["power"]["cpu_s"] == pytest.approx(1)
    assert even["last_power"]["peak_bytes"] == pytest.approx(0)
    assert [(p["name"], round(p["power"], 6)) for p in even["parts"]] == [("part", 2)]
    assert even["verdict"] == "missed"
    assert even["steep"] == ["even: part"]
    assert flat["n"] == [1, 4, 16]
    assert flat["power"]["seconds"] == pytest.approx(0.5)
    assert flat["verdict"] == "met"
    # Over all sizes it looks linear; between the two largest it is quadratic.
    assert late["power"]["cpu_s"] == pytest.approx(1)
    assert late["last_power"]["cpu_s"] == pytest.approx(2)
    assert (late["verdict"], late["steep"]) == ("missed", ["late"])
    monkeypatch.setitem(growth.REASONS, "late", "it sorts")
    (again,) = growth.lines(cases[6:9])
    assert (again["verdict"], again["reasons"]) == ("met", {"late": "it sorts"})


def here_and_there(seconds):
    def spend():
        import time

        end = time.process_time() + seconds
        while time.process_time() < end:
            sum(range(1000))

    other = threading.Thread(target=spend)
    other.start()
    other.join()
    return 7


def test_a_profile_has_the_threads_and_leaves_waiting_out():
    result, stats = profiling.profiled(lambda: here_and_there(0.05))
    head = profiling.head(stats)
    assert result == 7
    assert any("spend" in name for name, _ in head["functions"])
    assert not any("lock" in name for name, _ in head["functions"])


def test_the_whole_run_from_command_to_page(known, tmp_path, monkeypatch, capsys):
    module = type(sys)("benchmarks.suite.stages.test")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(run.MODULES, "test", ("test",))
    monkeypatch.setattr(command, "STAGES_IN_ORDER", ("test",))
    monkeypatch.setattr(history, "RUNS", tmp_path / "runs.jsonl")
    monkeypatch.setattr(rounds, "FURTHER", 0)
    slow = Way("slow", OURS, case.way("command.retime", "--help"), clock="inside_s")

    def cases(_):
        yield known
        yield Case("stage, slow", "stage", 1, "calls", (slow,), bounds=(
            Bound("slow", "seconds", 0.0, "no time at all"),))  # fmt: skip
        raise RuntimeError("no input")

    monkeypatch.setitem(case.STAGES, "test", [cases])
    kept, page = tmp_path / "kept.json", tmp_path / "page.md"
    monkeypatch.setattr(history.append, "__defaults__", (tmp_path / "runs.jsonl",))
    monkeypatch.setattr(history.rows, "__defaults__", (tmp_path / "runs.jsonl",))
    words = ["--tiny", "--json", str(kept), "--docs", str(page), "--history"]
    assert command.main(words) == 1  # an input could not be made
    out, err = capsys.readouterr()
    assert "no input" in err
    assert re.search(r"ours / peer +10 \(5 to 20\) +times faster", out)
    assert re.search(r"ours / half +1 \(0.5 to 2\) +of the limit's speed", out)
    assert "MISSED, some runs not" in out
    found = json.loads(kept.read_text())
    assert [c["name"] for c in found["cases"]] == ["stage, known", "stage, slow"]
    assert found["cases"][0]["ratios"][0]["values"] == [10, 5, 20]
    profile = found["cases"][1]["profiles"]["slow"]
    assert profile["total_s"] > 0
    assert profile["functions"]
    # Who ran it, and where, is in nothing that is kept.
    assert str(tmp_path) not in json.dumps(found["machine"])
    text = page.read_text()
    assert "| stage, known | ours | eleven times | at least 11 times peer | 10 (5 to 20) |" in text
    assert text.index("eleven times") < text.index("ten times |")  # the missed ones first
    assert "## Where the time of what misses is" in text
    assert "- absent: nowhere" in text
    assert "| stage, known: ours / peer | **10** |" in text
    # The page of two results: a case is taken from the last that has it.
    found["cases"] = found["cases"][:1]
    found["cases"][0]["ratios"][0]["goal"] = "a later word"
    kept.with_name("b.json").write_text(json.dumps(found))
    again = ["docs", str(kept), str(kept.with_name("b.json")), "--docs", str(page)]
    assert command.main(again) == 0
    assert "a later word" in page.read_text()
    assert page.read_text().count("| stage, known | ours | eleven times") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "nothing"], "no stage 'nothing'"),
        (["--runs", "0"], "give 1 or more"),
        (["--traces", "/nowhere/at/all"], "no such folder"),
        (["docs"], "give the results"),
        (["docs", "/nowhere/at/all"], "no result of the suite"),
    ],
)
def test_what_cannot_be_asked(words, said, capsys):
    assert command.main(words) == 2
    assert said in capsys.readouterr().err


class Stubs(inputs.Inputs):
    """Inputs that are not made: only their names."""

    in_notebooks = ("waits",)  # type: ignore[assignment]
    no_simdjson = ""  # type: ignore[assignment]

    def no_cold(self, path):
        return ""

    def _make(self, what, *words):
        goal = words[1] if what in ("gzipped", "repeated", "nsys") else words[0]
        if what == "generated":
            goal = goal / "node0" / "a.json.gz"
        elif what in ("warehouse", "ingested", "routing"):
            goal = goal / "a.csv"
        goal.parent.mkdir(parents=True, exist_ok=True)
        goal.write_bytes(b"x" * 10)


@pytest.mark.parametrize("size", ["tiny", "quick", "large"])
def test_every_case_is_of_ways_that_there_are(tmp_path, monkeypatch, size):
    """Names in ratios, goals and growth are of its ways; each command is a function's arguments."""
    traces = tmp_path / "kineto"
    traces.mkdir()
    (traces / "a.json").write_bytes(b"x" * 200_000)
    for name in ("trace-AR.parquet", formats.LOG, formats.EXPORT):
        (traces / name).write_bytes(b"x")
    made = Stubs(tmp_path / "made", **{size: True}, traces=tmp_path, artifact=tmp_path)
    (tmp_path / "made").mkdir()
    monkeypatch.setattr(inputs, "can_import", lambda module: True)
    names = []
    for stage in run.STAGES_IN_ORDER:
        for one in run.cases_of(stage, made):
            names.append(one.name)
            ways = {w.name for w in one.ways}
            assert len(ways) == len(one.ways), one.name
            told = {r.ours for r in one.ratios} | {r.other for r in one.ratios}
            told |= {n for r in one.ratios for n in r.instead or ()}
            told |= {b.way for b in one.bounds} | {n for group in one.same for n in group}
            assert told | set(one.grows) <= ways, one.name
            for way in one.ways:
                runs_a_function(way.command)
                runs_a_function(way.part)
    assert len(set(names)) == len(names)
    assert {n.split(",")[0] for n in names} == set(run.STAGES_IN_ORDER)


def runs_a_function(words):
    """A command of `run_way` names a function that takes so many words."""
    if words[1:3] != ("-m", case.RUN_WAY):
        return
    module, function = words[3].rsplit(".", 1)
    home = "benchmarks" if module.startswith("limits.") else "benchmarks.suite.ways"
    found = getattr(importlib.import_module(f"{home}.{module}"), function)
    inspect.signature(found).bind(*words[4:])


def test_nothing_of_a_run_that_has_no_goals():
    found = {"clock": "cpu", "cases": [], "growth": [], "machine": run.machine(), "runs": 1,
             "date": "2026-01-01", "stages": [], "size": "tiny"}  # fmt: skip
    assert "cores of" in table.text(found)
    assert "## Goals" not in docs.page([found], [])
    assert "seconds are of CPU" in docs.page([found], [])


def test_the_list_names_every_case_and_makes_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(inputs, "measured", None)
    assert command.main(["list", "--large", "--folder", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name in ("ingest, Kineto, 400 MB: ", "routing csv, a part in 16", "views of 1,024 ranks"):
        assert sum(name in line for line in lines) == 1, name
    assert {line.split()[0] for line in lines} == set(run.STAGES_IN_ORDER)
    assert list(tmp_path.iterdir()) == []


def test_a_round_that_compiles_is_run_again(tmp_path, monkeypatch):
    """What ours keeps for all later runs is in no figure; what a peer does is its own affair."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    kept = tmp_path / "cache" / "retime" / "code-{}"
    keeps = SAYS + (
        f"kept = pathlib.Path({str(kept)!r}.format(name))\n"
        "kept.parent.mkdir(parents=True, exist_ok=True)\n"
        "kept.exists() or kept.touch()\n"
    )
    log = tmp_path / "log"

    def way(name, role):
        command = (sys.executable, "-c", keeps, str(log), name, "9", "1", "1")
        return Way(name, role, command, clock="inside_s")

    one = Case("stage, known", "stage", 1, "MB", (way("ours", OURS), way("peer", PEER)), ())
    told = []
    found, _ = rounds.measured(one, 2, tmp_path, told.append)
    assert [r["inside_s"] for r in found["ours"]] == [1, 1]
    assert [r["inside_s"] for r in found["peer"]] == [9, 1]
    assert sum("compiled" in line for line in told) == 1
