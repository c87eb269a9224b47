"""Draws the pictures of quantities.md: `python docs/pictures/draw.py` writes them beside itself.

Colours are those of Okabe and Ito, which colour-blind readers tell apart; every box also says in
words what it is. Text outside boxes follows the reader's light or dark page.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

FILL = {
    "compute": ("#0072B2", "#fff"),
    "wait": ("#E69F00", "#000"),
    "transfer": ("#009E73", "#000"),
    "both": ("#56B4E9", "#000"),
    "copy": ("#CC79A7", "#000"),
    "late": ("#D55E00", "#000"),
    "other": ("#F0E442", "#000"),
    "idle": ("none", None),
}
"""Fill and text of a box, by what it shows; idle time is an empty box with a dashed edge."""

WIDTH, LEFT, RIGHT = 600, 110, 20
LANE, GAP, TOP = 26, 8, 30
LETTER = 7.3
"""Width of a letter at most: a text that its box cannot hold is a mistake."""

STYLE = (
    "text{font:12px sans-serif;fill:#57606a}.edge{stroke:#6e7781;fill:none}"
    "@media(prefers-color-scheme:dark){text{fill:#c9d1d9}.edge{stroke:#9198a1}}"
)

Box = tuple[float, float, str, str]
"""Start, end, what it shows (of `FILL`), and its words."""


def pictures() -> dict[str, str]:
    """Name of each picture -> its SVG."""
    return {**of_collectives(), **of_steps(), **of_ranks(), **of_loads(), **of_jobs()}


def of_collectives() -> dict[str, str]:
    three = [
        ("rank 0", [(0, 60, "wait", "wait"), (60, 100, "transfer", "transfer")]),
        ("rank 1", [(20, 60, "wait", "wait"), (60, 100, "transfer", "transfer")]),
        ("rank 2", [(60, 100, "transfer", "transfer")]),
    ]
    return {
        "wait": lanes("Two ranks wait for the third; then all transfer", three, 110,
                      [(60, "ready"), (100, "end")]),
        "ready": lanes(
            "A broadcast waits for its root alone",
            [("rank 0", [(0, 20, "wait", "wait"), (20, 100, "transfer", "transfer")]),
             ("rank 1, root", [(20, 100, "transfer", "transfer")]),
             ("rank 2", [(60, 100, "transfer", "transfer")])],
            110, [(20, "the root starts: ready")]),
        "sync_tax": lanes(
            "Waits and transfers of all ranks, added up",
            [("rank 0", [(0, 60, "wait", "60"), (60, 100, "transfer", "40")]),
             ("rank 1", [(0, 40, "wait", "40"), (40, 80, "transfer", "40")]),
             ("rank 2", [(0, 40, "transfer", "40")]),
             ("together", [(0, 100, "wait", "100 of wait: 45 %"),
                           (100, 220, "transfer", "120 of transfer")])],
            230),
        "bandwidth": lanes(
            "3,000 bytes over the whole collective, and over its transfer",
            [*three, ("busbw", [(0, 100, "idle", "whole: 40 GB/s")]),
             ("", [(60, 100, "idle", "transfer: 100 GB/s")])],
            110, [(60, "ready")]),
        "clocks": lanes(
            "An offset makes the ends of one collective coincide",
            [("host 0", [(0, 100, "transfer", "collective")]),
             ("host 1, raw", [(560, 600, "late", "")]),
             ("host 1, job's", [(60, 100, "transfer", "")])],
            640, [(100, "end"), (600, "end on its own clock")]),
        "matching": lanes(
            "The capture of rank 1 began two calls later: matched from the end",
            [("rank 0", [(0, 40, "transfer", "1"), (50, 90, "transfer", "2"),
                         (100, 140, "both", "3"), (150, 190, "other", "4")]),
             ("rank 1", [(102, 140, "both", "3"), (155, 190, "other", "4")])],
            200, [(97, "capture of rank 1 begins")]),
        "dims": lanes(
            "Eight ranks in two kinds of groups: neighbours, and every second rank",
            [("pairs (tp)", [(i, i + 0.95, ("transfer", "wait", "both", "copy")[i // 2], str(i))
                             for i in range(8)]),
             ("stride 2 (dp)", [(i, i + 0.95, ("transfer", "wait")[i % 2], str(i))
                                for i in range(8)])],
            8),
        "hangs": lanes(
            "Ranks 0 and 1 are in collective 5, rank 2 never entered it",
            [("rank 0", [(0, 40, "transfer", "4"), (50, 200, "wait", "5: entered")]),
             ("rank 1", [(0, 40, "transfer", "4"), (60, 200, "wait", "5: entered")]),
             ("rank 2", [(0, 40, "transfer", "4"), (50, 200, "idle", "nothing")])],
            210, [(200, "")]),
    }  # fmt: skip


def of_steps() -> dict[str, str]:
    return {
        "overlap": lanes(
            "A third of the communication is under compute",
            [("compute", [(0, 60, "compute", "gemm")]),
             ("comm", [(40, 60, "both", ""), (60, 100, "transfer", "exposed: 40")])],
            110, [(40, ""), (60, "20 overlap")]),
        "breakdown": lanes(
            "Every nanosecond of a step is in one class",
            [("compute", [(0, 60, "compute", "gemm")]),
             ("comm", [(40, 80, "wait", "wait"), (80, 100, "transfer", "transfer")]),
             ("step", [(0, 40, "compute", "compute"), (40, 60, "both", "with comm"),
                       (60, 80, "wait", "exposed"), (80, 100, "transfer", "exposed"),
                       (100, 120, "idle", "idle")])],
            120, [(80, "ready")]),
        "composition": lanes(
            "A moment counts for what began first, and for compute before copies",
            [("stream 7", [(0, 60, "compute", "gemm")]),
             ("stream 8", [(40, 80, "both", "norm")]),
             ("copies", [(70, 100, "copy", "Memcpy")]),
             ("step", [(0, 60, "compute", "gemm 60"), (60, 80, "both", "norm 20"),
                       (80, 100, "copy", "copy 20")])],
            105),
        "idle": lanes(
            "What the launch of the next kernel says of a gap",
            [("host", [(50, 55, "other", ""), (70, 75, "other", "")]),
             ("stream 7", [(0, 40, "compute", "a"), (40, 60, "idle", "gap"),
                           (60, 100, "compute", "b"), (100, 120, "idle", "gap"),
                           (120, 150, "compute", "c")])],
            155, [(50, "launch of b"), (75, "launch of c")]),
        "steps": lanes(
            "Between two runs of the optimizer always the same collectives",
            [("comm", [(x + a, x + b, kind, "") for x in (0, 100, 200)
                       for a, b, kind in ((10, 30, "transfer"), (35, 50, "wait"),
                                          (55, 70, "transfer"))]),
             ("optimizer", [(x + 80, x + 98, "compute", "opt") for x in (0, 100, 200)]),
             ("steps", [(0, 98, "idle", "step 0"), (98, 198, "idle", "step 1"),
                        (198, 298, "idle", "step 2")])],
            300),
        "critical": lanes(
            "The path: rank 1's kernel, then the transfer",
            [("rank 0", [(0, 40, "both", "kernel"), (40, 100, "wait", "slack: 60"),
                         (100, 120, "transfer", "")]),
             ("rank 1", [(0, 100, "late", "kernel, on the path"),
                         (100, 120, "transfer", "path")])],
            125, [(100, "rank 1 arrives")]),
    }  # fmt: skip


def of_ranks() -> dict[str, str]:
    return {
        "late": lanes(
            "What the last rank caused: wait after the last but one had started",
            [("rank 0", [(0, 20, "other", "20"), (20, 60, "wait", "caused: 40"),
                         (60, 100, "transfer", "transfer")]),
             ("rank 1", [(20, 60, "wait", "caused: 40"), (60, 100, "transfer", "transfer")]),
             ("rank 2, last", [(60, 100, "transfer", "transfer")])],
            110, [(20, "last but one"), (60, "last")]),
        "straggler": lanes(
            "Between two collectives one rank computes twice as long",
            [("rank 0", [(90, 100, "transfer", ""), (100, 200, "compute", "k: 100"),
                         (200, 300, "wait", "wait"), (300, 320, "transfer", "")]),
             ("rank 1", [(90, 100, "transfer", ""), (100, 200, "compute", "k: 100"),
                         (200, 300, "wait", "wait"), (300, 320, "transfer", "")]),
             ("rank 2", [(90, 100, "transfer", ""), (100, 300, "late", "k: 200"),
                         (300, 320, "transfer", "")])],
            330, [(100, "left the last one"), (200, "median start")]),
        "trend": points("Rank 2 comes later from step to step",
                        [(0, 10), (1, 20), (2, 30), (3, 40)], (0, 10, 3, 40),
                        "step", "lateness, ns"),
        "sm_budget": lanes(
            "The same kernel alone, and beside communication",
            [("comm", [(60, 125, "transfer", "nccl, 24 blocks")]),
             ("compute", [(x, x + 10, "compute", "") for x in (0, 20, 40)]
              + [(x, x + 15, "late", "") for x in (62, 83, 104)])],
            130, [(0, "10 each"), (62, "15 each")]),
        "storage": lanes(
            "A transfer beside storage traffic against its like without",
            [("storage", [(300, 330, "copy", "")]),
             ("collectives", [(1, 11, "transfer", ""), (101, 111, "transfer", ""),
                              (201, 211, "transfer", ""), (301, 326, "late", "")])],
            340, [(1, "100"), (101, "100"), (201, "100"), (301, "250")]),
        "hockney": points("Transfer time against size",
                          [(1, 200), (4, 500), (16, 1700)], (0, 100, 16, 1700),
                          "size, KB", "transfer, ns"),
    }  # fmt: skip


def of_loads() -> dict[str, str]:
    return {
        "kernels": bars("Time by class of kernel",
                        [("gemm", 80, "compute"), ("unknown", 20, "idle")], None),
        "rails": bars("Two rails of a host: max/mean 1.5",
                      [("rail 0", 300, "transfer"), ("rail 1", 100, "transfer")], (200, "mean")),
        "experts": bars("Tokens of four experts: max/mean 2.67",
                        [("expert 0", 8, "late"), ("expert 1", 2, "both"), ("expert 2", 0, "both"),
                         ("expert 3", 2, "both")], (3, "mean")),
        "regression": points("Each step a point", [(1.5, 1.5), (1, 1), (1.25, 1.25)],
                             (1, 1, 1.5, 1.5), "experts' max/mean", "rails' max/mean"),
    }  # fmt: skip


def of_jobs() -> dict[str, str]:
    late = {0: "n2", 1: "n2", 2: "n1", 3: "n2", 4: "n3", 5: "n2"}
    return {
        "diff": lanes(
            "The changes of the parts add up to that of the step",
            [("step of A", [(0, 60, "compute", "gemm 60"), (60, 80, "wait", "20"),
                            (80, 120, "transfer", "40")]),
             ("step of B", [(0, 60, "compute", "gemm 60"), (60, 110, "wait", "50: +30"),
                            (110, 140, "transfer", "30: -10")])],
            150, [(120, "A"), (140, "B: +20")]),
        "fleet": lanes(
            "The latest host of six jobs",
            [(host, [(j, j + 0.95, "late" if late[j] == host else "idle",
                      "latest" if late[j] == host else "") for j in range(6)])
             for host in ("n1", "n2", "n3")],
            6, [(j, f"job {j}") for j in range(6)]),
    }  # fmt: skip


def lanes(
    title: str,
    rows: Sequence[tuple[str, Sequence[Box]]],
    until: float,
    marks: Sequence[tuple[float, str]] = (),
) -> str:
    """Boxes on lanes, over time from 0 to `until`; marks are dashed lines with words on top."""
    scale = (WIDTH - LEFT - RIGHT) / until
    height = TOP + len(rows) * (LANE + GAP)
    parts = []
    for i, (label, boxes) in enumerate(rows):
        y = TOP + i * (LANE + GAP)
        parts.append(words(LEFT - 8, y + 17, label, "end"))
        for start, end, kind, text in boxes:
            parts.append(box(LEFT + start * scale, y, (end - start) * scale, kind, text))
    for time, text in marks:
        x = LEFT + time * scale
        parts.append(f'<path class="edge" stroke-dasharray="4 3" d="M{x:.1f} 20V{height - 2}"/>')
        room = WIDTH - x < len(text) * LETTER
        parts.append(words(min(x, WIDTH - 2) if room else x, 14, text, "end" if room else "start"))
    return svg(title, height, parts)


def bars(title: str, rows: Sequence[tuple[str, float, str]], line: tuple[float, str] | None) -> str:
    """A bar a row with its figure, and a dashed line where one is given."""
    scale = (WIDTH - LEFT - 70) / max(v for _, v, _ in rows)
    height = TOP + len(rows) * (LANE + GAP)
    parts = []
    for i, (label, amount, kind) in enumerate(rows):
        y = TOP + i * (LANE + GAP)
        parts.append(words(LEFT - 8, y + 17, label, "end"))
        parts.append(box(LEFT, y, amount * scale, kind, ""))
        parts.append(words(LEFT + amount * scale + 8, y + 17, f"{amount:g}", "start"))
    if line:
        x = LEFT + line[0] * scale
        parts.append(f'<path class="edge" stroke-dasharray="4 3" d="M{x:.1f} 20V{height - 2}"/>')
        parts.append(words(x, 14, line[1], "start"))
    return svg(title, height, parts)


def points(
    title: str,
    found: Sequence[tuple[float, float]],
    line: tuple[float, float, float, float],
    across: str,
    up: str,
) -> str:
    """Points and a line through them, between axes that begin at 0."""
    height, bottom = 190, 150
    right, top = max(x for x, _ in found), max(y for _, y in found)

    def at(x: float, y: float) -> tuple[float, float]:
        return LEFT + x / right * (WIDTH - LEFT - 60), bottom - y / top * (bottom - 30)

    (x0, y0), (x1, y1) = at(*line[:2]), at(*line[2:])
    parts = [
        f'<path class="edge" d="M{LEFT} 20V{bottom}H{WIDTH - 20}"/>',
        f'<path stroke="#D55E00" stroke-width="2" d="M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}"/>',
    ]
    for x, y in found:
        px, py = at(x, y)
        parts.append(f'<circle cx="{px:.1f}" cy="{py:.1f}" r="5" fill="#0072B2"/>')
        parts.append(words(px, bottom + 16, f"{x:g}", "middle"))
        parts.append(words(LEFT - 8, py + 4, f"{y:g}", "end"))
    parts.append(words(WIDTH - 20, bottom + 34, across, "end"))
    parts.append(words(LEFT + 6, 14, up, "start"))
    return svg(title, height, parts)


def box(x: float, y: float, width: float, kind: str, text: str) -> str:
    """A filled box with its words in the middle. Raises ValueError where they do not fit."""
    fill, ink = FILL[kind]
    if len(text) * LETTER > width:
        raise ValueError(f"{text!r} needs {len(text) * LETTER:.0f}, its box has {width:.0f}")
    edge = ' class="edge" stroke-dasharray="3 3"' if kind == "idle" else f' fill="{fill}"'
    parts = [
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 1):.1f}" height="{LANE}" rx="2"{edge}/>'
    ]
    if text:
        style = f' style="fill:{ink}"' if ink else ""
        parts.append(words(x + width / 2, y + 17, text, "middle", style))
    return "".join(parts)


def words(x: float, y: float, text: str, anchor: str, style: str = "") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{style}>{escape(text)}</text>'
        if text
        else ""
    )


def svg(title: str, height: float, parts: Sequence[str]) -> str:
    """The whole picture, a line a part."""
    size = f'width="{WIDTH}" height="{height:g}" viewBox="0 0 {WIDTH} {height:g}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    body = [f"<title>{escape(title)}</title>", f"<style>{STYLE}</style>", *parts]
    return "\n".join([head, *(p for p in body if p), "</svg>"]) + "\n"


if __name__ == "__main__":
    for name, drawn in pictures().items():
        (Path(__file__).parent / f"{name}.svg").write_text(drawn, encoding="utf-8")
