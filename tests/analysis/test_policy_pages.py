"""Every policy's own page: source, parameters with their defaults, assumptions, range, needs."""

from __future__ import annotations

import io
import re

import pytest
from retime.analysis import catalogue, replay_screen
from rich.console import Console

NAMES = [row["name"] for row in catalogue.policies()]

NO_DEFAULT = (None, (), [], "")
"""Defaults that are no value: what stands instead is told in the parameter's meaning."""

INSTEAD = r"default|none given|else |instead of|in place of|where the job|if the trace|a file of"


def lines(name):
    """What `retime policies NAME` prints on a screen so wide that nothing is broken."""
    out = Console(file=io.StringIO(), width=4000, highlight=False)
    replay_screen.show_policies(out, catalogue.policies(name), True)
    return [flat(line) for line in out.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def flat(text):
    return " ".join(str(text).split())


@pytest.mark.parametrize("name", NAMES)
def test_a_policy_tells_all_that_there_is_to_know_of_it(name):
    (row,) = catalogue.policies(name)
    shown = lines(name)
    assert shown[:2] == [name, flat(row["summary"])]
    for title, key in (("Source", "source"), ("Holds", "valid"), ("Checked against", "checked")):
        assert row[key], key
        assert f"{title}: {flat(row[key])}" in shown
    for title, key in (("Needs of the trace", "needs"), ("Assumes", "assumptions")):
        assert row[key], key
        assert title in shown
        assert all(f"- {flat(text)}" in shown for text in row[key])


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_has_its_unit_and_default(name):
    (row,) = catalogue.policies(name)
    shown = lines(name)
    assert row["params"]
    for q in row["params"]:
        (line,) = [x for x in shown if x.startswith(f"{q['name']} {q['type']} {q['unit']}".strip())]
        assert flat(q["meaning"]).rstrip(".") in line
        if q["default"] in NO_DEFAULT:
            assert re.search(INSTEAD, q["meaning"]), f"{q['name']}: what stands if it is not given?"
        else:
            assert line.endswith(f" Default {replay_screen.joined(q['default'])}.")


def test_there_are_twenty_five():
    assert len(NAMES) == 25
