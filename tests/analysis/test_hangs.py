"""What a hang's dumps tell: the two real 16-rank hangs with their known faults, and small ones."""

from __future__ import annotations

import io
import re

import pytest
import retime
from retime.analysis import hangs, terminal
from retime.analysis.hang_screen import collective_sentence, ranks_words, show_hang
from rich.console import Console

REAL = "flight_recorder/nvidia-resiliency-ext"


def screen(hang: dict, width: int) -> str:
    out = Console(file=io.StringIO(), width=width, highlight=False, markup=False)
    show_hang(out, hang)
    return out.file.getvalue()


@pytest.fixture(scope="module")
def real(retime_traces, tmp_path_factory):
    warehouse = retime.open(tmp_path_factory.mktemp("warehouse"))
    for run in ("lock_gil_1st", "gpu_error_1st"):
        report = warehouse.ingest(str(retime_traces / REAL / "fr_traces" / run), job=run, workers=1)
        assert report.exit_code in (0, 1)
    return warehouse


def of_file(retime_traces, run: str) -> tuple[list[int], list[str], str, list[int]]:
    """Ranks of the injected fault; op, group and missing ranks of the reference's one row."""
    log = (retime_traces / REAL / "fr_traces" / run / "fault_injection.log").read_text()
    faults = [int(r) for r in re.findall(r"^Rank (\d+), fault_type", log, re.MULTILINE)]
    table = (retime_traces / REAL / "reference_outputs" / f"{run}_reference.txt").read_text()
    cells = [c.strip() for c in table.strip().splitlines()[-1].split("|")]
    group, op, missing = cells[1].split(",")[0], cells[2].removeprefix("nccl:"), cells[-1]
    return faults, [op], group, [int(r) for r in missing.split(",")]


@pytest.mark.parametrize("run", ["lock_gil_1st", "gpu_error_1st"])
def test_the_injected_fault_is_what_is_named(real, retime_traces, run):
    faults, [op], group, missing = of_file(retime_traces, run)
    hang = real.job(run).show()["hang"]
    assert hang["ranks"] == 16
    assert [r["rank"] for r in hang["roots"]] == faults
    # The reference's row is the first collective here, with the same missing ranks.
    first = hang["collectives"][0]
    assert (first["kind"], first["op"], first["group_name"]) == ("missing", op, group)
    assert first["missing"] == missing
    assert {r for c in hang["collectives"] for r in c["missing"]} == set(missing)


def test_why_a_rank_is_a_root(real):
    why = {run: [(r["rank"], r["why"]) for r in real.job(run).show()["hang"]["roots"]]
           for run in real.job_ids()}  # fmt: skip
    assert why == {
        # Two processes that no longer ran Python; two devices that failed under their hosts.
        "lock_gil_1st": [(9, "idle"), (14, "idle")],
        "gpu_error_1st": [(12, "stuck"), (14, "stuck")],
    }


@pytest.mark.parametrize("width", [80, 160])
def test_the_screen_fits_and_names_ranks_and_collectives(real, width):
    text = screen(real.job("lock_gil_1st").show()["hang"], width)
    assert max(map(len, text.splitlines())) <= width
    plain = " ".join(text.split())
    assert "Hang: look at ranks 9 and 14 first." in plain
    assert (
        "all_to_all #45265 of EXPERT_MODEL_PARALLEL_GROUP (ep, 8 ranks): ranks 9 and 14 never "
        "entered it; ranks 8, 10 to 13 and 15 have. (2 more like it there)"
    ) in plain
    assert plain.count("If the job was still running when it was dumped, this may be lag") == 1
    assert "Ranks 0 to 7 wait to send to ranks 8 to 15 (0 to 8, 1 to 9," in plain


def test_a_job_of_untimed_rows_is_shown_whole(real, capsys):
    facts = real.job("lock_gil_1st").show()
    terminal.show_job(terminal.console(), facts)
    shown = capsys.readouterr().out
    assert "53 on 18 of 59 communicators, in 142 participations" in shown
    assert shown.count("Hang:") == 1
    assert "who waits for whom" not in shown


