"""The page in a real browser: it loads in silence, nothing on it is empty, a selection filters."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from retime.analysis import frames, report
from retime.queries.loader import materialise

from .chromium import Browser, browser, path
from .conftest import connection, two_ranks
from .test_report_panels import EXPERTS, RAILS

pytestmark = pytest.mark.skipif(path() is None, reason="there is no Chromium here")

HOSTILE = (
    "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1>"
    "\"'`${window.hacked=1}<!--\u2028\u202ereversed\x1b[31m"
)
"""A name that tries markup, script, quotes, templates, comments, bidi and terminal control."""


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with every panel filled, of a job whose every name is hostile."""
    folder = tmp_path_factory.mktemp("page")
    rows = two_ranks()
    for rank, row in enumerate(rows["ranks"]):
        row |= {"host": f"{HOSTILE}{rank}", "device_name": HOSTILE}
    for event in rows["events"]:
        event["name"] += HOSTILE
    rows["comms"][0] |= {"name": HOSTILE, "dim": HOSTILE}
    rows["collectives"] += [
        {**c, "collective_id": 78, "seq": 2, "start_ns": 905 + c["rank"], "end_ns": 940,
         "in_bytes": 64, "out_bytes": 64, "event_id": None, "op": HOSTILE}
        for c in rows["collectives"]
    ]  # fmt: skip
    con = connection(folder, rows)
    materialise(con)
    job: Any = SimpleNamespace(
        con=con, id=HOSTILE, show=lambda: {**frames.facts(con), **frames.headline(con)}
    )
    data = report.gather(job, estimates=False)
    hosts = pl.col("host").replace({"a": f"{HOSTILE}0", "b": f"{HOSTILE}1"})
    data["rails"] = {**RAILS, "load": RAILS["load"].with_columns(hosts)}
    data["experts"] = EXPERTS
    data["facts"]["job"] = HOSTILE
    return report.save(report.page(data), folder / "page.html")


@pytest.fixture(scope="module")
def one() -> Iterator[Browser]:
    with browser() as found:
        yield found


@pytest.fixture
def opened(one: Browser, shown: Path) -> Iterator[Browser]:
    """The page, loaded anew; whatever it complains of fails the test."""
    one.errors.clear()
    one.open(shown)
    yield one
    assert one.errors == []


def rows_shown(page: Browser, section: str) -> list[int]:
    """Ranks of the table rows of a section that can be seen."""
    return page.run(
        f"[...document.querySelectorAll('#{section} tr[data-rank]')]"
        ".filter(r => r.checkVisibility()).map(r => Number(r.dataset.rank))"
    )


def lit(page: Browser, chart: str) -> list[int]:
    """Ranks of the rows of a chart that are not dimmed."""
    return page.run(
        f"[...document.querySelectorAll('[data-chart={chart}] [data-lane]:not(.out)')]"
        ".map(r => Number(r.dataset.lane))"
    )


def test_names_stay_text_and_nothing_of_them_runs(opened: Browser) -> None:
    assert opened.run("window.hacked") is None
    assert opened.run("document.images.length") == 0
    assert opened.run("document.scripts.length") == 2
    heading = opened.run("document.querySelector('h1').textContent")
    assert heading.startswith("</script><script>window.hacked=1</script><img")
    assert "\\u202e" in heading
    assert "\x1b" not in opened.run("document.documentElement.innerHTML")
    # The tooltip, too, is text: over the collective that both ranks are in.
    x, y = opened.middle("[data-chart=timeline] [data-lane='0'] .exposed_wait")
    opened.mouse("mouseMoved", x, y)
    said = opened.run("document.getElementById('tip').textContent")
    assert "waiting for other ranks: 300 ns" in said
    assert "onerror" in said
    assert opened.run("document.querySelectorAll('#tip *').length") == 3
    assert opened.run("window.hacked") is None


