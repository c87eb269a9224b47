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


def test_without_policies_the_floors_are_a_sentence():
    lines = screen(160, replay_screen.show_replay, result([]))
    assert lines[-1] == (
        "floors: no step under 120 ms with communication free, or 30.0 ms at the busiest link "
        "(rank 3, inter host: 1.5 GB a step at 50 GB/s (fabric h100))"
    )


def test_the_calibration():
    row = {
        "comm": "0", "dim": "dp", "op": "all_reduce", "algo": "ring", "level": "intra host",
        "n": 8, "alpha_ns": 2_500.0, "alpha_error_ns": 130.0, "bandwidth_bytes_per_s": 295e9,
        "bandwidth_error_bytes_per_s": 12e9, "separated": True, "error_pct": 23.9,
        "tau_ns": 15_600.0, "tau_spread_ns": 105_000.0, "collectives": 28, "min_bytes": 192,
        "max_bytes": 150_994_944, "caveat": None,
    }  # fmt: skip
    none = {**row, "alpha_ns": None, "bandwidth_bytes_per_s": None, "separated": False,
            "error_pct": None, "caveat": "larger ones took no longer"}  # fmt: skip
    lines = screen(200, replay_screen.show_replay, result([], calibration=[row, none]))
    assert lines[-2].split() == [
        "all_reduce", "on", "0", "dp", "8", "intra", "host", "ring", "2.50", "us", "±", "130",
        "ns", "295", "±", "12", "GB/s", "15.6", "us", "±", "105", "us", "28", "23.9", "%",
    ]  # fmt: skip
    assert lines[-1].endswith("larger ones took no longer")


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
