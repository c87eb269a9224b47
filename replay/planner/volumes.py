"""Bytes that a GPU sends in each dimension of parallelism, by formula."""

from __future__ import annotations

from typing import NamedTuple

from ..moe.groups import distinct_groups
from .memory import MEGATRON, Widths, stage_params
from .model import Model
from .split import Split


def all_reduce_bytes(n: int, size: float) -> float:
    """Sent a GPU by an all-reduce of `size` bytes: 2 (n-1)/n of it (its ring's, and the least)."""
    return 2 * (n - 1) / n * size


def gathered_bytes(n: int, size: float) -> float:
    """Sent a GPU by an all-gather to, or reduce-scatter or all-to-all of, `size` bytes in all."""
    return (n - 1) / n * size


def dp_bytes(dp: int, gradient_bytes: float) -> float:
    """A step: gradients summed over dp ranks."""
    return all_reduce_bytes(dp, gradient_bytes)


def fsdp_bytes(dp: int, parameter_bytes: float, *, regather: bool = True) -> float:
    """A microbatch under ZeRO-3: parameters gathered forward, again backward where they were freed,
    and gradients scattered: 3 (d-1)/d of them (2 without `regather`); of the compute type."""
    return (3 if regather else 2) * gathered_bytes(dp, parameter_bytes)


def tp_layer_bytes(
    tp: int, activation_bytes: float, *, passes: int = 4, regathered: bool = False
) -> float:
    """A layer and microbatch: two all-reduces of A = s b h e forward, two backward: 8 (t-1)/t A.

    With sequence parallelism an all-gather and a reduce-scatter take the place of each, the same
    bytes; where each of the two blocks' inputs is kept in parts and `regathered` in the backward
    pass, an all-gather more of each. Full recomputation repeats the forward ones (`passes` 6).
    """
    more = 2 * gathered_bytes(tp, activation_bytes) if regathered else 0.0
    return passes * all_reduce_bytes(tp, activation_bytes) + more


def pp_boundary_bytes(activation_bytes: float, *, tp: int = 1, scatter: bool = False) -> float:
    """A boundary, microbatch and direction: A, or A/t where each tensor rank sends its part."""
    return activation_bytes / tp if scatter else activation_bytes


def ep_layer_bytes(ep: int, tokens: float, copies: float, token_bytes: float) -> float:
    """An expert layer and microbatch: four all-to-alls (2 forward, 2 backward) of a GPU's tokens,
    each tokens copies h e (n-1)/n."""
    return 4 * gathered_bytes(ep, tokens * copies * token_bytes)


def copies_of_token(model: Model, split: Split) -> float:
    """Copies of a token that its GPU dispatches: one a choice, or one a rank that has any.

    A rank: E = n (1 - C(E-E/n, k)/C(E, k)) for distinct experts chosen evenly; 5.29 for 8 of 256
    on 8 ranks.
    """
    if split.dispatch == "choice":
        return float(model.top_k)
    return distinct_groups(split.ep, model.experts, model.top_k)


def cp_ring_layer_bytes(cp: int, kv_bytes: float, *, backward: bool = True) -> float:
    """A layer and microbatch of ring attention: K and V (`kv_bytes` each, whole sequence) round
    the ring, 2 (c-1)/c forward, about twice that backward (K, V and their gradients)."""
    forward = 2 * gathered_bytes(cp, kv_bytes)
    return forward * 3 if backward else forward


def ulysses_layer_bytes(cp: int, activation_bytes: float, *, backward: bool = True) -> float:
    """A layer and microbatch by Ulysses: four all-to-alls of A/c (Q, K, V, out; `activation_bytes`
    is A of the whole sequence), each (c-1)/c of it, and as many backward (arXiv 2309.14509)."""
    forward = 4 * gathered_bytes(cp, activation_bytes / cp)
    return forward * 2 if backward else forward


class Volumes(NamedTuple):
    """Bytes that the busiest GPU sends in a step, by dimension."""

    dp: float
    tp: float
    pp: float
    ep: float
    cp: float


def of(model: Model, split: Split, widths: Widths = MEGATRON) -> Volumes:
    """Bytes a GPU sends in a step: the most over stages in each dimension."""
    s, m = split, split.microbatches
    e = widths.activation
    tokens = s.micro_batch * model.sequence / s.cp
    a = tokens * model.hidden * e
    layers = max(s.layers_by_stage(model.layers))
    passes = 6 if s.recompute == "full" else 4
    ranks = s.dp * s.cp
    dp = 0.0
    for stage in range(s.pp):
        dense, expert = stage_params(model, s, stage)
        group = max(1, ranks // s.ep)
        dp = max(dp, _dp_step(ranks, dense, s, widths) + _dp_step(group, expert, s, widths))
    boundary = 0.0
    if s.pp > 1:
        one = pp_boundary_bytes(a, tp=s.tp, scatter=s.sequence_parallel)
        both = 2 if s.pp > 2 or s.schedule == "interleaved" else 1
        boundary = m * one * both * (s.chunks if s.schedule == "interleaved" else 1)
        boundary *= 2 if s.schedule in ("zbv", "v-half", "v-min") else 1
    ep = 0.0
    if s.ep > 1:
        part = tokens / (s.tp if s.sequence_parallel else 1)
        copies = copies_of_token(model, s)
        ep = m * layers * ep_layer_bytes(s.ep, part, copies, model.hidden * e) * passes / 4
    cp = 0.0
    if s.cp > 1:
        whole = s.micro_batch * model.sequence * e / s.tp
        if s.context == "ulysses":
            cp = ulysses_layer_bytes(s.cp, whole * model.hidden) * passes / 4
        else:
            cp = cp_ring_layer_bytes(s.cp, whole * model.kv_width) * (4 / 3 if passes > 4 else 1)
        cp *= m * layers
    tp = m * layers * tp_layer_bytes(s.tp, a, passes=passes)
    return Volumes(dp, tp, boundary, ep, cp)


def _dp_step(n: int, params: float, split: Split, widths: Widths) -> float:
    """Data-parallel bytes of a step for the parameters of a GPU: all-reduce of gradients; with the
    optimizer sharded their reduce-scatter and the parameters' all-gather; ZeRO-3 by microbatch."""
    if split.zero == 3:
        return split.microbatches * fsdp_bytes(n, params * widths.parameter)
    if split.zero:
        return gathered_bytes(n, params * (widths.gradient + widths.parameter))
    return dp_bytes(n, params * widths.gradient)
