"""Names in little room: both ends stay, and names that differ differ still."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from retime.analysis.names import apart, shorter, width

GEMMS = [
    "nvjet_tst_192x192_64x4_2x1_v_bz_coopA_NNT",
    "nvjet_tst_192x192_64x4_1x2_v_bz_coopA_NNT",
    "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_NTT",
]


def test_the_middle_is_left_out() -> None:
    assert shorter("void at::native::copy_kernel<4>", 16) == "void at::n…el<4>"
    assert shorter("short", 16) == "short"


def test_a_wide_character_is_two_columns() -> None:
    assert shorter("训练" * 5, 9) == "训练训…练"
    assert width("训练训…练") == 9


@pytest.mark.parametrize("room", [8, 12, 24, 30])
def test_names_that_differ_in_the_middle_do_so_still(room: int) -> None:
    shown = apart(GEMMS, room)
    assert len(set(shown)) == 3
    assert max(map(len, shown)) <= room


def test_the_place_where_names_differ_is_shown() -> None:
    assert apart(GEMMS[:2], 24) == ["nvjet_tst_1…4_2x1_v_bz_…", "nvjet_tst_1…4_1x2_v_bz_…"]


def test_the_same_name_is_shown_the_same() -> None:
    assert apart([GEMMS[0], "x", GEMMS[0]], 20)[::2] == [shorter(GEMMS[0], 20)] * 2


@given(
    st.lists(st.text("ab漢", max_size=40), max_size=12),
    st.integers(12, 30),
)
def test_no_two_names_become_alike_and_all_fit(texts: list[str], room: int) -> None:
    shown = apart(texts, room)
    assert len(set(shown)) == len(set(texts))
    assert all(width(s) <= room for s in shown)
    assert all(
        s == t for s, t in zip(shown, texts, strict=True) if width(t) <= room and "#" not in s
    )
