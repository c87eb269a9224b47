"""PyTorch Kineto traces: the reader of their JSON and the rows they become."""

from .parser import looks_like, parse, peek_rank, prepare

__all__ = ["looks_like", "parse", "peek_rank", "prepare"]
