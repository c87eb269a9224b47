"""The page of an explanation in a real browser: silent, nothing empty, names stay text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from retime.analysis.explain import explain
from retime.cli import run

from ..chromium import Browser, browser, path
from ..conftest import two_ranks
from ..export.conftest import files_of
from ..test_report_page import HOSTILE, background

pytestmark = pytest.mark.skipif(path() is None, reason="there is no Chromium here")


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of a job whose every name is hostile, under two policies together."""
    folder = tmp_path_factory.mktemp("explained")
    rows = two_ranks()
    for rank, row in enumerate(rows["ranks"]):
        row["host"] = f"{HOSTILE}{rank}"
    for event in rows["events"]:
        event["name"] += HOSTILE
    rows["comms"][0] |= {"name": HOSTILE, "dim": HOSTILE}
    for part in rows["collectives"]:
        part["op"] = f"all_reduce{HOSTILE}"
    job = SimpleNamespace(
        id=HOSTILE, snapshot=SimpleNamespace(job=HOSTILE, files=files_of(folder, rows))
    )
    explain(job, ["align-arrivals", "align-arrivals:factor=0.5"], folder / "why.html")
    return folder / "why.html"


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


def test_names_stay_text_and_nothing_of_them_runs(opened: Browser) -> None:
    assert opened.run("window.hacked") is None
    assert opened.run("document.images.length") == 0
    assert opened.run("document.scripts.length") == 2
    html = opened.run("document.documentElement.innerHTML")
    assert "\x1b" not in html
    assert "\u202e" not in html
    assert opened.run("document.querySelector('h1').textContent").startswith("</script><script>")
    moved = opened.run("document.querySelector('#moved').textContent")
    assert "gemm</script><script>window.hacked=1</script><img" in moved
    # The tooltip, too, is text, and says what the collective was on the other side.
    x, y = opened.middle("[data-side='0'][data-lane='0'] .exposed_wait")
    opened.mouse("mouseMoved", x, y)
    said = opened.run("document.getElementById('tip').textContent")
    assert "waiting for other ranks: 300 ns" in said
    assert "onerror" in said
    assert "after: 150 ns later, waits 0 ns, transfer 200 ns" in said
    assert opened.run("document.querySelectorAll('#tip *').length") == 4
    assert (
        opened.run("document.querySelector('.same').getAttribute('d').split('M').length - 1") == 4
    )
    assert opened.run("window.hacked") is None


def test_no_panel_is_empty(opened: Browser) -> None:
    drawn = opened.run(
        "[0, 1].map(s => [...document.querySelectorAll(`[data-side='${s}'] path[d]`)]"
        ".filter(m => m.getBoundingClientRect().width > 0).length)"
    )
    # A path a class and lane: five on each before; after, rank 0 waits no more.
    assert drawn == [10, 9]
    sections = opened.run(
        "[...document.querySelectorAll('section')].map(s => [s.id, s.innerText.length])"
    )
    assert [s for s, _ in sections] == ["both", "byrank", "moved", "tried", "basis"]
    assert all(n > 60 for _, n in sections), sections
    heads = opened.run("[...document.querySelectorAll('text.head')].map(t => t.textContent)")
    assert heads == [
        "Before, as re-timed: 1.000 us",
        "After together: align-arrivals + align-arrivals:factor=0.5: 925 ns",
    ]
    # Rank 1 alone ends earlier: its last 150 of 1000 are marked on the lane after.
    marks = opened.run(
        "[...document.querySelectorAll('.timeline .earlier, .timeline .later')]"
        ".map(m => [m.getAttribute('class'), Number(m.parentElement.dataset.lane), "
        "Number(m.parentElement.dataset.side), Number(m.getAttribute('width'))])"
    )
    whole = opened.run("Number(document.querySelector('.timeline .back').getAttribute('width'))")
    ((kind, rank, side, width),) = marks
    assert (kind, rank, side) == ("earlier", 1, 1)
    assert width == pytest.approx(0.15 * whole, rel=1e-3)


