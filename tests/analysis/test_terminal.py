"""Tables on a terminal: they fit, they do not wrap, and names from traces cannot act."""

from __future__ import annotations

import io
import json

import pytest
import retime
from retime.analysis import replay_screen, terminal
from rich.console import Console

ROWS = [
    {"name": "a" * 40, "host": "b" * 40, "wait_ns": 1_500_000},
    {"name": "c", "host": None, "wait_ns": 12},
]


def printed(width: int, rows: list[dict], **options) -> list[str]:
    out = Console(file=io.StringIO(), width=width, highlight=False, markup=False)
    terminal.show_table(out, rows, **options)
    return out.file.getvalue().splitlines()  # type: ignore[attr-defined]


def test_numbers_are_right_aligned_and_carry_their_unit() -> None:
    assert printed(100, [{"op": "x", "wait_ns": 1_500_000}, {"op": "yy", "wait_ns": 12}]) == [
        "op  wait_ns",
        "x   1.50 ms",
        "yy    12 ns",
    ]


@pytest.mark.parametrize("width", [30, 50, 80, 160])
def test_no_line_is_longer_than_the_terminal(width: int) -> None:
    lines = printed(width, ROWS)
    assert len(lines) >= 3
    assert max(map(len, lines)) <= width


def test_text_is_cut_before_columns_go() -> None:
    assert printed(54, ROWS)[1] == "aaaaaaaaaaaaaaaa…aaaaaaa  bbbbbbbbbbbb…bbbbbb  1.50 ms"


def test_columns_that_do_not_fit_are_named() -> None:
    lines = printed(38, ROWS)
    assert lines[0].split() == ["name", "host"]
    assert lines[-2:] == ["(1 more column does not fit: wait_ns;", "--json has it)"]


def test_rows_beyond_the_limit_are_counted() -> None:
    lines = printed(80, [{"n": i} for i in range(60)], limit=50)
    assert lines[-1] == "(50 of 60 rows; --limit N or --json for more)"
    assert len(lines) == 52


def test_raw_values_are_as_stored() -> None:
    assert printed(80, [{"wait_ns": 1_500_000, "share": 0.5}], raw=True)[1].split() == [
        "1500000",
        "0.5",
    ]


def test_no_rows() -> None:
    assert printed(80, []) == ["no rows"]


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("a\nb\rc\td", "a\\x0ab\\x0dc\\x09d"),
        ("\x9b0m", "\\x9b0m"),
        ("x\u202egnp.exe", "x\\u202egnp.exe"),
        ("[bold]plain[/bold]", "[bold]plain[/bold]"),
        ("训练 é", "训练 é"),
        ("\udcff", "\\udcff"),
    ],
)
def test_control_characters_are_written_out(text: str, safe: str) -> None:
    assert terminal.clean(text) == safe


def test_a_word_of_a_megabyte_keeps_its_ends():
    # Wrapped by Rich it would not end.
    got = terminal.clean("see a" + "x" * 1_000_000 + "b now")
    assert len(got) < 2_020
    assert got.startswith("see axx")
    assert got.endswith("xb now")
    assert terminal.clean("short " * 1000) == "short " * 1000


def test_markup_in_a_name_is_text() -> None:
    assert printed(80, [{"name": "[bold red]x[/] :smile:"}])[1] == "[bold red]x[/] :smile:"


def test_json_has_no_nan_and_keeps_big_integers() -> None:
    rows = [{"x": float("nan"), "n": 2**62 + 1, "s": "\ud800", "l": [1, float("inf")]}]
    assert json.loads(terminal.to_json(rows)) == [
        {"x": None, "n": 2**62 + 1, "s": "\\ud800", "l": [1, None]}
    ]


@pytest.mark.parametrize(
    ("share", "encoding", "text"),
    [
        (0.5, "utf-8", "█████"),
        (0.125, "utf-8", "█▎"),
        (0.0, "utf-8", ""),
        (1.2, "utf-8", "█" * 10),
        (0.5, "ascii", "#####"),
    ],
)
def test_bar(share: float, encoding: str, text: str) -> None:
    assert terminal.bar(share, 10, encoding) == text


def test_split_lines_up() -> None:
    out = Console(file=io.StringIO(), width=60, highlight=False)
    rows = [
        {"class": "compute", "group": "compute", "mean_ns": 9_000_000, "share": 0.9},
        {"class": "exposed_wait", "group": "wait", "mean_ns": 1_000_000, "share": 0.1},
        {"class": "idle_unknown", "group": "idle", "mean_ns": 0, "share": 0.0},
    ]
    terminal.show_split(out, rows)
    lines = out.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert [line.split("%")[0] for line in lines] == [
        "  compute alone  9.00 ms  90.0 ",
        "  exposed wait   1.00 ms  10.0 ",
    ]
    assert max(map(len, lines)) <= 60


