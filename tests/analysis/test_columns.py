"""Tables in the columns of a screen: what goes where there is no room, and where it is told."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from retime.analysis import columns
from rich.console import Console

MOMENT = 1_763_224_042_207_874_842


def printed(room: int, rows: list[dict[str, Any]], **options: Any) -> list[str]:
    out = Console(file=io.StringIO(), width=room, highlight=False, markup=False)
    columns.show_table(out, rows, **options)
    return out.file.getvalue().splitlines()  # type: ignore[attr-defined]


def rows() -> list[dict[str, Any]]:
    return [
        {"job": "run-7", "collective_id": 7 * 10**18 + n, "op": "all_gather", "start_ns": MOMENT,
         "wait_ns": 1000 + n, "transfer_ns": 123456 + n}
        for n in range(2)
    ]  # fmt: skip


def test_what_all_rows_share_is_told_once_where_there_is_no_room() -> None:
    lines = printed(60, rows(), raw=True)
    assert lines == [
        "      collective_id  wait_ns  transfer_ns",
        "7000000000000000000     1000       123456",
        "7000000000000000001     1001       123457",
        "(in all rows: job run-7; op all_gather; start_ns",
        f"{MOMENT})",
    ]
    assert printed(120, rows(), raw=True)[0].split()[0] == "job", "it fits: nothing is left out"


def test_ids_and_moments_go_before_measured_columns() -> None:
    lines = printed(40, rows(), raw=True)
    assert lines[0].split() == ["wait_ns", "transfer_ns"]
    assert "(1 more column does not fit:" in lines[3]
    assert "collective_id" in " ".join(lines[3:])
    moments = [{**r, "start_ns": r["start_ns"] + r["wait_ns"], "op": "x" * r["wait_ns"]}
               for r in rows()]  # fmt: skip
    assert printed(46, moments, raw=True)[0].split() == ["op", "wait_ns", "transfer_ns"]


def test_one_row_without_room_is_a_line_a_column() -> None:
    lines = printed(40, rows()[:1], raw=True)
    assert lines[:3] == [
        "job            run-7",
        "collective_id  7000000000000000000",
        "op             all_gather",
    ]
    assert len(lines) == 6


def test_a_long_text_of_one_row_is_wrapped_whole() -> None:
    (row,) = rows()[:1]
    text = "word " * 30
    lines = printed(40, [{**row, "detail": text.strip()}], raw=True)
    assert " ".join(" ".join(lines[6:]).split()[1:]) == text.strip()
    assert max(map(len, lines)) <= 40


def test_numbers_that_are_texts_are_never_cut_and_keep_right() -> None:
    made = [{"what": "k" * 90, "a": "5.09 ms", "why": "more often: 3 to 4 a step"}]
    titles = {"what": "what", "a": "A", "why": "why"}
    lines = printed(40, made, columns=titles, numbers=("a",), first_to_go=("why",))
    assert lines[0] == "what" + " " * 35 + "A"
    assert lines[1].endswith("…kkkkkkkkkk  5.09 ms")
    assert lines[2] == "(1 more column does not fit: why; --json"


@pytest.mark.parametrize("room", range(30, 100, 7))
def test_no_digit_is_lost_at_any_width(room: int) -> None:
    for line in printed(room, rows(), raw=True):
        for number in re.findall(r"\d{4,}", line):
            assert int(number) in {v for r in rows() for v in r.values() if isinstance(v, int)}


def test_two_kernels_are_two_in_a_column() -> None:
    names = [f"void cutlass::Kernel2<cutlass_80_{n}_tensorop_bf16>(Params)" for n in range(4)]
    lines = printed(40, [{"name": n, "count": 1} for n in names])
    assert len(set(lines[1:])) == 4
    assert max(map(len, lines)) <= 40