def test_ranks_side_by_side_and_picked(opened: Browser) -> None:
    order = (
        "[...document.querySelectorAll('[data-lane]')].map(l => l.dataset.lane + l.dataset.side)"
    )
    assert opened.run(order) == ["00", "10", "01", "11"]
    opened.run(
        "(() => { const o = document.getElementById('order'); o.value = 'paired';"
        "o.dispatchEvent(new Event('change')); })()"
    )
    assert opened.run(order) == ["00", "01", "10", "11"]
    opened.click("[data-lane='1'] .back")
    lit = "[...document.querySelectorAll('[data-lane]:not(.out)')].map(l => l.dataset.lane)"
    assert opened.run(lit) == ["1", "1"]
    rows = (
        "[...document.querySelectorAll('#byrank tr[data-rank]')]"
        ".filter(r => r.checkVisibility()).map(r => r.dataset.rank)"
    )
    assert opened.run(rows) == ["1"]
    opened.press("Escape")
    assert opened.run(rows) == ["0", "1"]


def test_a_drag_and_keys_zoom(opened: Browser) -> None:
    width = (
        "document.querySelector(\"[data-side='0'] .exposed_wait\").getBoundingClientRect().width"
    )
    before = opened.run(width)
    x, y = opened.middle("[data-side='0'][data-lane='0'] .exposed_wait")
    opened.mouse("mousePressed", x - before / 4, y)
    opened.mouse("mouseMoved", x, y)
    opened.mouse("mouseReleased", x + before / 4, y)
    assert opened.run(width) > 1.3 * before
    opened.click("[data-zoom=all]")
    assert opened.run(width) == before
    opened.run("document.querySelector('.timeline').focus()")
    opened.press("+")
    assert opened.run(width) > before
    opened.press("0")
    assert opened.run(width) == before


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1400, 800, 500])
def test_light_and_dark_wide_and_narrow(one: Browser, shown: Path, dark: bool, width: int) -> None:
    one.errors.clear()
    one.open(shown, width=width, dark=dark)
    assert (background(one) < 60) is dark
    assert one.run("document.documentElement.scrollWidth") <= width
    assert one.errors == []


def test_paper_is_light_and_has_every_panel(one: Browser, shown: Path, tmp_path: Path) -> None:
    one.errors.clear()
    one.open(shown, dark=True)
    assert len(one.pdf(tmp_path / "page.pdf")) > 20_000
    one.ask("Emulation.setEmulatedMedia", media="print", features=[])
    assert background(one) == 255
    hidden = "[...document.querySelectorAll('section')].filter(s => !s.checkVisibility()).length"
    assert one.run(hidden) == 0
    one.ask("Emulation.setEmulatedMedia", media="", features=[])
    assert one.errors == []


def test_the_command_says_where_the_picture_is(bundled, tmp_path, monkeypatch, capsys, one) -> None:
    monkeypatch.chdir(tmp_path)
    url = bundled.warehouse.url
    asked = ["replay", "demo", "--policy", "align-arrivals", "--warehouse", url]
    assert run([*asked, "--explain"]) == 0
    *_, step, page, timeline = capsys.readouterr().out.strip().splitlines()
    assert step.startswith(
        "step 13 (the median) before and after align-arrivals: re-timed 41.49 ms"
    )
    assert page == "page      demo-explain.html"
    assert timeline.startswith("timeline  demo-explain.perfetto-trace.gz (open it at")
    assert {p.name for p in tmp_path.iterdir()} == {
        "demo-explain.html", "demo-explain.perfetto-trace.gz",
    }  # fmt: skip
    assert (tmp_path / "demo-explain.html").stat().st_size < 5_000_000
    one.errors.clear()
    one.open(tmp_path / "demo-explain.html")
    assert one.run("document.querySelectorAll('[data-lane]').length") == 16
    assert one.errors == []
    assert run([*asked, "-o", "x.html"]) == 2
    assert capsys.readouterr().err.strip() == (
        "retime: -o names the page of --explain: give both, or --json > FILE"
    )
