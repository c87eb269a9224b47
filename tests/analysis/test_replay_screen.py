"""Replays on a terminal: a line a policy where it fits, doubts first, floors, the catalogue."""

from __future__ import annotations

import io

from retime.analysis import catalogue, replay_screen
from rich.console import Console


def screen(width, show, *args):
    out = Console(file=io.StringIO(), width=width, highlight=False)
    show(out, *args)
    return out.file.getvalue().splitlines()  # type: ignore[attr-defined]


def entry(name="align-arrivals", **params):
    return {
        "name": name,
        "params": {"ranks": [], "factor": 0.0, **params},
        "step_ns": 160_000_000,
        "low_ns": 159_000_000,
        "high_ns": 161_500_000,
        "gain_pct": 4.9,
        "recovered": {"wait_ns": 8_000_000, "transfer_ns": 0, "exposed_ns": 7_000_000},
        "floors": {
            "free_communication_ns": 120_000_000,
            "busiest_link_ns": 30_000_000,
            "link": "rank 3, inter host: 1.5 GB a step at 50 GB/s (fabric h100)",
        },
        "assumptions": ["compute keeps its time"],
        "warnings": ["few steps"],
    }


def result(policies, **more):
    return {
        "steps": [1, 2, 3],
        "measured_ns": 168_200_000,
        "replayed_ns": 168_300_000,
        "fidelity_pct": 0.06,
        "critical_path": None,
        "floors": entry()["floors"],
        "warnings": [],
        "policies": policies,
        **more,
    }


def test_a_line_a_policy_where_it_fits():
    lines = screen(160, replay_screen.show_replay, result([entry()]))
    assert lines[2].split() == [
        "policy", "step", "(interval)", "gain", "wait", "transfer", "exposed", "free", "comm",
        "busiest", "link",
    ]  # fmt: skip
    assert lines[3].split() == [
        "align-arrivals", "160.0", "ms", "(159.0", "to", "161.5)", "4.9", "%", "8.00", "ms", "0",
        "ns", "7.00", "ms", "120", "ms", "30.0", "ms",
    ]  # fmt: skip
    assert "busiest link: rank 3, inter host: 1.5 GB a step at 50 GB/s (fabric h100)" in lines


def test_three_lines_a_policy_where_it_does_not():
    long = entry(ranks=list(range(40)))
    lines = screen(80, replay_screen.show_replay, result([entry(), long]))
    assert all(len(line) <= 80 for line in lines)
    at = lines.index("align-arrivals")
    assert lines[at + 1].split()[:3] == ["160.0", "ms", "(159.0"]
    assert lines[at + 1].split()[-2:] == ["7.00", "ms"]
    assert lines[at + 2] == "  floors: 120 ms free comm, 30.0 ms busiest link"
    # The long name is whole, over as many lines as it needs.
    assert "align-arrivals:ranks=0+1+2+3+4+5" in "".join(lines)
    assert "+37+38+39" in "".join(lines)


def test_what_is_doubtful_is_said_before_anything_else():
    from retime.replay.run import DOUBTFUL

    said = f"{DOUBTFUL}: the unchanged replay is 24.2 % off the measured steps"
    doubted = {**entry(), "warnings": [said, "few steps"]}
    lines = screen(160, replay_screen.show_replay, result([doubted], warnings=[said]))
    assert lines[0] == f"WARNING: {said}"
    assert sum(said in line for line in lines) == 1
    assert lines[-1] == "warning: few steps"


def test_what_several_policies_say_is_there_once_under_their_names():
    a = {**entry("a"), "assumptions": ["of all", "of a and b"], "warnings": []}
    b = {**entry("b"), "assumptions": ["of all", "of a and b", "of b"], "warnings": ["b warns"]}
    c = {**entry("c"), "assumptions": ["of all"], "warnings": []}
    both = {**entry("a + b + c"), "assumptions": ["in order", "of all", "of a and b", "of b"],
            "warnings": ["b warns", "the job warns"]}  # fmt: skip
    lines = screen(
        160, replay_screen.show_replay, result([a, b, c, both], warnings=["the job warns"])
    )
    assert lines[lines.index("assumes: of all") :] == [
        "assumes: of all",
        "assumes (a, b):",
        "  - of a and b",
        "assumes (b):",
        "  - of b",
        "assumes (all together):",
        "  - in order",
        "warning: the job warns",
        "warning (b):",
        "  - b warns",
    ]


def test_points_of_a_sweep_are_counted_not_named():
    points = [
        {**entry(factor=k / 10), "warnings": [] if k else ["nobody is late"]} for k in range(5)
    ]
    lines = screen(160, replay_screen.show_replay, result(points))
    assert lines[-3:] == [
        "assumes: compute keeps its time",
        "warning (align-arrivals (1 of 5 points)):",
        "  - nobody is late",
    ]


def test_long_sentences_are_wrapped_under_themselves():
    long = {**entry(), "assumptions": ["a word " * 30], "warnings": []}
    lines = screen(80, replay_screen.show_replay, result([long]))
    at = next(i for i, line in enumerate(lines) if line.startswith("assumes: a word"))
    assert len(lines) > at + 2
    assert all(len(line) <= 80 for line in lines)
    assert all(
        line.startswith(" " * 9 + "a word") or line.startswith(" " * 9 + "word")
        for line in lines[at + 1 :]
    )


def test_without_policies_the_floors_are_a_sentence():
    lines = screen(160, replay_screen.show_replay, result([]))
    assert lines[-1] == (
        "floors: no step under 120 ms with communication free, or 30.0 ms at the busiest link "
        "(rank 3, inter host: 1.5 GB a step at 50 GB/s (fabric h100))"
    )


def test_the_catalogue_is_in_the_order_in_which_policies_apply():
    lines = screen(160, replay_screen.show_policies, catalogue.policies(), False)
    names = [line.split()[0] for line in lines[:-1] if not line.startswith(" ")]
    assert names.index("parallelism") < names.index("algorithm") < names.index("align-arrivals")
    assert "stages" in lines[-1]


def test_a_policy_says_its_stage_and_what_it_needs_and_is_held_to():
    (row,) = catalogue.policies("align-arrivals")
    lines = screen(160, replay_screen.show_policies, [row], True)
    assert "Stage: arrivals (6 of 7 in which policies apply)" in lines
    assert any(line.startswith("Holds: ") for line in lines)
    assert any(
        line.startswith("Checked against: ranks ready at 0, 0, 0 and 2 ms") for line in lines
    )
    assert "Needs of the trace" in lines
