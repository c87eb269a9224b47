"""Frames and figures on a terminal: tables that never wrap, plain text when piped."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from . import units

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

UNLIMITED = 100_000
"""Width of a console that is not a terminal: nothing is cut where a program reads."""

NARROWEST = 12
"""Cells of text are cut no shorter than this, in characters, before columns are left out."""

LONGEST_NAME = 60
"""Characters of a kernel's name in a table; the JSON has all."""

STYLES = {
    "compute": "green",
    "wait": "red",
    "transfer": "yellow",
    "unsplit": "magenta",
    "memcpy": "cyan",
    "idle": "dim",
}

UNSAFE = {
    *range(0x00, 0x20),
    *range(0x7F, 0xA0),
    0x061C,
    *range(0x200B, 0x2010),
    *range(0x2028, 0x202F),
    *range(0x2060, 0x2070),
    0xFEFF,
}
"""Code points that move the cursor, hide text or turn its direction."""


def clean(text: str) -> str:
    """`text` with control and direction characters written out: what a trace named cannot act."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        (f"\\x{ord(c):02x}" if ord(c) < 256 else f"\\u{ord(c):04x}")
        if ord(c) in UNSAFE or 0xD800 <= ord(c) < 0xE000
        else c
        for c in text
    )


def console(stderr: bool = False) -> Console:
    """A console as wide as the terminal; unlimited and colourless where there is none."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else UNLIMITED
    return Console(file=stream, width=width, highlight=False, emoji=False, markup=False)


def to_json(value: Any) -> str:
    """JSON of rows or of one object: NaN and infinities are null, decimals and dates text."""
    return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False, default=str)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Iterable) and not isinstance(value, bytes):
        return [_plain(v) for v in value]
    item = getattr(value, "item", None)
    if item is not None:
        return _plain(item())
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else str(value)
    return value


def cell(name: str, value: Any, raw: bool = False) -> str:
    """One value of a column: by the unit in the column's name, or `raw` as stored."""
    if value is None:
        return units.NOTHING
    if isinstance(value, list | tuple):
        inner = [cell("", v, raw) for v in value]
        return "[" + ", ".join(inner) + "]"
    if isinstance(value, Mapping):
        return clean(to_json(value))
    if raw and isinstance(value, float):
        return f"{value:.6g}"
    if raw:
        return clean(str(value))
    return clean(units.of(name, value))


class Cells:
    """A table as text: header, rows of cells, and which columns are numbers."""

    def __init__(self, names: Sequence[str], rows: list[list[str]], numeric: Sequence[bool]):
        self.names = list(names)
        self.rows = rows
        self.numeric = list(numeric)

    def widths(self) -> list[int]:
        """Columns of the screen that each column of the table wants."""
        from rich.cells import cell_len

        return [
            max([cell_len(n), *(cell_len(r[i]) for r in self.rows)])
            for i, n in enumerate(self.names)
        ]


def cells(
    rows: Sequence[Mapping[str, Any]],
    columns: Mapping[str, str] | None = None,
    *,
    names: Sequence[str] | None = None,
    raw: bool = False,
) -> Cells:
    """Rows as text; `columns` picks and titles them, `names` lists them where rows may be empty."""
    keys = list(columns) if columns else list(names or (rows[0] if rows else ()))
    titles = [columns[k] for k in keys] if columns else [clean(k) for k in keys]
    numeric = [
        any(isinstance(r[k], int | float | Decimal) for r in rows)
        and all(r[k] is None or isinstance(r[k], int | float | Decimal) for r in rows)
        for k in keys
    ]
    return Cells(titles, [[cell(k, r[k], raw) for k in keys] for r in rows], numeric)


