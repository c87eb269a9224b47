"""Numbers and names as the tools around NCCL print them."""

from __future__ import annotations

import math
from decimal import Decimal, InvalidOperation
from typing import Any

_ALGOS = {"collnetdirect": "collnet_direct", "collnetchain": "collnet_chain",
          "nvlstree": "nvls_tree"}  # fmt: skip
_PROTOS = {"ll": "LL", "ll128": "LL128", "simple": "Simple"}
_I64_MAX = (1 << 63) - 1


def whole_number(value: Any) -> int | None:
    """An integer of 64 bits from JSON; None for any other thing."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if -_I64_MAX - 1 <= value <= _I64_MAX else None


def scaled(value: Any, places: int) -> int | None:
    """The integer next to value * 10**places of a number or its text; None where it is none."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, int) and value.bit_length() > 128:
        return None
    if isinstance(value, str) and len(value) > 64:
        return None
    try:
        number = Decimal(value if isinstance(value, int | str | Decimal) else repr(value))
        if not number.is_finite() or number.adjusted() + places > 18:
            return None
        return int(number.scaleb(places).to_integral_value())
    except (InvalidOperation, TypeError, ValueError):
        return None


def algo_name(text: str | None) -> str | None:
    """An algorithm's name as in `collectives`: ring, tree, nvls, collnet_direct, ..."""
    if not text or text.lower() == "auto":
        return None
    low = text.lower()
    return _ALGOS.get(low.replace("_", ""), low)


def proto_name(text: str | None) -> str | None:
    """A protocol's name as in `collectives`: LL, LL128 or Simple."""
    return None if not text else _PROTOS.get(text.lower(), text)
