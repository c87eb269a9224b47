"""Dispatch, expert GEMMs and combine of an MoE layer fused in one kernel, tokens in chunks.

Stage j costs a_j + b_j c for a chunk of c tokens; K = ceil(N/c) chunks follow each other through
the stages: T = sum_j(a_j + b_j c) + (K-1) max_j(a_j + b_j c) (pipeline arithmetic).
"""

from __future__ import annotations

import math
from typing import NamedTuple

LEAST_TOKENS, MOST_TOKENS = 512, 32_768
"""Chunks that the kernel of Mixture-of-Kittens takes."""

TILE = 128
"""Rows of a GEMM's tile."""


class Stage(NamedTuple):
    """a + b c for c tokens; of a GEMM with the tiles of 128 rows that a chunk fills badly."""

    fixed_ns: float
    token_ns: float
    experts: int = 0
    """Experts of a rank among which the rows of a chunk are parted; 0: no tiles."""
    rows: float = 1.0
    """Rows a token of the chunk brings to a rank."""

    def time_ns(self, tokens: float, whole: float) -> float:
        """For a chunk of a layer of `whole` tokens, whose own tiles are in `token_ns` already."""
        if not self.experts:
            return self.fixed_ns + self.token_ns * tokens
        filled = efficiency(whole * self.rows / self.experts)
        by = filled / efficiency(tokens * self.rows / self.experts)
        return self.fixed_ns + self.token_ns * tokens * by


def efficiency(rows: float) -> float:
    """Of a GEMM's tiles, the part that rows fill: m / (128 ceil(m/128))."""
    return rows / (TILE * max(1, math.ceil(rows / TILE - 1e-9))) if rows > 0 else 1.0


def clamped(tokens: float, whole: int) -> int:
    """A chunk within what the kernel takes, and within the layer."""
    return int(min(max(round(tokens), LEAST_TOKENS), MOST_TOKENS, max(whole, 1)))


def time_ns(stages: tuple[Stage, ...], tokens: int, chunk: float) -> float:
    """T of N tokens in chunks of c: the last chunk counts as a whole one."""
    chunks = math.ceil(tokens / chunk)
    each = [s.time_ns(chunk, tokens) for s in stages]
    return sum(each) + (chunks - 1) * max(each)


def best_chunk(stages: tuple[Stage, ...], tokens: int) -> float:
    """c* = sqrt(N a_bottleneck / (sum b - b_max)), the derivative of T with K = N/c (deduced).

    Not clamped; infinite where nothing is fixed, or only one stage costs by token.
    """
    most = max(stages, key=lambda s: s.token_ns)
    rest = sum(s.token_ns for s in stages) - most.token_ns
    return math.sqrt(tokens * most.fixed_ns / rest) if rest > 0 else math.inf


def chunk_of(stages: tuple[Stage, ...], tokens: int) -> int:
    """The best chunk that the kernel takes: near c*, or one of 512 x 2^i, or the whole layer."""
    near = best_chunk(stages, tokens)
    tried = {clamped(LEAST_TOKENS << i, tokens) for i in range(7)}
    if math.isfinite(near):
        tried.add(clamped(near, tokens))
    return min(sorted(tried), key=lambda c: time_ns(stages, tokens, c))


class Exchange(NamedTuple):
    """A recorded dispatch or combine, and what the ways of moving add to it (deduced).

    Push: T_meta + a + bytes / B / eta (counts go first, senders meet at the hot receiver); pull:
    2 a + bytes / B (a round trip, but the receiver sets the pace).
    """

    took_ns: float
    alpha_ns: float
    """Of a message: what a chunk costs at least, and pulling once more."""
    lost_ns: float
    """Pushing: what meeting at the hot receiver costs over all tokens."""

    def stage(self, mode: str, tokens: int) -> Stage:
        """Its stage by push, pull or recorded (as push, but nothing lost)."""
        fixed = min(self.alpha_ns, self.took_ns)
        by_token = (self.took_ns - fixed) / tokens
        if mode == "pull":
            return Stage(fixed + self.alpha_ns, by_token)
        lost = self.lost_ns if mode == "push" else 0.0
        return Stage(fixed, by_token + lost / tokens)


class Layer(NamedTuple):
    """An MoE layer as it was recorded."""

    dispatch: Exchange
    gemm_ns: float
    combine: Exchange
    tokens: int

    @property
    def recorded_ns(self) -> float:
        """One after the other."""
        return self.dispatch.took_ns + self.gemm_ns + self.combine.took_ns

    def stages(self, mode: str, gemm_fixed_ns: float, experts: int, topk: float):
        """Dispatch, GEMM, combine."""
        fixed = min(gemm_fixed_ns, self.gemm_ns)
        gemm = Stage(fixed, (self.gemm_ns - fixed) / self.tokens, experts, topk)
        ends = [e.stage(mode, self.tokens) for e in (self.dispatch, self.combine)]
        return ends[0], gemm, ends[1]


class Fused(NamedTuple):
    """A layer in one kernel."""

    mode: str
    chunk: int
    dispatch_ns: float
    gemm_ns: float
    combine_ns: float

    @property
    def total_ns(self) -> float:
        """T; the first chunk's dispatch and the last one's combine are its ends."""
        return self.dispatch_ns + self.gemm_ns + self.combine_ns


def fused(
    layer: Layer,
    mode: str,
    *,
    chunk: int = 0,
    meta_ns: float = 0.0,
    gemm_fixed_ns: float = 0.0,
    experts: int = 0,
    topk: float = 1.0,
) -> Fused:
    """A layer fused: `mode` push, pull, recorded, or auto (the faster of push and pull).

    `chunk` 0 is the best that the kernel takes; `meta_ns` what pushing needs first, once.
    """
    if mode == "auto":
        given = {"chunk": chunk, "meta_ns": meta_ns, "gemm_fixed_ns": gemm_fixed_ns,
                 "experts": experts, "topk": topk}  # fmt: skip
        return min((fused(layer, m, **given) for m in ("push", "pull")), key=lambda f: f.total_ns)
    stages = layer.stages(mode, gemm_fixed_ns, experts, topk)
    size = clamped(chunk, layer.tokens) if chunk else chunk_of(stages, layer.tokens)
    total = time_ns(stages, layer.tokens, size)
    first, last = (stages[i].time_ns(size, layer.tokens) for i in (0, 2))
    extra = meta_ns if mode == "push" else 0.0
    return Fused(mode, size, first + extra, total - first - last, last)
