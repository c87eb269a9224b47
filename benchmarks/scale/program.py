"""What every rank does in a step: the same kernels and collectives in the same order."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .kernels import table
from .shape import Shape

COMPUTE, OVERLAPPED = 7, 20
"""Streams: of kernels and of collectives that are waited for; of gradients' reductions."""
DP_SPAN = 2
"""Layers whose gradients are reduced together."""

FORWARD = ("norm", "qkv", "rope", "attention", "gate", "projection", "residual")
EXPERTS = ("permute", "expert_up", "activation", "expert_down")
BACKWARD_EXPERTS = ("cast", "expert_down", "expert_down", "activation", "expert_up", "expert_up")
BACKWARD = (
    "weights", "gate", "attention_bwd_pre", "attention_bwd", "attention_bwd_post", "rope",
    "projection", "projection", "qkv", "weights", "norm_bwd", "residual",
)  # fmt: skip
OF_EXPERTS = frozenset(("expert_up", "expert_down", "activation"))


class Op(NamedTuple):
    """A kernel at a place in the program, or a collective where `dim` is set."""

    place: str
    """of the kernel; of a collective its operation"""
    base_ns: float = 0.0
    spread: float = 0.0
    layer: int = -1
    microbatch: int = 0
    by_tokens: bool = False
    """its duration goes with the tokens that the rank's experts got"""
    dim: str = ""
    bytes: int = 0
    """of the whole operation on a rank: the larger of its buffers"""
    stream: int = COMPUTE
    backward: bool = False


def program(shape: Shape) -> list[Op]:
    """A step's operations in the order of launches. Each kernel's base duration is drawn once.

    Kernels differ between places of the program by what names and launch shapes leave open, and
    between runs of one place by little, as in the traces that the durations are of.
    """
    from .shape import ACTIVATION_BYTES, GRADIENT_BYTES, TOKEN_BYTES, TOKENS, TOP_K

    kernels = table()
    rng = np.random.default_rng([shape.seed, 3])
    ops: list[Op] = []

    def run(places: tuple[str, ...], layer: int, mb: int, backward: bool = False) -> None:
        for place in places:
            k = kernels[place]
            ops.append(
                Op(place, k.at(rng.uniform()), min(k.spread, 0.02), layer, mb,
                   place in OF_EXPERTS, backward=backward)
            )  # fmt: skip

    def talk(op: str, dim: str, size: int, layer: int, mb: int, stream: int = COMPUTE) -> None:
        ops.append(Op(op, layer=layer, microbatch=mb, dim=dim, bytes=size, stream=stream))

    exchanged = TOKENS * TOP_K * TOKEN_BYTES
    for mb in range(shape.microbatches):
        for layer in range(shape.layers):
            talk("all_gather", "tp", ACTIVATION_BYTES, layer, mb)
            run(FORWARD, layer, mb)
            talk("reduce_scatter", "tp", ACTIVATION_BYTES, layer, mb)
            run(("norm_2", "router", "cast"), layer, mb)
            talk("all_to_all", "ep", exchanged, layer, mb)
            run(EXPERTS, layer, mb)
            talk("all_to_all_back", "ep", exchanged, layer, mb)
            run(("residual",), layer, mb)
        for layer in reversed(range(shape.layers)):
            talk("all_to_all", "ep", exchanged, layer, mb)
            run(BACKWARD_EXPERTS, layer, mb, True)
            talk("all_to_all_back", "ep", exchanged, layer, mb)
            run(("permute", "norm_bwd"), layer, mb, True)
            talk("all_gather", "tp", ACTIVATION_BYTES, layer, mb)
            run(BACKWARD, layer, mb, True)
            talk("reduce_scatter", "tp", ACTIVATION_BYTES, layer, mb)
            if mb == shape.microbatches - 1 and layer % DP_SPAN == 0:
                talk("reduce_scatter", "dp", DP_SPAN * GRADIENT_BYTES, layer, mb, OVERLAPPED)
    last = shape.microbatches - 1
    talk("all_reduce", "world", 4, -1, last)
    run(("optimizer",) * (4 * shape.layers), -1, last)
    talk("all_gather", "dp", shape.layers * GRADIENT_BYTES // 2, -1, last)
    return ops
