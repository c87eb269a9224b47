"""Every page that retime writes, of hostile jobs, in a real browser: nothing of a name runs."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import altair as alt
import pytest
from markdown_it import MarkdownIt
from retime.analysis.notebooks import opening, page, session, source

from ..analysis.chromium import Browser, browser, path
from . import corpus
from .conftest import ACTS, Made

NOTEBOOKS = (
    ("kineto", "who-is-late"),
    ("slower", "why-is-this-step-slow"),
    ("plain", "is-it-the-network"),
    ("slower", "before-and-after"),
    ("logs", "rails-and-experts"),
    ("plain", "fleet"),
)
"""Each notebook once, each kind of job."""

LARGEST_PAGE = 4_000_000
"""Bytes; a name alone has a quarter of it, and stands in hundreds of rows."""

LARGEST_CHART = 400_000


class Notebook(NamedTuple):
    """A notebook after its run: what its cells show, and the page of it."""

    shown: list[page.Shown]
    file: Path


@pytest.fixture(scope="module")
def notebooks(made: Made) -> dict[str, Notebook]:
    """Notebooks that were run, by name."""
    found = {}
    for job, name in NOTEBOOKS:
        at = opening.Point(made.url, job, "kineto" if name == "before-and-after" else None)
        shown = page.run(source.pointed(source.cells(name), at.settings()))
        assert page.errors(shown) == []
        file = made.out / f"nb-{name}.html"
        file.write_text(page.page(shown, corpus.NAMES["script"]), encoding="utf-8")
        found[name] = Notebook(shown, file)
    return found


@pytest.fixture(scope="module")
def pages(made: Made, notebooks: dict[str, Notebook]) -> dict[str, Path]:
    """Pages by name."""
    found = {f"notebook {name}": n.file for name, n in notebooks.items()}
    for job in ("kineto", "plain", "logs"):
        found[f"report {job}"] = made.out / f"{job}.html"
        assert made.run("report", job, "-o", str(found[f"report {job}"])).code == 0
    for job in ("kineto", "plain"):
        found[f"explain {job}"] = made.out / f"{job}-explain.html"
        said = made.run("replay", job, "--policy", "align-arrivals", "--explain", "-o",
                        str(found[f"explain {job}"]))  # fmt: skip
        assert said.code == 0, said.err
    return found


PAGES = [
    *(f"report {job}" for job in ("kineto", "plain", "logs")),
    *(f"explain {job}" for job in ("kineto", "plain")),
    *(f"notebook {name}" for _, name in NOTEBOOKS),
]


@pytest.fixture(scope="module")
def one() -> Iterator[Browser]:
    if path() is None:
        pytest.skip("there is no Chromium here")
    with browser() as found:
        yield found


LOOK = """(() => {
  const all = [...document.querySelectorAll('*')];
  return {
    hacked: window.hacked ?? null,
    here: location.href,
    frames: window.length,
    handlers: all.flatMap(e => [...e.attributes]).filter(a => /^on/i.test(a.name)).length,
    addresses: all.flatMap(e => [...e.attributes])
      .filter(a => /^(href|src|xlink:href|action|formaction|srcset|poster|data|background|ping)$/i
        .test(a.name))
      .map(a => a.value).filter(v => !v.startsWith('#')),
    strange: all.map(e => e.localName).filter(n =>
      /^(iframe|frame|object|embed|form|base|link|img|image|audio|video|math|plaintext)$/i.test(n)),
    metas: [...document.querySelectorAll('meta[http-equiv]')].map(m => m.httpEquiv),
    scripts: document.scripts.length,
    styles: document.styleSheets.length,
    fetching: all.map(e => getComputedStyle(e).backgroundImage + getComputedStyle(e).content)
      .filter(v => /url\\(["']?(?!["']?(data:|#))/.test(v)).length,
    text: document.documentElement.textContent,
  };
})()"""


def complaints(page: Browser, file: Path) -> tuple[list[str], dict[str, Any]]:
    """What is wrong with a page after it was opened and its places were touched; what it has."""
    page.errors.clear()
    page.open(file)
    for kind in ("mousemove", "mouseover", "focusin", "pointermove"):
        page.run(
            "document.querySelectorAll('*').forEach(e => e.dispatchEvent("
            f"new Event('{kind}', {{bubbles: false}})))"
        )
    got = page.run(LOOK)
    wrong = [f"console: {e}" for e in page.errors]
    expected = {
        "hacked": None, "here": file.resolve().as_uri(), "frames": 0, "handlers": 0,
        "addresses": [], "strange": [], "metas": ["Content-Security-Policy"], "styles": 1,
        "fetching": 0,
    }  # fmt: skip
    wrong += [f"{k}: {got[k]!r}, not {v!r}" for k, v in expected.items() if got[k] != v]
    if acts := ACTS.search(got["text"].replace("\t", " ")):
        wrong.append(f"a character that acts: {acts[0]!r}")
    return wrong, got


@pytest.mark.parametrize("name", PAGES)
def test_nothing_of_a_name_runs(one: Browser, pages: dict[str, Path], name: str) -> None:
    assert pages[name].stat().st_size < LARGEST_PAGE
    wrong, got = complaints(one, pages[name])
    assert wrong == []
    assert got["scripts"] == (0 if name.startswith("notebook") else 2)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("report kineto", "</script><script>window.hacked=1</script>"),
        ("report plain", "<img src=x onerror=window.hacked=1>"),
        ("notebook is-it-the-network", "window.hacked=1"),
        ("notebook fleet", "<img src=x onerror=window.hacked=1>"),
    ],
)
def test_names_are_there_as_text(
    one: Browser, pages: dict[str, Path], name: str, words: str
) -> None:
    one.open(pages[name])
    # Of what is shown, not of the data that a page's script has.
    assert words in one.run("document.body.innerText")


@pytest.mark.parametrize("kind", ["script", "image", "svg", "style", "link", "attribute"])
def test_the_browser_would_notice(one: Browser, made: Made, kind: str) -> None:
    file = made.out / "careless.html"
    name = corpus.NAMES[kind]
    policy = '<meta http-equiv="Content-Security-Policy" content="">'
    body = f"<i title=\"{name}'>x</i>" if kind == "attribute" else name
    file.write_text(f"<!doctype html><html><head>{policy}<style></style></head><body>{body}")
    wrong, _ = complaints(one, file)
    assert wrong != []


def test_names_in_markdown_make_no_element(notebooks: dict[str, Notebook]) -> None:
    """Jupyter and marimo take HTML in Markdown: what a cell says of names must have none."""
    allowed = {"p", "strong", "em", "code", "pre", "ul", "li", "ol", "a"}
    n = 0
    for name, notebook in notebooks.items():
        for shown in notebook.shown:
            if not isinstance(shown.value, session.Said):
                continue
            n += 1
            text = shown.value._repr_markdown_()
            assert ACTS.search(text) is None, name
            assert "$" not in _without_code(text), name  # MathJax begins there
            for token in MarkdownIt("commonmark", {"html": True}).parse(text):
                for t in [token, *(token.children or [])]:
                    assert t.type not in ("html_block", "html_inline", "image", "link_open"), t
                    assert not t.tag or t.tag in allowed | {"br"}, t
    assert n >= 6


def _without_code(text: str) -> str:
    """The words of Markdown as a reader of formulas finds them: before entities are read."""
    return re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)


def test_names_in_charts_are_data_alone(notebooks: dict[str, Notebook]) -> None:
    n = 0
    for notebook in notebooks.values():
        for shown in notebook.shown:
            if not isinstance(shown.value, alt.TopLevelMixin):
                continue
            n += 1
            text = shown.value.to_json()
            assert ACTS.search(text) is None
            assert len(text) < LARGEST_CHART
            spec = json.loads(text)
            spec.pop("datasets", None)
            for key, value in _strings(spec):
                assert key not in ("href", "url", "loader"), (key, value)
                assert "hacked" not in value, (key, value)
                assert "PWNED" not in value, (key, value)
    assert n >= 6


def _strings(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Texts of a specification with the key that each stands under, but for rows of data."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for k, v in value.items():
            if k != "values":
                yield k, k
                yield from _strings(v, k)
    elif isinstance(value, list):
        for v in value:
            yield from _strings(v, key)


def test_a_title_of_a_page_is_text(notebooks: dict[str, Notebook]) -> None:
    text = next(iter(notebooks.values())).file.read_text(encoding="utf-8")
    assert f"<title>{html.escape(corpus.NAMES['script'])}</title>" in text