def test_replay_screen() -> None:
    result = {
        "job": "j",
        "steps": [10, 11],
        "measured_ns": 168_200_000,
        "replayed_ns": 168_300_000,
        "fidelity_pct": 0.06,
        "critical_path": {
            "work_share": 0.9,
            "host_share": 0.0,
            "transfer_share": 0.069,
            "unexplained_share": 0.031,
        },
        "policies": [
            {
                "name": "align-arrivals",
                "params": {"ranks": [3], "factor": 0.0, "cause": None},
                "step_ns": 160_000_000,
                "low_ns": 159_000_000,
                "high_ns": 161_500_000,
                "gain_pct": 4.9,
                "recovered": {"wait_ns": 8_000_000, "transfer_ns": 0, "exposed_ns": 7_000_000},
                "assumptions": ["compute keeps its time"],
                "warnings": ["few steps"],
            }
        ],
    }
    out = Console(file=io.StringIO(), width=200, highlight=False)
    replay_screen.show_replay(out, result)
    lines = out.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines[0] == (
        "measured 168.2 ms a step (mean of 2), replayed unchanged 168.3 ms: off by 0.06 %; 3.1 % "
        "of the critical path is gaps no recorded dependency explains, kept as measured"
    )
    assert lines[1] == (
        "critical path: 90.0 % measured work, less than 0.01 % host time between calls, 6.9 % "
        "communication transfer, 3.1 % unexplained gaps"
    )
    assert [line.split() for line in lines[3:5]] == [
        ["policy", "step", "(interval)", "gain", "wait", "transfer", "exposed"],
        ["align-arrivals:ranks=3", "160.0", "ms", "(159.0", "to", "161.5)", "4.9", "%",
         "8.00", "ms", "0", "ns", "7.00", "ms"],
    ]  # fmt: skip
    assert lines[-2:] == ["assumes: compute keeps its time", "warning: few steps"]


LAST = {
    "rank": 3, "host": None, "times_last": 5, "collectives": 9, "wait_caused_ns": 7_000_000,
    "wait_share": 0.5,
}  # fmt: skip


def test_nobody_is_blamed_for_a_pipelines_schedule() -> None:
    said = terminal.straggler_sentence({"waited_for": LAST, "paired_wait_share": 0.8})
    assert said == (
        "Most of the wait (80.0 %) is at sends and receives. In a pipeline part of it is the "
        "schedule itself, so being last there is no fault: retime stragglers separates the two. "
        "Rank 3 was last at the greatest cost, which does not make it the straggler."
    )


def test_the_rank_that_others_wait_for_is_named() -> None:
    found = {"rank": 3, "by": "arrivals", "late": LAST, "why": None}
    said = terminal.straggler_sentence(
        {"waited_for": LAST, "culprit": found, "paired_wait_share": 0.2}
    )
    assert said.startswith("The others wait for rank 3: it was last to start in 5 of 9 collectives")
    assert terminal.pipeline_sentence({"paired_wait_share": 0.2}) == ""
    nobody = terminal.straggler_sentence({"waited_for": None, "paired_wait_share": 0.0})
    assert "who waits for whom is not known" in nobody


@pytest.mark.parametrize("width", [80, 160])
@pytest.mark.parametrize(
    ("folder", "job", "holds"),
    [
        ("topo/aws-ofi-nccl", "topology", "149 links and devices"),
        ("nccl_tests", "curves", "408 points of cost curves"),
        ("moe/ESFT", "routing", "7,448 routed counts, 3,328 samples of counters"),
    ],
)
def test_a_job_without_ranks_says_what_it_holds(
    retime_traces, tmp_path, folder, job, holds, width
) -> None:
    warehouse = retime.open(tmp_path)
    assert warehouse.ingest(str(retime_traces / folder), job=job, workers=1).exit_code == 0
    out = Console(file=io.StringIO(), width=width, highlight=False, markup=False)
    terminal.show_job(out, warehouse.job(job).show())
    shown = out.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, shown.splitlines())) <= width
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert f"holds {holds}" in lines
    assert "ranks none: no source is the trace of a rank" in lines
    table = {"topology": "topology", "curves": "cost_curves", "routing": "routing"}[job]
    assert f"retime sql 'FROM {table}' has the rows." in " ".join(lines)
    assert "who waits for whom" not in shown
    assert "host" not in shown


def test_a_long_sweep_says_how_far_it_is_every_ten_seconds(capsys):
    from retime.analysis import tracking

    clock = iter([0.0, 4.0, 11.0, 12.0, 21.5, 40.0])
    update = tracking._by_line(lambda: next(clock))
    for done in (10, 1_200, 1_300, 2_500, 3_000):
        update(done, 3_000)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "re-timed 1,200 of 3,000 in 11.0 s",
        "re-timed 2,500 of 3,000 in 21.5 s",
    ]
