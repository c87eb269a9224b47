"""An HTML page that is whole in itself: one script, one style, its data, and nothing fetched."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ... import __version__
from .parts import script_json, text


def document(
    title: str, *, bar: str, body: str, footer: str, data: Any, code: str, style: str
) -> str:
    """The page. `title`, `bar`, `body` and `footer` are HTML; `data` is what the script reads.

    No other script than `code` runs in it, whatever stands in a name.
    """
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src 'sha256-{digest}'",
            "style-src 'unsafe-inline'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
{bar}
<main>
{body}
</main>
<footer>retime {text(__version__)}. {footer}</footer>
<script type="application/json" id="data">{script_json(data)}</script>
<script>{code}</script>
</body>
</html>
"""


def bundled(files: Iterable[Path]) -> str:
    """Script files as one strict function."""
    inner = "\n".join(f.read_text(encoding="utf-8") for f in files)
    return f'(() => {{\n"use strict";\n{inner}\n}})();'
