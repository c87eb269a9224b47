"""The whole page: panels in the order that a person asks, one script, one style, no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ..screen import clean
from . import (
    bandwidth,
    breakdown,
    caveats,
    contention,
    experts,
    headline,
    heat,
    overlap,
    rails,
    stragglers,
    timeline,
    whatif_table,
)
from .document import bundled, document
from .parts import Panel, text

SCRIPTS = ("marks", "select", "lanes", "zoomed", "timeline", "heat", "scatter", "panels", "start")
"""Files of the page's script, in order; each says in its first line what it is."""

HERE = Path(__file__).parent

CONTENTS = {
    "timeline": "timeline",
    "breakdown": "breakdown",
    "waits": "waits",
    "stragglers": "stragglers",
    "bandwidth": "bandwidth",
    "overlap": "overlap",
    "rails": "rails",
    "experts": "experts",
    "contention": "contention",
    "whatif": "what if",
    "caveats": "caveats",
}
"""Panels by id, as the bar at the top names them."""


def page(data: Mapping[str, Any]) -> str:
    """The whole HTML text of a page from what `gather` found; needs no trace and no network."""
    facts = data["facts"]
    panels: dict[str, Panel] = {
        "timeline": timeline.render(data["timeline"], facts),
        "breakdown": breakdown.render(data["breakdown"], facts),
        "waits": heat.render(data["timeline"], data["waits_by_dim"], facts),
        "stragglers": stragglers.render(data["stragglers"], facts),
        "bandwidth": bandwidth.render(data["bandwidth"]),
        "overlap": overlap.render(data["overlap"], facts),
        "rails": rails.render(data["rails"]),
        "experts": experts.render(data["experts"]),
        "contention": contention.render(data["contention"]),
        "whatif": whatif_table.render(data["whatif"], facts, data.get("study")),
        "caveats": caveats.render(facts, data["problems"]),
    }
    if facts["scope"] == "nothing":
        # One sentence of the headline says what was not recorded, instead of each of them.
        panels = {name: p for name, p in panels.items() if not p.empty}
    body = "\n".join([headline.render(data), *(p.html for p in panels.values())])
    drawn = {name: p.data for name, p in panels.items() if p.data is not None}
    drawn["ranks"] = [
        {"rank": rank, "host": None if host is None else clean(host)}
        for rank, host in data["ranks"].select("rank", "host").iter_rows()
    ]
    name = text(facts.get("job"))
    return document(
        f"{name}: where the step went",
        bar=_bar(data, list(panels)),
        body=body,
        footer="Times are sums or means of measured intervals; every figure is\nin the warehouse: "
        "<code>retime sql</code>, <code>retime tables</code>.",
        data=drawn,
        code=script(),
        style=style(),
    )


@cache
def script() -> str:
    """The page's script, one strict function."""
    return bundled(HERE / f"{name}.js" for name in SCRIPTS)


@cache
def style() -> str:
    """The page's style sheet."""
    return (HERE / "page.css").read_text(encoding="utf-8")


def _bar(data: Mapping[str, Any], there: Sequence[str]) -> str:
    """The bar that stays in sight: panels to go to, ranks to pick, what is picked."""
    links = "".join(f'<a href="#{id}" data-go="{id}">{CONTENTS[id]}</a>' for id in there)
    hosts = sorted({clean(h) for h in data["ranks"]["host"].to_list() if h is not None})
    of_host = ""
    if len(hosts) > 1:
        options = "".join(f'<option value="{text(h)}">{text(h)}</option>' for h in hosts)
        of_host = (
            f'<label>Host <select id="host"><option value="">all</option>{options}</select></label>'
        )
    return f"""<nav id="bar" aria-label="page">
<div class="links">{links}</div>
<div class="picks"><label>Ranks <input id="ranks" size="9" placeholder="0, 4-7"
autocomplete="off" spellcheck="false"></label>{of_host}
<span id="chip" role="status" hidden></span>
<button type="button" id="clear" hidden>clear (Esc)</button></div>
</nav>"""
