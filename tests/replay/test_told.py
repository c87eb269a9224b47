"""Sentences about names of strangers: told once each, and short enough to be read."""

from __future__ import annotations

from retime.replay import run, told
from retime.replay.traced import build


def test_a_short_sentence_is_as_it_was_and_told_once():
    said = "fitted: all_gather on 0@1eacc8c1 (8 ranks, ring): alpha 1.78 us"
    assert told.told([said, "few steps", said]) == [said, "few steps"]


def test_a_name_of_a_megabyte_keeps_its_ends():
    name = "begins" + "x" * 1_000_000 + "ends"
    text = told.short(f"all_reduce on {name}: no size")
    assert text == f"all_reduce on begins{'x' * 60}…{'x' * 28}ends: no size"


def test_words_without_end_are_cut_too():
    text = told.short("a " * 500_000)
    assert len(text) == told.LONGEST
    assert text.startswith("a a a ")
    assert text.endswith("a a ")


def test_two_names_that_look_alike_when_short_are_still_two_sentences():
    names = ["a" * 300 + c + "b" * 300 for c in "xyx"]
    assert len(told.told(f"{n} has no size" for n in names)) == 2


def test_notes_of_a_replay_are_short(tables):
    for rank in (0, 1):
        tables.kernel(rank, "work", 0, 100 + 50 * rank, step=0)
        tables.part(rank, "all_reduce", 100 + 50 * rank, 200, instance=0, stream=7, step=0)
        tables.step(rank, 0, 0, 200)
    name = "n" * 1_000_000
    job = build.build(tables.frames(), "small")
    job = job.note(assumptions=(f"on {name}",), warnings=(f"of {name}",))
    result = run.replay(job, ["align-arrivals"])
    assert len(str(result)) < 20_000
    assert any(w.startswith("of nnn") for w in result["warnings"])
    (entry,) = result["policies"]
    assert any(a.startswith("on nnn") for a in entry["assumptions"])


def test_no_quantity_is_a_power_of_ten():
    said = told.told(["ranks wait 4.48e+03 ms, send 1.2e+04 bytes at 5e-05 GB/s; 12.3 us stay"])
    assert said == ["ranks wait 4,480 ms, send 12,000 bytes at 0.00005 GB/s; 12.3 us stay"]
    # Names keep theirs.
    assert told.told(["all_reduce on lr1e-05 and 1e-05: 3 us"]) == [
        "all_reduce on lr1e-05 and 1e-05: 3 us"
    ]
