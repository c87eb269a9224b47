"""The ideals beside each other: whose step each is of, what it gives and assumes."""

from __future__ import annotations

import io
from typing import Any

from retime.analysis import ideals, terminal
from retime.analysis.report import whatif_table
from rich.console import Console

WORDS = {
    "align-arrivals": "nobody arrives late",
    "align-arrivals:ranks=1+2": "ranks 1 and 2 together are not late",
    "align-arrivals:to=ideal": "every operation takes its ideal time",
    "algorithm:op=all_reduce,algo=tree": "all-reduce as a tree",
}


def whatif(**step_ns: int) -> dict[str, Any]:
    given = dict(zip(WORDS, step_ns.values(), strict=True))
    rows = [
        {
            "policy": policy, "words": WORDS[policy], "error": None, "step_ns": ns, "low_ns": ns,
            "high_ns": ns, "gain_pct": 100 - ns / 10,
        }
        for policy, ns in given.items()
    ]  # fmt: skip
    return {
        "rows": rows, "error": None, "steps": [1, 2], "measured_ns": 1000, "replayed_ns": 1000,
        "fidelity_pct": 0.0,
    }  # fmt: skip


FOUND = whatif(all=700, some=800, ideal=900, tree=950)


def study(replayed_ns: float, ideal_ns: float) -> dict[str, Any]:
    slowdown = replayed_ns / ideal_ns
    return {"replayed_ns": replayed_ns, "ideal_ns": ideal_ns, "slowdown": slowdown}


def test_the_study_of_a_traced_job_is_the_row_of_its_ideal() -> None:
    rows = ideals.rows(FOUND, study(1000.4, 899.8))
    assert [(r["ideal"], r["step_ns"], r["gain_pct"]) for r in rows] == [
        ("nobody arrives late", 700, 30.0),
        ("ranks 1 and 2 together are not late", 800, 20.0),
        ("every operation takes its ideal time", 900, 10.0),
    ]
    assert rows[2]["assumes"].endswith("(S = 1.112 of the straggler study)")
    assert "these ranks only" in rows[1]["assumes"]
    assert len({r["assumes"] for r in rows}) == 3


def test_the_study_of_recorded_operations_is_of_another_step() -> None:
    last = ideals.rows(FOUND, study(800, 600))[-1]
    assert (last["from_ns"], last["step_ns"], last["gain_pct"]) == (800, 600, 25.0)
    assert last["ideal"] == "the straggler study's ideal (S = 1.333)"
    assert "without launch delays" in last["assumes"]


def test_a_policy_that_failed_and_one_that_is_no_ideal_have_no_row() -> None:
    failed = {"policy": "align-arrivals", "words": "nobody arrives late", "error": "no"}
    assert ideals.rows({"rows": [failed, FOUND["rows"][3]], "measured_ns": 1000}) == []


def test_page_and_screen_set_them_beside_each_other() -> None:
    facts = {"steps": 2}
    page = whatif_table.render(FOUND, facts).html
    table = page[page.index("The ideals beside each other") :]
    assert [table.count(f"{ns} ns of 1.00 us") for ns in (700, 800, 900, 950)] == [1, 1, 1, 0]
    assert "a mean spreads slow work over all ranks" in table
    for width in (80, 160):
        out = Console(file=io.StringIO(), width=width, highlight=False, markup=False)
        terminal.show_stragglers(
            out, {**study(1000, 900), "said": "Who.", "ideals": ideals.rows(FOUND)}
        )
        lines = out.file.getvalue().splitlines()  # type: ignore[attr-defined]
        assert max(map(len, lines)) <= width
        at = lines.index("the ideals beside each other")
        assert lines[at - 2] == "Who."
        first = " ".join(lines[at + 2].split())
        assert first == "nobody arrives late 700 ns of 1.00 us 30.0 %"
        assert any(line.strip().startswith("the same of these ranks only") for line in lines[at:])