def fit(table: Cells, width: int) -> tuple[list[int], list[int]]:
    """Columns that fit in `width` and the room of each: text is cut first, then columns go.

    Returns (indices kept, their widths); two spaces part columns. Numbers are never cut.
    """
    want = table.widths()
    floor = [w if n else min(w, NARROWEST) for w, n in zip(want, table.numeric, strict=True)]
    kept = list(range(len(want)))
    while len(kept) > 1 and sum(floor[i] + 2 for i in kept) - 2 > width:
        kept.pop()
    for most in range(min(max(want, default=0), width), NARROWEST - 1, -1):
        room = [want[i] if table.numeric[i] else min(want[i], most) for i in kept]
        if sum(room) + 2 * (len(room) - 1) <= width:
            return kept, room
    return kept, [floor[i] for i in kept]


def cut(text: str, room: int) -> str:
    """`text` in at most `room` columns of the screen, an ellipsis where it was cut."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) <= room:
        return text
    return set_cell_size(text, max(0, room - 1)).rstrip() + "…"


def shorter(text: str, room: int = LONGEST_NAME) -> str:
    """`text` in at most `room` characters, its middle left out: names differ at both ends."""
    if len(text) <= room:
        return text
    tail = (room - 1) // 3
    return f"{text[: room - 1 - tail]}…{text[-tail:]}"


def lines(table: Cells, width: int) -> list[Text]:
    """The table as lines of at most `width` columns; says which columns had no room."""
    from rich.cells import cell_len
    from rich.text import Text

    kept, room = fit(table, width)
    if not kept:
        return []

    def line(texts: list[str], style: str = "") -> Text:
        parts = []
        for text, i, w in zip(texts, kept, room, strict=True):
            text = cut(text, w)
            pad = " " * (w - cell_len(text))
            parts.append(pad + text if table.numeric[i] else text + pad)
        return Text("  ".join(parts).rstrip(), style=style, no_wrap=True, overflow="crop")

    out = [line([table.names[i] for i in kept], "bold")]
    out += [line([row[i] for i in kept]) for row in table.rows]
    left = [table.names[i] for i in range(len(table.names)) if i not in kept]
    if left:
        what = "1 more column does" if len(left) == 1 else f"{len(left)} more columns do"
        note = f"({what} not fit: {', '.join(left)})"
        out.append(Text(cut(note, width), style="dim"))
    return out


def _dropped(table: Cells, width: int) -> bool:
    return len(fit(table, width)[0]) < len(table.names)


def show_table(
    out: Console,
    rows: Sequence[Mapping[str, Any]],
    columns: Mapping[str, str] | None = None,
    *,
    names: Sequence[str] | None = None,
    raw: bool = False,
    limit: int | None = None,
    empty: str = "no rows",
) -> None:
    """Prints rows, at most `limit` of them, with a note where some were left out."""
    if not rows:
        out.print(empty, style="dim")
        return
    shown = rows if limit is None else rows[:limit]
    table = cells(shown, columns, names=names, raw=raw)
    for line in lines(table, out.width):
        out.print(line)
    if raw and _dropped(table, out.width):
        out.print("(--json has every column, and so has SELECT of fewer)", style="dim")
    if len(shown) < len(rows):
        out.print(
            f"({len(shown)} of {len(rows):,} rows; --limit N or --json for more)", style="dim"
        )


def bar(share: float, width: int, encoding: str | None) -> str:
    """A bar of `share` of `width` columns; `#` where the stream has no block characters."""
    full = max(0.0, min(1.0, share)) * width
    if (encoding or "").lower().replace("-", "") != "utf8":
        return "#" * round(full)
    whole, eighths = divmod(round(full * 8), 8)
    return "█" * whole + (" ▏▎▍▌▋▊▉"[eighths] if eighths else "")


def show_split(out: Console, classes: Sequence[Mapping[str, Any]], *, zero: bool = False) -> None:
    """The split of a step: class, mean time, share and a bar, in the order of the rows."""
    from rich.text import Text

    from .frames import words_of

    rows = [r for r in classes if zero or r["mean_ns"] > 0]
    if not rows:
        return
    words = [clean(words_of(r["class"])) for r in rows]
    times = [units.time(r["mean_ns"]) for r in rows]
    shares = [units.percent(r["share"]) for r in rows]
    w, t, s = (max(map(len, c)) for c in (words, times, shares))
    room = max(8, min(40, out.width - (2 + w + 2 + t + 2 + s + 2)))
    for r, word, ns, share in zip(rows, words, times, shares, strict=True):
        line = Text(f"  {word:<{w}}  {ns:>{t}}  {share:>{s}}  ", no_wrap=True)
        line.append(bar(r["share"], room, out.encoding), style=STYLES.get(r["group"], ""))
        out.print(line, soft_wrap=True)


def mostly_paired(facts: Mapping[str, Any]) -> bool:
    """Is most of the wait at sends and receives? Being last there is no sign of a slow rank."""
    return (facts.get("paired_wait_share") or 0.0) > 0.5


def pipeline_sentence(facts: Mapping[str, Any]) -> str:
    """Says so where most of the wait is at sends and receives; else empty."""
    if not mostly_paired(facts):
        return ""
    return (
        f"Most of the wait ({units.percent(facts['paired_wait_share'])}) is at sends and receives. "
        "In a pipeline part of it is the schedule itself, so being last there is no fault: retime "
        "stragglers separates the two."
    )


def straggler_sentence(facts: Mapping[str, Any]) -> str:
    """Who holds the job up and why, from `Job.show()`; says so where nobody can tell."""
    last, found = facts.get("waited_for"), facts.get("culprit")
    why = reason_words((found or {}).get("why"))
    if found is not None and found["by"] == "stragglers":
        ranks = found["ranks"]
        who = f"Rank {ranks[0]} is" if len(ranks) == 1 else f"Ranks {_list(ranks)} are"
        text = (
            f"{who} what holds the job up: {units.percent(min(1.0, found['share']))} of what a "
            f"step takes over its ideal goes with {'it' if len(ranks) == 1 else 'them'} at the "
            f"ideal (M_W = {found['share']:.3f})."
        )
        text += f" Rank {found['rank']} {why}." if why else ""
        if last is not None and last["rank"] not in ranks:
            text += f" The others wait longest for rank {last['rank']}"
            text += ", which in a pipeline is no sign of a cause." if mostly_paired(facts) else "."
        return text
    if last is not None and mostly_paired(facts):
        return (
            f"{pipeline_sentence(facts)} Rank {last['rank']} was last at the greatest cost, which "
            "does not make it the straggler."
        )
    if last is None:
        return (
            "No collective was seen on two ranks with comparable clocks: who waits for whom is "
            "not known."
        )
    host = f" on {clean(last['host'])}" if last.get("host") else ""
    share = last.get("wait_share")
    everything = facts.get("all_wait_ns")
    part = ""
    if share is not None and everything:
        part = f", {units.percent(share)} of all the wait of all ranks ({units.time(everything)})"
    text = (
        f"The others wait for rank {last['rank']}{host}: it was last to start in "
        f"{last['times_last']} of {last['collectives']} collectives, and coming with the last but "
        f"one would have spared the others {units.time(last['wait_caused_ns'])}, added up over "
        f"ranks{part}."
    )
    if found is None:
        return text
    if found["rank"] != last["rank"]:
        text += (
            f" Re-timed, it is rank {found['rank']} that gains most by arriving in time: "
            f"{units.percent(found['gain_pct'] / 100)} of a step."
        )
    return f"{text} Rank {found['rank']} {why}." if why else text


def _list(ranks: Sequence[int], most: int = 8) -> str:
    more = f" and {len(ranks) - most} more" if len(ranks) > most else ""
    return ", ".join(map(str, ranks[:most])) + more


def reason_words(why: Mapping[str, Any] | None) -> str:
    """The words of `culprit.reason`, which follow "rank 3"; empty where there is none."""
    return clean(why["words"]) if why is not None else ""


def unseen_sentence(facts: Mapping[str, Any]) -> str:
    """Says how much of communication has a wait that nothing can tell; empty where none has."""
    n, of = facts.get("wait_unknown") or 0, facts.get("participations") or 0
    if not n:
        return ""
    which = "all" if n == of else f"{n:,} of"
    return (
        f"of {which} {units.counted(of, 'participation')} in collectives only one rank was seen: "
        "how much of their time is wait is not known."
    )


def clocks_sentence(facts: Mapping[str, Any]) -> str:
    """How the clocks of the job's ranks were brought together, with the error."""
    kind, error = facts.get("clocks"), facts.get("clock_error_ns")
    within = "" if error is None else f", error up to {units.time(error)}"
    loose = facts.get("ranks_unaligned") or 0
    if not facts.get("ranks_seen", 1):
        return "no ranks: nothing to align"
    if facts.get("ranks_seen") == 1:
        return "one rank: nothing to align"
    known = {
        "one-host": "one clock: all ranks are on one host",
        "aligned": f"hosts aligned by their collectives{within}",
        "partly-aligned": f"partly aligned{within}; nothing ties {loose} ranks to the others",
        "unaligned": "not aligned: nothing ties the hosts together, "
        "so no waits are given between them",
        "recorded": "as recorded: the source gives one clock for all",
        "untimed": "none: no source says when anything ran",
    }
    return known.get(str(kind), clean(str(kind)) if kind else "not known")


