"""docs/security.md names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)


def test_each_test_that_is_named_exists() -> None:
    assert len(NAMED) > 20
    for file, name in NAMED:
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        names = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
        assert name in names, f"{file}::{name}"


def test_each_promise_has_a_test_beside_it() -> None:
    promises = PAGE.partition("## Promises")[2].partition("## What is not")[0]
    for part in re.split(r"^(?=\*\*)", promises, flags=re.MULTILINE)[1:]:
        assert "::test_" in part or "object-stores.md" in part, part[:60]


def test_each_test_of_this_room_is_named() -> None:
    mine = {
        n.name
        for f in ("screens", "pages", "files", "shared_warehouse")
        for n in ast.parse((ROOT / f"tests/hostile/test_{f}.py").read_text()).body
        if isinstance(n, ast.FunctionDef) and n.name.startswith("test_")
    }
    lesser = {"test_it_is_sound_before", "test_frames_have_names_as_they_were",
              "test_a_title_of_a_page_is_text"}  # fmt: skip
    assert mine - lesser == {name for file, name in NAMED if file.startswith("tests/hostile/")}