def test_no_panel_is_empty(opened: Browser) -> None:
    drawn = opened.run(
        "Object.fromEntries([...document.querySelectorAll('[data-chart]')].map(c => "
        "[c.dataset.chart, [...c.querySelectorAll('svg path[d], svg circle')]"
        ".filter(m => m.getBoundingClientRect().width > 0).length]))"
    )
    assert set(drawn) == {"timeline", "heat", "bandwidth", "rails", "experts"}
    assert all(n >= 1 for n in drawn.values()), drawn
    sections = opened.run(
        "[...document.querySelectorAll('section')].map(s => [s.id, s.innerText.length])"
    )
    assert [s for s, n in sections] == [
        "timeline", "breakdown", "waits", "stragglers", "bandwidth", "overlap", "rails", "experts",
        "contention", "whatif", "caveats",
    ]  # fmt: skip
    assert all(n > 60 for _, n in sections), sections


def test_a_click_on_a_rank_filters_every_panel(opened: Browser) -> None:
    tables = ("breakdown", "stragglers", "overlap", "experts")
    assert {s: sorted(rows_shown(opened, s)) for s in tables} == {s: [0, 1] for s in tables}
    opened.click("#breakdown tr[data-rank='1'] button")
    assert {s: rows_shown(opened, s) for s in tables} == {s: [1] for s in tables}
    for chart in ("timeline", "heat", "rails"):
        assert lit(opened, chart) == [1], chart
    assert opened.run("document.getElementById('chip').innerText") == "rank 1 picked"
    assert opened.run("location.hash") == "#rank=1"
    wait = "document.querySelector('.tile[data-group=compute] .picked').textContent"
    assert opened.run(wait) == "picked: 800 ns"
    opened.press("Escape")
    assert {s: sorted(rows_shown(opened, s)) for s in tables} == {s: [0, 1] for s in tables}
    assert opened.run("document.getElementById('chip').hidden") is True
    assert opened.run("location.hash") == ""


def test_lanes_rows_hosts_and_words_pick_too(opened: Browser) -> None:
    opened.click("[data-chart=timeline] [data-lane='0'] .back")
    assert rows_shown(opened, "overlap") == [0]
    opened.click("[data-chart=heat] [data-lane='1'] path", shift=True)
    assert sorted(rows_shown(opened, "overlap")) == [0, 1]
    assert opened.run("document.getElementById('chip').innerText") == "ranks 0, 1 picked"
    opened.click("#clear")
    opened.click("[data-chart=rails] [data-host]")
    assert rows_shown(opened, "overlap") == [0]
    opened.run("document.getElementById('ranks').focus()")
    opened.run("document.getElementById('ranks').select()")
    opened.press("1")
    assert rows_shown(opened, "overlap") == [1]


def test_keys_alone_pick_and_zoom(opened: Browser) -> None:
    opened.run("document.querySelector('[data-chart=timeline] [data-label]').focus()")
    opened.press("ArrowDown")
    opened.press("ArrowDown")
    opened.press("Enter")
    assert rows_shown(opened, "breakdown") == [1]
    ticks = "[...document.querySelectorAll('.timeline .axis text')].map(t => t.textContent)"
    before = opened.run(ticks)
    opened.run("document.querySelector('.timeline').focus()")
    opened.press("+")
    assert opened.run(ticks) != before
    opened.press("0")
    assert opened.run(ticks) == before


def test_a_drag_shows_a_part_larger(opened: Browser) -> None:
    width = (
        "document.querySelector('[data-lane=\"0\"] .exposed_wait').getBoundingClientRect().width"
    )
    before = opened.run(width)
    x, y = opened.middle("[data-chart=timeline] [data-lane='0'] .exposed_wait")
    opened.mouse("mousePressed", x - before / 4, y)
    opened.mouse("mouseMoved", x, y)
    opened.mouse("mouseReleased", x + before / 4, y)
    assert opened.run(width) > 1.3 * before
    assert opened.run("document.querySelector('[data-lane=\"0\"] .compute')") is None
    assert opened.run("document.getElementById('chip').hidden") is True