def clocks_word(facts: Mapping[str, Any]) -> str:
    """`clocks_sentence` up to its first mark, for a column of a table."""
    return clocks_sentence(facts).partition(":")[0].partition(",")[0].partition(";")[0]


def show_job(out: Console, facts: Mapping[str, Any]) -> None:
    """`retime show`: facts in lines, then the split of the step, then who is waited for."""
    from rich.text import Text

    def line(label: str, text: str, style: str = "") -> None:
        out.print(Text.assemble((f"{label:<13}", "bold"), (text, style)), soft_wrap=False)

    world = facts.get("world_size")
    of_world = f" of {world}" if world else ""
    hosts = facts.get("hosts") or 0
    where = f" on {units.counted(hosts, 'host')}" if hosts else ", hosts not known"
    used, comms = facts.get("comms_used", facts["comms"]), facts["comms"]
    of_comms = units.counted(comms, "communicator")
    if used < comms:
        of_comms = f"{used:,} of {of_comms}"
    device = f", {clean(facts['device_name'])}" if facts.get("device_name") else ""
    line("job", clean(str(facts.get("job", ""))))
    empty = not facts["ranks_seen"] and not facts["participations"]
    none_seen = "none: no source is the trace of a rank"
    line("ranks", none_seen if empty else f"{facts['ranks_seen']}{of_world}{where}{device}")
    files = units.counted(facts.get("sources") or 0, "file")
    line("from", f"{clean(str(facts.get('framework')))}, {files}")
    if facts.get("holds"):
        line("holds", _holdings_words(facts["holds"]))
    if empty:
        _show_problems_line(line, facts)
        out.print()
        tables = list(facts.get("holds") or ())
        ask = f" retime sql 'FROM {tables[0]}' has the rows." if tables else ""
        out.print(f"No rank's work is in this job: there is no step to split.{ask}")
        return
    line("clocks", clocks_sentence(facts))
    n = facts["steps"]
    which = f", {facts['first_step']} to {facts['last_step']}" if n > 1 else ""
    by = clean(facts.get("steps_found_by") or "")
    found = f" ({'' if by == 'inferred' else 'by '}{by})" if n and by else ""
    none = (
        "none found"
        if facts["scope"] == "nothing"
        else "none found: times below are of whole traces"
    )
    line("steps", f"{n}{which}{found}" if n else none)
    line(
        "collectives",
        f"{facts['collectives']:,} on {of_comms}, in "
        f"{units.counted(facts['participations'], 'participation')}",
    )
    line(
        "matched",
        f"{facts['exact']:,} exact, {facts['order']:,} by order, {facts['partial']:,} partial",
    )
    _show_problems_line(line, facts)
    out.print()
    if facts.get("hang"):
        from .hang_screen import show_hang

        show_hang(out, facts["hang"])
        if facts["scope"] == "nothing":
            return
        out.print()
    show_headline(out, facts)
    job = clean(str(facts.get("job", "")))
    out.print(
        f"\nnext: retime report {job} (what to fix first), retime notebook {job}", style="dim"
    )


