"""Names of algorithms and protocols as the tools around NCCL print them."""

from __future__ import annotations

_ALGOS = {"collnetdirect": "collnet_direct", "collnetchain": "collnet_chain",
          "nvlstree": "nvls_tree"}  # fmt: skip
_PROTOS = {"ll": "LL", "ll128": "LL128", "simple": "Simple"}


def algo_name(text: str | None) -> str | None:
    """An algorithm's name as in `collectives`: ring, tree, nvls, collnet_direct, ..."""
    if not text or text.lower() == "auto":
        return None
    low = text.lower()
    return _ALGOS.get(low.replace("_", ""), low)


def proto_name(text: str | None) -> str | None:
    """A protocol's name as in `collectives`: LL, LL128 or Simple."""
    return None if not text else _PROTOS.get(text.lower(), text)