def test_the_address_keeps_the_selection(one: Browser, shown: Path) -> None:
    one.errors.clear()
    one.open(shown, "#rank=0")
    assert rows_shown(one, "breakdown") == [0]
    assert lit(one, "timeline") == [0]
    assert one.errors == []


def pixels(png: bytes) -> tuple[int, int, list[bytes]]:
    """Width, height and the raw rows of an 8-bit PNG, enough to count its colours."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, data, head = 8, b"", b""
    while at < len(png):
        (n,) = struct.unpack(">I", png[at : at + 4])
        kind, chunk = png[at + 4 : at + 8], png[at + 8 : at + 8 + n]
        data += chunk if kind == b"IDAT" else b""
        head = chunk if kind == b"IHDR" else head
        at += n + 12
    width, height, _, colour = struct.unpack(">IIBB", head[:10])
    wide = width * {2: 3, 6: 4}[colour] + 1
    raw = zlib.decompress(data)
    return width, height, [raw[i : i + wide] for i in range(0, len(raw), wide)]


def background(page: Browser) -> float:
    """Brightness of the page's background, 0 to 255."""
    words = page.run("getComputedStyle(document.body).backgroundColor")
    return sum(int(v) for v in words[4:-1].split(",")[:3]) / 3


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1400, 600])
def test_light_and_dark_wide_and_narrow(one: Browser, shown: Path, dark: bool, width: int) -> None:
    one.errors.clear()
    one.open(shown, width=width, dark=dark)
    assert (background(one) < 60) is dark
    assert one.run("document.documentElement.scrollWidth") <= width
    outside = one.run(
        "[...document.querySelectorAll('.legend li, .tile, figcaption, nav *, .chart')]"
        f".filter(e => e.checkVisibility() && e.getBoundingClientRect().right > {width} + 1 && "
        "!e.closest('.links')).map(e => e.outerHTML.slice(0, 99))"
    )
    assert outside == []
    wide, tall, lines = pixels(one.picture())
    assert (wide, tall > 1500) == (width, True)
    # Rows that are not all alike are spread over the whole page, in four quarters at least a third.
    busy = [len(set(line[1:])) > 4 for line in lines]
    for i in range(4):
        quarter = busy[i * tall // 4 : (i + 1) * tall // 4]
        assert sum(quarter) > len(quarter) / 4, i
    assert one.errors == []


def test_a_wide_table_scrolls_in_its_own_box_down_to_its_last_column(
    one: Browser, shown: Path
) -> None:
    one.errors.clear()
    one.open(shown, width=480)
    boxes = one.run(
        """[...document.querySelectorAll('table')].filter(t => t.checkVisibility()).map(t => {
            const box = t.parentElement, right = e => e.getBoundingClientRect().right;
            const cut = right(t) - right(box), shade = getComputedStyle(box).backgroundImage;
            box.scrollLeft = 1e6;
            return [right(box), cut, right(t) - right(box), shade.includes('gradient')];
        })"""
    )
    assert sum(cut > 50 for _, cut, _, _ in boxes) >= 3  # else there is nothing to see
    for right, _, left_over, shaded in boxes:
        assert right <= 480
        assert left_over < 1
        assert shaded
    assert one.run("document.documentElement.scrollWidth") <= 480


def test_paper_is_light_and_has_every_panel(one: Browser, shown: Path, tmp_path: Path) -> None:
    one.errors.clear()
    one.open(shown, dark=True)
    pdf = one.pdf(tmp_path / "page.pdf")
    assert pdf.startswith(b"%PDF")
    assert len(pdf) > 30_000
    one.ask("Emulation.setEmulatedMedia", media="print", features=[])
    assert background(one) == 255
    assert one.run("document.querySelector('nav input').checkVisibility()") is False
    hidden = one.run(
        "[...document.querySelectorAll('section')].filter(s => !s.checkVisibility()).length"
    )
    assert hidden == 0
    one.ask("Emulation.setEmulatedMedia", media="", features=[])
    assert one.errors == []