def _holdings_words(holds: Mapping[str, int]) -> str:
    from .tracking import ROWS

    return ", ".join(f"{n:,} {ROWS.get(table, table)}" for table, n in holds.items())


def _show_problems_line(line: Callable[..., None], facts: Mapping[str, Any]) -> None:
    lost = facts["problems_lost"]
    line(
        "problems",
        f"{lost} lost input, {units.counted(facts['problems_warning'], 'warning')}, "
        f"{units.counted(facts['problems_info'], 'note')}",
        "bold red" if lost else "",
    )


def show_headline(out: Console, facts: Mapping[str, Any]) -> None:
    """Where the step went and who is waited for."""
    for text in facts.get("contradictions") or ():
        out.print(f"warning: {clean(text)}", style="yellow")
    if facts["scope"] == "nothing":
        out.print("No GPU work in this job: there is no step to split.")
    else:
        what = "Step" if facts["scope"] == "step" else "Trace of a rank (no steps found)"
        over = "ranks and steps" if facts["scope"] == "step" else "ranks"
        out.print(f"{what}: {units.time(facts['step_ns'])}, mean over {over}", style="bold")
        show_split(out, facts["classes"])
    out.print()
    if unseen_sentence(facts):
        out.print(f"warning: {unseen_sentence(facts)}", style="yellow")
    out.print(straggler_sentence(facts))


