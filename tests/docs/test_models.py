"""The page of models: every algorithm is there, and its examples run."""

from __future__ import annotations

import math
import re
import shlex
from pathlib import Path

from retime import cli
from retime.replay import models
from retime.replay.models import on_package

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "models.md").read_text(encoding="utf-8")


def test_every_operation_and_algorithm_is_named():
    for name in (*models.OPS, *models.ALGOS, *on_package.PATTERNS):
        spoken = name.replace("two-phase", "two phases").replace(
            "double-tree", "double binary tree"
        )
        assert spoken in PAGE.lower(), name


def test_messages_and_volumes_of_the_table():
    """The rows that are plain formulas of n, at n = 8 and 6."""
    rows = re.findall(r"^\|([a-z_, ]*)\| ([a-z-]+)[^|]* \| ([^|]+) \| ([^|]+) \|$", PAGE, re.M)
    op, checked = "", 0
    for named, algo, messages, volume in rows:
        op = named.split(",")[0].strip() or op
        if op not in models.OPS:
            continue
        said = [t.replace("ceil(lg n)", "(L)") for t in (messages, volume)]
        if not all(re.fullmatch(r"[0-9nL()/+ -]+", t) for t in said):
            continue
        as_code = [re.sub(r"(\d) ?([n(])", r"\1*\2", t) for t in said]
        for n in (8, 6):
            form = models.form(op, algo)
            values = {"n": n, "L": math.ceil(math.log2(n))}
            assert [form.messages(n), form.volume(n)] == [eval(t, values) for t in as_code]
        checked += 1
    assert checked == 19


def test_its_commands_run(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^retime (model .*)$", PAGE, re.M)
    assert len(commands) == 3
    for command in commands:
        assert cli.run(shlex.split(command)) == 0
        assert "Best by size" in capsys.readouterr().out
    assert (tmp_path / "cost.svg").exists()
