"""Every screen and every JSON of the command line, over names that try to act on a terminal."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from retime.analysis.screen import clean
from retime.analysis.warehouse import Warehouse

from . import corpus
from .conftest import ACTS, Called, Made, call

SCREENS = {
    **{f"{command} {job}": (command, job)
       for job in ("kineto", "plain", "logs")
       for command in ("show", "problems", "stragglers", "dims", "kernels")},
    "jobs": ("jobs",),
    "diff": ("diff", "kineto", "slower"),
    **{f"fleet {by}": ("fleet", "--by", by) for by in ("hosts", "fabric", "jobs", "kernels")},
    **{f"replay {job}": ("replay", job, "--policy", "align-arrivals", "--policy",
                         "algorithm:algo=tree", "--calibration") for job in ("kineto", "plain")},
    **{f"sql {table} {job}": ("sql", f"FROM {table} LIMIT 100", "--job", job)
       for job, table in (("kineto", "events"), ("kineto", "comms"), ("plain", "collectives"),
                          ("plain", "transfers"), ("plain", "ranks"), ("logs", "topology"),
                          ("logs", "routing"), ("logs", "problems"), ("kineto", "kernel_stats"))},
}  # fmt: skip

Cleaned = Callable[[Called], str]
LONGEST_SCREEN = 4_000_000
"""Characters; the names alone are several times as long."""


@pytest.fixture(scope="module", autouse=True)
def _opened_once() -> Iterator[None]:
    """Each job is opened and computed once: the screens on a pipe and a terminal, and the JSON, are
    three ways to write the same rows."""
    opened: dict[tuple[str, str | None], Any] = {}
    anew = Warehouse.job

    def once(self: Warehouse, id: str | None = None) -> Any:
        if (self.url, id) not in opened:
            opened[self.url, id] = anew(self, id)
        return opened[self.url, id]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Warehouse, "job", once)
        yield


def test_all_is_ingested(made: Made, cleaned: Cleaned) -> None:
    for job, said in made.ingested.items():
        text = cleaned(said)
        # Only the file of the job of logs that asks for another file is lost.
        assert said.code == (1 if job == "logs" else 0), text
    assert "entities" in made.ingested["logs"].out
    job = made.job("kineto")
    found = job.sql("SELECT DISTINCT name FROM events WHERE kind = 'kernel'")["name"].to_list()
    lost = {"surrogate", "empty"}
    assert {n for k, n in corpus.NAMES.items() if k not in lost} <= set(found)


@pytest.mark.parametrize("name", SCREENS)
def test_no_screen_acts(made: Made, cleaned: Cleaned, name: str) -> None:
    for terminal in (False, True):
        said = made.run(*SCREENS[name], terminal=terminal)
        text = cleaned(said)
        assert said.code == 0 or (said.code == 3 and text.count("\n") == 1), text[-500:]
        assert len(text) < LONGEST_SCREEN


@pytest.mark.parametrize("name", SCREENS)
def test_json_is_whole_and_does_not_act(made: Made, name: str) -> None:
    said = made.run(*SCREENS[name], "--json")
    assert ACTS.search(said.out + said.err) is None
    if said.code == 0:
        json.loads(said.out)
    else:
        assert (said.code, said.out, said.err.count("\n")) == (3, "", 1)


def test_json_has_names_as_they_were(made: Made) -> None:
    query = "SELECT DISTINCT name FROM events WHERE kind = 'kernel'"
    said = made.run("sql", query, "--job", "kineto", "--json")
    names = {r["name"] for r in json.loads(said.out)}
    assert {n for k, n in corpus.NAMES.items() if k not in ("surrogate", "empty")} <= names


def test_names_that_look_alike_are_told_apart(made: Made) -> None:
    said = made.run("sql", "SELECT DISTINCT name FROM events", "--job", "slower", "--limit", "999")
    shown = [line.rstrip() for line in said.out.splitlines()[1:] if line.strip()]
    assert len(shown) == len(set(shown))
    alike = ("latin", "cyrillic", "composed", "decomposed", "wide", "zero width", "blanks", "bidi")
    for kind in alike:
        assert clean(corpus.NAMES[kind]) in shown, kind
    for kind in set(alike) - {"latin", "composed"}:
        assert clean(corpus.NAMES[kind]).isascii(), kind
    # A letter has a few marks at most, and the screen no line of thousands of them.
    assert all(sum(c in "\u0301\u0489\u20dd" for c in line) <= 3 for line in shown)


@pytest.mark.parametrize(
    "args",
    [
        lambda n: ("show", n), lambda n: ("sql", n), lambda n: ("sql", "FROM events", "--job", n),
        lambda n: ("tables", n), lambda n: ("policies", n), lambda n: ("replay", "--policy", n),
        lambda n: ("fabric", n), lambda n: ("fleet", "--by", n), lambda n: ("diff", n, n),
        lambda n: ("notebook", "--name", n), lambda n: ("export", "--to", n),
        lambda n: ("model", n, "--ranks", "8"), lambda n: ("ingest", n), lambda n: (n,),
        lambda n: ("show", f"--{n}"), lambda n: ("jobs", "--warehouse", n),
    ],
    ids=["show", "sql", "job", "tables", "policies", "policy", "fabric", "fleet", "diff",
         "notebook", "export", "model", "ingest", "command", "option", "warehouse"],
)  # fmt: skip
def test_what_is_typed_is_repeated_without_acting(made: Made, cleaned: Cleaned, args: Any) -> None:
    for kind in ("escape", "c1", "bidi", "lines", "rich", "null", "surrogate", "flood", "shell"):
        said = call(*args(corpus.NAMES[kind]))
        text = cleaned(said)
        assert said.code in (2, 3), (kind, text)
        assert said.out == ""
        assert said.err.startswith("retime: ") or said.err.startswith("Usage"), kind
        assert said.err.count("\n") == 1, (kind, said.err)
        assert "(unexpected" not in said.err, (kind, said.err)