def show_problems(out: Console, rows: Sequence[Mapping[str, Any]], limit: int | None) -> None:
    """`retime problems`: one line a kind, the message below it; the same of many sources once."""
    from rich.text import Text

    if not rows:
        out.print("no problems")
        return
    alike: dict[tuple, list[Mapping[str, Any]]] = {}
    for r in rows:
        alike.setdefault((r["severity"], r["code"], r["message"]), []).append(r)
    kinds = list(alike.values())
    shown = kinds if limit is None else kinds[:limit]
    styles = {"lost": "bold red", "warning": "yellow", "info": "dim"}
    for same in shown:
        r = same[0]
        n = sum(1 if s["count"] is None else s["count"] for s in same)
        head = Text(f"{r['severity']:<8}", style=styles.get(r["severity"], ""))
        head.append(f"{clean(str(r['code']))}{'' if n == 1 else f' x {n:,}'}", style="bold")
        rank = "" if r["rank"] is None else f"rank {r['rank']}"
        at = "" if r["offset"] is None else f" at byte or row {r['offset']:,}"
        where = clean(str(r["source"] or "")) + at
        place = ", ".join(x for x in (rank, where) if x)
        more = "" if len(same) == 1 else f" (and {len(same) - 1:,} more)"
        head.append(f"  {place}{more}".rstrip(), style="")
        out.print(head)
        out.print(Text("        " + clean(str(r["message"] or ""))))
    if len(shown) < len(kinds):
        out.print(f"({len(shown)} of {len(kinds):,}; --limit N or --json for more)", style="dim")


