"""PyTorch Kineto traces: the reader of their JSON and the rows they become."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .parser import looks_like, parse, peek_rank, prepare

__all__ = ["looks_like", "parse", "peek_rank", "prepare"]

HASHES = True
"""`parse` hashes what it reads (`Source.open_hashed`): nobody else has to."""


def __getattr__(name: str) -> Any:
    """The parser's doors, imported when they are asked for: other formats use single modules."""
    if name in __all__:
        from . import parser

        return getattr(parser, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
