"""Who is named, by what rule, and in which words nobody is: the same at every door."""

from __future__ import annotations

import io
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest
import retime
from retime.analysis import culprit, frames, terminal
from retime.analysis.report import caveats, gather, headline
from rich.console import Console

Open = Callable[..., duckdb.DuckDBPyConnection]
Rows = dict[str, list[dict[str, Any]]]


def looked_at(con: duckdb.DuckDBPyConnection) -> dict[str, Any]:
    """Facts of a connection with the culprit that `Job.show` gives."""
    facts = {**frames.facts(con), **frames.headline(con)}
    return {**facts, "culprit": culprit.find(SimpleNamespace(con=con), facts)}  # type: ignore[arg-type]


def began_later(rows: Rows, by_ns: int) -> Rows:
    """Rank 1 begins its step that much later, and computes that much less before the all-reduce."""
    for r in rows["steps"]:
        if r["rank"] == 1:
            r |= {"start_ns": by_ns, "host_start_ns": by_ns}
    for e in rows["events"]:
        if e["event_id"] == 4:
            e |= {"start_ns": by_ns, "dur_ns": 700 - by_ns}
    return rows


def another(rows: Rows, starts: tuple[int, int]) -> Rows:
    """A second all-reduce, which begins at `starts` on ranks 0 and 1 and ends at 990."""
    for rank, start in enumerate(starts):
        id = 10 + rank
        rows["events"].append(
            {**rows["events"][1], "rank": rank, "event_id": id, "start_ns": start,
             "dur_ns": 990 - start, "device": rank}
        )  # fmt: skip
        rows["collectives"].append(
            {**rows["collectives"][0], "rank": rank, "event_id": id, "start_ns": start,
             "end_ns": 990, "seq": 2, "collective_id": 78}
        )  # fmt: skip
    return rows


def test_the_rank_that_computes_longer_is_named(small: duckdb.DuckDBPyConnection) -> None:
    found = looked_at(small)
    assert (found["culprit"]["rank"], found["culprit"]["by"]) == (1, "arrivals")
    assert found["culprit"]["late"]["wait_caused_ns"] == 300
    assert found["start_spread_ns"] == 0
    assert terminal.straggler_sentence(found).startswith(
        "The others wait for rank 1 on a: it was last to start in 1 of 1 collectives, and coming "
        "with the last but one would have spared the others 300 ns, added up over ranks, 100 % of "
        "all the wait of all ranks (300 ns). Rank 1 computes 700 ns"
    )


def test_nobody_is_named_for_when_its_recording_began(open_rows: Open, rows: Rows) -> None:
    # Rank 1 computes 400 ns as rank 0 does, from 300 ns on: all of its lateness.
    found = looked_at(open_rows(began_later(rows, 300)))
    assert found["waited_for"]["rank"] == 1
    assert found["start_spread_ns"] == 300
    assert found["culprit"] is None
    skew = (
        "Ranks began recording up to 300 ns apart: the first collective's wait may be the "
        "profiler's own. Record several steps to tell."
    )
    said = terminal.straggler_sentence(found)
    assert said == (
        "The traces name no rank: rank 1 was last at the greatest cost, 300 ns, added up over "
        "ranks, 100 % of all the wait of all ranks (300 ns), but that follows from when it began "
        f"recording. {skew}"
    )
    assert skew.replace("'", "&#x27;") in caveats.render(found, []).html


def test_lateness_that_begins_after_the_first_collective_is_its_own(
    open_rows: Open, rows: Rows
) -> None:
    # At the second all-reduce rank 1 comes 40 ns after rank 0, of 340 ns of wait: over a tenth.
    found = looked_at(open_rows(another(began_later(rows, 300), (940, 980))))
    assert culprit._first_caused(open_rows(rows)) == {1: 300}
    assert found["waited_for"]["wait_caused_ns"] == 340
    # What explains it is still that it began late, so nobody is named.
    assert found["culprit"] is None
    # Having begun 60 ns late only, it computes 240 ns longer: that is its own.
    rows = began_later(rows, 60)
    for e in rows["events"]:
        if e["event_id"] == 4:
            e |= {"start_ns": 60, "dur_ns": 640}
    found = looked_at(open_rows(rows))
    assert found["culprit"]["rank"] == 1
    assert "Ranks began recording up to 60 ns apart" in terminal.straggler_sentence(found)


def test_several_steps_show_whose_the_start_is(open_rows: Open, rows: Rows) -> None:
    rows = began_later(rows, 300)
    rows["steps"] += [
        {**r, "step": 6, "start_ns": 1000, "end_ns": 2000, "host_start_ns": 1000,
         "host_end_ns": 2000}
        for r in rows["steps"]
    ]  # fmt: skip
    assert frames.start_spread_ns(open_rows(rows)) is None


def test_clocks_that_nothing_ties_together_have_no_spread(open_rows: Open, rows: Rows) -> None:
    rows = began_later(rows, 300)
    rows["ranks"][1] |= {"host": "b", "clock_error_ns": None, "clock_offset_ns": None}
    rows["ranks"][0] |= {"clock_error_ns": None, "clock_offset_ns": None}
    assert frames.start_spread_ns(open_rows(rows)) is None


def test_a_trace_without_steps_begins_with_its_first_event(open_rows: Open, rows: Rows) -> None:
    rows["ranks"][1]["start_ns"] = 250
    rows["steps"] = []
    assert frames.start_spread_ns(open_rows(rows)) == 250


LAST = {"rank": 3, "wait_caused_ns": 90, "wait_share": 0.09}


@pytest.mark.parametrize(
    ("facts", "end"),
    [
        ({"all_wait_ns": 1000, "waited_for": LAST}, "(1 us), too little to explain the rest."),
        (
            {"all_wait_ns": 1000, "waited_for": {**LAST, "wait_share": 0.9}},
            "but that is within the clocks' error or a hundredth of its own time.",
        ),
        ({"all_wait_ns": 0, "waited_for": LAST}, "name no rank: none makes the others wait."),
    ],
)
def test_nobody_is_named_in_words(facts: dict[str, Any], end: str) -> None:
    said = terminal.straggler_sentence({**facts, "paired_wait_share": 0.0, "culprit": None})
    assert said.replace("1.00 us", "1 us").endswith(end)


def test_all_doors_say_the_same_of_a_real_one_step_capture(retime_traces, tmp_path) -> None:
    warehouse = retime.open(tmp_path)
    warehouse.ingest(str(retime_traces / "kineto/param/dlrm_kineto.tar.gz"), job="dlrm")
    job = warehouse.job("dlrm")
    facts = job.show()
    said = terminal.straggler_sentence(facts)
    assert said.startswith("The traces name no rank: rank 7 was last at the greatest cost, 9.16 ms")
    assert "Ranks began recording up to 7.51 ms apart" in said
    screens = []
    for show, found in (
        (terminal.show_job, facts),
        (terminal.show_stragglers, job.stragglers()),
    ):
        out = Console(file=io.StringIO(), width=10_000, highlight=False, markup=False)
        show(out, found)
        screens.append(out.file.getvalue())  # type: ignore[attr-defined]
    assert all(said in screen for screen in screens)
    data = gather(job)
    page = headline.render(data)
    assert said.replace("'", "&#x27;") in page
    # No single rank is tried or blamed in the page's fixes, and `show` leads with the same one.
    assert [r["policy"] for r in data["whatif"]["rows"] if "ranks=" in r["policy"]] == []
    assert f"<strong>{facts['fix_first']['head']}.</strong>" in page
    assert f"Fix first: {facts['fix_first']['head']}. {facts['fix_first']['gain']}" in screens[0]