def show_terms(
    out: Console, rows: Sequence[Sequence[str]], *, indent: str = "  ", style: str = "bold"
) -> None:
    """Terms and their meaning: the last text of a row is wrapped beside the columns before it."""
    from textwrap import wrap

    from rich.cells import cell_len
    from rich.text import Text

    rows = [[clean(t) for t in row] for row in rows]
    n = len(rows[0]) - 1 if rows else 0
    room = [max(cell_len(row[i]) for row in rows) for i in range(n)]
    used = [i for i in range(n) if room[i]]
    left = len(indent) + sum(room[i] + 2 for i in used)
    for row in rows:
        parts = [row[i] + " " * (room[i] - cell_len(row[i]) + 2) for i in used]
        texts = wrap(row[-1], max(24, out.width - left), break_on_hyphens=False) or [""]
        line = Text(indent, no_wrap=True, overflow="crop")
        line.append(parts[0], style=style)
        line.append("".join(parts[1:]), style="dim")
        line.append(texts[0])
        out.print(line, soft_wrap=True)
        for text in texts[1:]:
            out.print(Text(" " * left + text), soft_wrap=True)


def show_tables(out: Console, rows: Sequence[Mapping[str, Any]], name: str | None) -> None:
    """`retime tables`: a line each by kind, or the columns of one with their units."""
    if name is None:
        for kind, title in (
            ("table", "Tables: a row is"),
            ("view", "Views: a row is"),
            ("macro", "Macros"),
        ):
            found = [r for r in rows if r["kind"] == kind]
            if found:
                out.print(title, style="bold")
                show_terms(out, [(r["name"], first_sentence(r["meaning"])) for r in found])
        out.print("retime tables NAME has the columns and units", style="dim")
        return
    for r in rows:
        out.print(f"{r['kind']} {r['name']}", style="bold")
        out.print(clean(r["meaning"]))
        if r["columns"]:
            out.print()
            show_terms(out, [(c["name"], c["type"], c["unit"], c["meaning"]) for c in r["columns"]])


def first_sentence(text: str) -> str:
    """The text up to its first full stop that ends a sentence."""
    head, stop, _ = text.partition(". ")
    return head.rstrip(".") if stop else text.rstrip(".")


def show_stragglers(out: Console, result: Mapping[str, Any]) -> None:
    """`retime stragglers`: the slowdown, then who and what it comes from."""
    out.print(f"slowdown S = {result['slowdown']:.3f}", style="bold")
    # Only recorded operations are replayed without them, and only those have stages.
    delays = " without launch delays" if result.get("by_stage") else ""
    out.print(
        f"a step takes {units.time(result['replayed_ns'])}{delays}, and would take "
        f"{units.time(result['ideal_ns'])} with every operation at its ideal"
    )
    if result["slowdown"] <= 1:
        out.print("that is no slowdown: there is nothing for a rank or an operation to explain")
    slowest = "+".join(map(str, result.get("slowest_ranks") or []))
    shares = []
    if result.get("m_w") is not None:
        shares.append((f"M_W = {result['m_w']:.3f}", f"of that goes with rank {slowest} ideal"))
    if result.get("m_s") is not None:
        shares.append((f"M_S = {result['m_s']:.3f}", "of that goes with the last stage ideal"))
    for name, words in shares:
        out.print(f"{name}  share {words}")
    for key in ("by_op", "by_stage", "by_rank"):
        rows = sorted(result.get(key) or [], key=lambda r: -r["slowdown"])
        if not rows:
            continue
        columns = [k for k in rows[0] if any(r[k] is not None for r in rows)]
        out.print()
        out.print(f"{key.replace('_', ' ')}: slowdown with all else ideal", style="bold")
        texts = [
            {
                k: f"{r[k]:.3f}" if isinstance(r[k], float) else shorter(clean(str(r[k])))
                for k in columns
            }
            for r in rows[:12]
        ]
        table = cells(texts)
        table.numeric = [k != "op" for k in columns]
        for line in lines(table, out.width):
            out.print(line)
        if len(rows) > 12:
            out.print(f"({len(rows) - 12} more; --json has all)", style="dim")
