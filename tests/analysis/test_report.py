"""The page: self-contained, safe against what traces are named, and honest where data is absent."""

from __future__ import annotations

import html.parser
import json
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest
from retime.analysis import culprit, frames, hangs, report, units
from retime.analysis.report import parts
from retime.ingest.errors import UsageError
from retime.queries.loader import materialise

Open = Callable[..., duckdb.DuckDBPyConnection]

HOSTILE = "</script><img src=x onerror=alert(1)>\u2028[bold]\x1b[31m"


def gathered(con: duckdb.DuckDBPyConnection) -> dict[str, Any]:
    materialise(con)
    job = SimpleNamespace(con=con, id="small")
    facts = {**frames.facts(con), **frames.headline(con), "holds": frames.holdings(con)}
    facts["culprit"] = culprit.find(job, facts)  # type: ignore[arg-type]
    job.show = lambda: facts
    return report.gather(job, estimates=False)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def data(small_job: duckdb.DuckDBPyConnection) -> dict[str, Any]:
    """What the page of `two_ranks` is made of."""
    return gathered(small_job)


class Page(html.parser.HTMLParser):
    """Tags and text of a page, scripts apart."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.words: list[str] = []
        self.inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.inside = tag

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        (self.scripts if self.inside == "script" else self.words).append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def test_the_page_says_where_the_step_went_and_who_is_waited_for(data: dict[str, Any]) -> None:
    text = Page(report.page(data)).text
    assert "A step takes 1.00 us mean over ranks and steps" in text
    assert "exposed wait 150 ns 15.0 %" in text
    assert "The others wait for rank 1 on a" in text
    assert "1 collective by sequence number" in text
    assert "truncated" in text


def test_a_wait_that_nothing_tells_is_not_said_to_be_none(data: dict[str, Any]) -> None:
    facts = {**data["facts"], "wait_ns": 0, "transfer_ns": 0, "unsplit_ns": 350}
    text = Page(report.page({**data, "facts": facts})).text
    for what in ("exposed wait", "exposed transfer"):
        assert f"{what} not known of each collective one rank was seen" in text
        assert f"{what} 0 ns" not in text
    assert "exposed communication (wait not known) 350 ns 35.0 %" in text


def test_charts_hold_the_numbers_of_the_frames(data: dict[str, Any]) -> None:
    page = Page(report.page(data))
    drawn = json.loads(page.scripts[0])
    assert drawn["ranks"] == [{"rank": 0, "host": "a"}, {"rank": 1, "host": "a"}]
    assert drawn["breakdown"]["by_rank"] == {
        "0": {"compute": 400, "wait": 300, "transfer": 200, "memcpy": 50, "idle": 50},
        "1": {"compute": 800, "transfer": 100, "memcpy": 50, "idle": 50},
    }
    (step,) = drawn["timeline"]["steps"]
    assert (step["step"], step["span_ns"], step["merged_ns"]) == (5, 1000, 0)
    assert step["labels"] == ["all_reduce · 2 KiB"]
    # Of 32768 ticks: compute to 400 ns, wait to 700, transfer to 900, a copy to 950, idle.
    ends = [round(32768 * t / 1000) for t in (0, 400, 700, 900, 950, 1000)]
    lengths = [b - a for a, b in pairwise(ends)]
    lane = step["lanes"]["0"]
    assert [(v // 8, v % 8) for v in lane["run"]] == list(
        zip(lengths, (1, 3, 4, 6, 0), strict=True)
    )
    assert lane["parts"] == [0, ends[1], round(32768 * 0.3), round(32768 * 0.5)]
    assert step["heat"]["rows"] == {"0": [300], "1": [0]}
    charts = {a["data-chart"] for t, a in page.tags if t == "div" and "data-chart" in a}
    assert charts == {"timeline", "heat", "bandwidth"}


def test_nothing_is_fetched(data: dict[str, Any]) -> None:
    page = Page(report.page(data))
    for _, attributes in page.tags:
        assert not {"src", "srcset", "action"} & set(attributes)
        assert str(attributes.get("href", "#")).startswith("#")
    policies = [a["content"] for t, a in page.tags if a.get("http-equiv")]
    assert len(policies) == 1
    policy = str(policies[0])
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "http" not in policy
    assert "unsafe-eval" not in policy
    assert policy.count("'sha256-") == 1


def test_hostile_names_stay_text(open_rows: Open, rows: dict[str, Any]) -> None:
    rows["ranks"][1]["host"] = HOSTILE
    rows["comms"][0]["dim"] = HOSTILE
    rows["ranks"][0]["device_name"] = HOSTILE
    for row in rows["collectives"]:
        row["op"] = "all_reduce"
    text = report.page(gathered(open_rows(rows, job="small")))
    page = Page(text)
    assert not [t for t, _ in page.tags if t == "img"]
    assert len(re.findall("</script>", text)) == text.count("<script") == 2
    assert "\u2028" not in page.scripts[0]
    assert "\x1b" not in text
    json.loads(page.scripts[0])


def test_a_hang_stands_before_all_else_and_its_names_stay_text(
    open_rows: Open, rows: dict[str, Any]
) -> None:
    def hung(rank: int, seq: int, state: str) -> dict[str, Any]:
        return {"comm": "w", "seq": seq, "rank": rank, "op": "all_reduce", "state": state,
                "enqueued_ns": rank, "event_id": rank, "source": "flight-recorder"}  # fmt: skip

    con = open_rows(
        {
            "jobs": rows["jobs"],
            "ranks": [{"rank": r} for r in (0, 1)],
            "comms": [{"comm": "w", "name": HOSTILE, "ranks": [0, 1], "size": 2, "dim": "dp"}],
            "collectives": [hung(0, 5, "scheduled"), hung(1, 4, "completed")],
        }
    )
    facts = {**frames.facts(con), **frames.headline(con), "hang": hangs.find(con)}
    job = SimpleNamespace(con=con, id="small", show=lambda: facts)
    found = report.gather(job, estimates=False)  # type: ignore[arg-type]
    text = report.page(found)
    page = Page(text)
    said = page.text
    first = said.index("Hang: look at rank 1 first.")
    assert first < said.index("Not recorded: when anything ran on a GPU")
    assert "Rank 1 has nothing under way: its process stopped before" in said
    assert "(dp, 2 ranks): rank 1 never entered it; rank 0 has." in said
    assert "If the job was still running when it was dumped, this may be lag alone." in said
    assert [a["id"] for t, a in page.tags if t == "section"] == ["caveats"]
    assert not [t for t, _ in page.tags if t == "img"]
    assert "\x1b" not in text
    # Without a hang nothing is said of one.
    found["facts"] = facts | {"hang": None}
    assert "Hang" not in Page(report.page(found)).text


def test_a_job_without_collectives_says_so(open_rows: Open, rows: dict[str, Any]) -> None:
    del rows["collectives"]
    rows["events"] = [e for e in rows["events"] if e["category"] != "comm"]
    page = Page(report.page(gathered(open_rows(rows))))
    assert "This job has no collectives, so no rank waits for another." in page.text
    assert "No rank communicates, so there is nothing to overlap." in page.text
    assert "heat" not in {a.get("data-chart") for _, a in page.tags}


def test_one_rank_says_that_waits_cannot_be_known(open_rows: Open, rows: dict[str, Any]) -> None:
    rows = {k: [r for r in v if r.get("rank", 0) == 0] for k, v in rows.items()}
    rows["jobs"][0]["ranks_seen"] = 1
    text = Page(report.page(gathered(open_rows(rows)))).text
    assert "One rank was seen, so nobody's arrival can be compared" in text
    assert "Ranks: 1 of 2 left a trace" in text


def test_no_steps_and_no_events(open_rows: Open, rows: dict[str, Any]) -> None:
    del rows["steps"]
    text = Page(report.page(gathered(open_rows(rows)))).text
    assert "No steps were found in this job, so these are times of whole traces." in text
    bare = {k: v for k, v in rows.items() if k in ("jobs", "ranks")}
    page = Page(report.page(gathered(open_rows(bare, job="bare"))))
    assert "Not recorded: when anything ran on a GPU" in page.text
    assert [a["id"] for t, a in page.tags if t == "section"] == ["caveats"]
    assert "timeline" not in json.loads(page.scripts[0])


def test_what_if_shows_intervals_and_reasons(data: dict[str, Any]) -> None:
    data = {**data}
    data["whatif"] = {
        "measured_ns": 1_000_000,
        "replayed_ns": 1_002_000,
        "fidelity_pct": 0.0,
        "critical_path": {
            "work_share": 0.5,
            "host_share": 0.25,
            "transfer_share": 0.1,
            "unexplained_share": 0.15,
        },
        "error": None,
        "lead": ["align-arrivals"],
        "rows": [
            {
                "policy": "align-arrivals",
                "words": "nobody arrives late",
                "error": None,
                "step_ns": 850_000,
                "low_ns": 840_000,
                "high_ns": 861_000,
                "gain_pct": 15.0,
                "recovered": {"wait_ns": 150_000, "transfer_ns": 0, "exposed_ns": 120_000},
                "assumptions": ["compute <keeps> its time"],
                "warnings": ["few steps"],
            },
            {"policy": "algorithm:algo=x", "words": "as x", "error": "there is no x"},
        ],
    }
    text = Page(report.page(data)).text
    assert "Fix first Get all ranks to their collectives at the same time." in text
    assert "the step would take 150 us (139 to 160) less (15.0 %)." in text
    assert "nobody arrives late 850 us (840 to 861) 15.0 %" in text
    assert (
        "replayed unchanged 1.002 ms: off by less than 0.01 %; 15.0 % of the critical path is gaps "
        "no recorded dependency explains, kept as measured, as is the host time between calls "
        "(25.0 %)"
    ) in text
    assert "trust no difference" not in text
    assert "compute <keeps> its time" in text
    assert "as x there is no x" in text


def test_a_long_table_says_what_it_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "MOST_ROWS", 2)
    text = parts.table([{"rank": r} for r in (4, 5, 6)], {"rank": "rank"})
    assert "The first 2 of 3 rows" in text
    assert 'data-rank="5"' in text
    assert 'data-rank="6"' not in text


def test_save_is_whole_or_nothing(tmp_path: Path) -> None:
    written = report.save("<p>", tmp_path / "deep" / "x.html")
    assert written.read_text() == "<p>"
    assert [p.name for p in written.parent.iterdir()] == ["x.html"]
    with pytest.raises(UsageError, match="is a folder"):
        report.save("<p>", tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        report.save("<p>", tmp_path / "file" / "x.html")


def test_units_on_axes_follow_the_longest_bar() -> None:
    assert units.unit_of(2_500_000) == (1_000_000, "ms")
    assert units.unit_of(0) == (1, "ns")


def test_a_page_without_times_has_only_what_there_is(open_rows: Open, rows: dict[str, Any]) -> None:
    routed = [
        {"step": 0, "layer": 0, "rank": 0, "expert": e, "tokens": 4, "source": "x"} for e in (0, 1)
    ]
    text = report.page(gathered(open_rows({"jobs": rows["jobs"], "routing": routed})))
    page = Page(text)
    sections = [a["id"] for tag, a in page.tags if tag == "section"]
    assert sections == ["experts", "caveats"]
    assert [a["data-go"] for tag, a in page.tags if "data-go" in a] == sections
    assert page.text.count("Not recorded: ") == 1
    assert "It holds 2 routed counts." in page.text
    assert "the work of any rank, so there is no step to split and nobody to wait for" in page.text
    assert "record a few steps of every rank with torch.profiler" in page.text
    assert "note absent" not in text[text.index("<body>") :]
