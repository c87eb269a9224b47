"""The dictionary says what is there: every view's columns, types and units."""

from __future__ import annotations

import pytest
from retime.queries import loader, manual

UNIT_OF_SUFFIX = {"_ns": "ns", "_bytes": "bytes", "_gbps": "GB/s"}
PUBLIC = {
    "bandwidth", "collective_instances", "idle_gaps", "kernel_stats", "late_ranks", "overlap",
    "overlap_by_rank", "step_breakdown", "sync_tax", "waits",
}  # fmt: skip


@pytest.fixture(scope="module")
def entries():
    return manual.dictionary()


@pytest.fixture(scope="module")
def con():
    return loader.connect({})


def test_every_public_view_is_documented(entries, con):
    made = {
        name
        for (name,) in con.execute(
            "SELECT view_name FROM duckdb_views() WHERE NOT internal"
        ).fetchall()
        if not name.startswith("_")
    }
    assert {e.name for e in entries if e.kind in ("view", "table")} == made
    assert {e.name for e in entries if e.kind == "view"} >= PUBLIC


def test_documented_columns_are_those_of_the_view(entries, con):
    for entry in entries:
        if entry.kind == "macro":
            continue
        described = con.execute(f"DESCRIBE {entry.name}").fetchall()
        assert [(f.name, f.type) for f in entry.fields] == [(d[0], d[1]) for d in described]
        assert entry.meaning
        assert all(f.meaning for f in entry.fields), entry.name


def test_columns_are_selected_in_the_order_in_which_they_are_documented(entries, con):
    # a view's list of names renames what is selected by position: a slip would pass in silence
    documented = {e.name: [f.name for f in e.fields] for e in entries if e.kind == "view"}
    for name, statement in loader._statements():
        if name in documented:
            select = statement.split(") AS\n", 1)[1]
            described = con.execute(f"DESCRIBE {select.rstrip(';')}").fetchall()
            assert [d[0] for d in described] == documented[name], name


def test_units_follow_the_names(entries):
    for entry in entries:
        for field in entry.fields:
            for suffix, unit in UNIT_OF_SUFFIX.items():
                if field.name.endswith(suffix) or field.name == suffix[1:]:
                    assert field.unit == unit, (entry.name, field.name)


def test_the_grammar_of_a_module():
    text = """-- What the module is about.
-- requires: other

CREATE VIEW _hidden AS SELECT 1;

-- A thing,
-- in two lines.
CREATE VIEW things (
    -- which
    -- one
    name,
    -- [ns] how long
    dur_ns
) AS
SELECT (1) AS name, 2 AS dur_ns;

-- Twice a thing.
CREATE MACRO twice(
    -- [bytes] it
    x
) AS 2 * x;
"""
    assert manual.parse(text) == [
        manual.Entry(
            "things",
            "view",
            "A thing, in two lines.",
            (
                manual.Field("name", "", "", "which one"),
                manual.Field("dur_ns", "", "ns", "how long"),
            ),
        ),
        manual.Entry("twice", "macro", "Twice a thing.", (manual.Field("x", "", "bytes", "it"),)),
    ]
    assert loader.requirements(text) == ["other"]