def con_of(open_rows, *rows: dict, ranks=(0, 1, 2)):
    comms = [{"comm": "w", "name": "7", "ranks": list(ranks), "size": len(ranks), "dim": "dp"}]
    base = {"comm": "w", "op": "all_reduce", "state": "scheduled", "source": "flight-recorder"}
    return open_rows({"comms": comms, "collectives": [base | r for r in rows]})


def test_a_rank_without_a_dump_is_told_and_no_root(open_rows):
    con = con_of(open_rows, *({"rank": r, "seq": 5, "enqueued_ns": r} for r in (0, 1)))
    hang = hangs.find(con)
    assert hang is not None
    assert (hang["ranks"], hang["roots"]) == (2, [])
    [found] = hang["collectives"]
    assert collective_sentence(found) == (
        "all_reduce #5 of 7 (dp, 3 ranks): ranks 0 and 1 have entered it; rank 2 left no dump."
    )
    assert screen(hang, 80).startswith("Hang: others wait for rank 2, of whom no dump tells.")


def test_who_waits_himself_is_no_root(open_rows):
    # Rank 2 is missing from 6 because it waits in 5 of another communicator for rank 3.
    comms = [
        {"comm": "w", "name": "w", "ranks": [0, 2]},
        {"comm": "v", "name": "v", "ranks": [2, 3]},
    ]
    rows = [
        {"rank": 0, "comm": "w", "seq": 6}, {"rank": 2, "comm": "v", "seq": 5},
        {"rank": 2, "comm": "w", "seq": 5, "state": "completed"},
        {"rank": 3, "comm": "v", "seq": 4, "state": "completed"},
    ]  # fmt: skip
    base = {"op": "all_reduce", "state": "scheduled", "enqueued_ns": 1,
            "source": "flight-recorder"}  # fmt: skip
    hang = hangs.find(open_rows({"comms": comms, "collectives": [base | r for r in rows]}))
    assert hang is not None
    assert [(r["rank"], r["why"]) for r in hang["roots"]] == [(3, "idle")]
    assert [(c["comm"], c["missing"]) for c in hang["collectives"]] == [("v", [3]), ("w", [2])]


def test_operations_that_all_are_in_are_no_hang(open_rows):
    con = con_of(open_rows, *({"rank": r, "seq": 5, "enqueued_ns": r} for r in (0, 1, 2)))
    assert hangs.find(con) is None


def test_jobs_without_dumps_have_no_hang(open_rows):
    assert hangs.find(con_of(open_rows, {"rank": 0, "seq": 5, "state": None})) is None


def test_a_rank_with_an_inspector_log_alone_left_no_dump(open_rows):
    rows = [{"rank": r, "seq": 5, "enqueued_ns": r} for r in (0, 1)]
    log = {"rank": 2, "seq": 4, "state": "completed", "source": "inspector", "exec_ns": 7}
    hang = hangs.find(con_of(open_rows, *rows, log))
    assert hang is not None
    assert (hang["ranks"], hang["roots"]) == (2, [])
    assert [(c["missing"], c["silent"]) for c in hang["collectives"]] == [([], [2])]


def test_what_the_profiler_had_not_seen_complete_is_no_hang(open_rows):
    con = con_of(open_rows, {"rank": 0, "seq": 5, "enqueued_ns": 1, "source": "profiler"})
    assert hangs.find(con) is None


def test_ranks_in_words():
    assert ranks_words([3]) == "rank 3"
    assert ranks_words([2, 1]) == "ranks 1 and 2"
    assert ranks_words([1, 4, 5, 6, 9]) == "ranks 1, 4 to 6 and 9"
    assert ranks_words(range(0, 40, 2)) == "ranks 0, 2, 4, 6, 8, 10, 12, 14 and 12 more"
