"""docs/security.md names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)


def test_each_test_that_is_named_exists() -> None:
    assert len(NAMED) > 20
    for file, name in NAMED:
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        found = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
        assert name in found, f"{file}::{name}"
        assert not left_out(tree, found[name]), f"{file}::{name} is left out: nothing is held"


def left_out(file: ast.Module, test: ast.FunctionDef) -> bool:
    """Whether a test never runs, or may fail: a mark of it or its file, or a call in its body."""
    marks: list[ast.expr] = list(test.decorator_list)
    for n in file.body:
        if isinstance(n, ast.Assign) and getattr(n.targets[0], "id", "") == "pytestmark":
            marks += n.value.elts if isinstance(n.value, ast.List | ast.Tuple) else [n.value]
    calls = [n.value for n in (*file.body, *test.body) if isinstance(n, ast.Expr)]
    said = [*marks, *(c for c in calls if isinstance(c, ast.Call))]
    words = {ast.unparse(m.func if isinstance(m, ast.Call) else m) for m in said}
    return bool(words & {f"pytest.{kind}{what}" for kind in ("mark.", "") for what in
                         ("skip", "xfail")})  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "@pytest.mark.skip\ndef test_a(): pass",
        "@pytest.mark.xfail(reason='x')\ndef test_a(): pass",
        "def test_a():\n    pytest.skip('x')",
        "pytestmark = [pytest.mark.slow, pytest.mark.skip(reason='x')]\ndef test_a(): pass",
        "pytest.skip('x', allow_module_level=True)\ndef test_a(): pass",
    ],
)
def test_a_test_that_is_left_out_is_noticed(text: str) -> None:
    tree = ast.parse(text)
    (test,) = [n for n in tree.body if isinstance(n, ast.FunctionDef)]
    assert left_out(tree, test)
    alone = ast.parse("@pytest.mark.skipif(no_browser())\ndef test_a(): pass").body[0]
    assert isinstance(alone, ast.FunctionDef)
    assert not left_out(ast.Module([alone], []), alone)


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
