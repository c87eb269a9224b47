"""Bytes of a routed token and of an expert's weights, from a layer's dimensions."""

from __future__ import annotations

from typing import NamedTuple

HIDDEN = 7168
"""Hidden size where the job does not say: DeepSeek-V3's (its config.json)."""

INTERMEDIATE = 2048
"""Width of one expert where the job does not say: DeepSeek-V3's (its config.json)."""


class TokenBytes(NamedTuple):
    """What one copy of a token weighs on its way to an expert, and back."""

    dispatch: int
    combine: int


def token_bytes(
    hidden: int = HIDDEN,
    *,
    dispatch_element: int = 1,
    scale_every: int = 128,
    scale_bytes: int = 4,
    header_bytes: int = 0,
    combine_element: int = 2,
) -> TokenBytes:
    """Bytes of a token: FP8 with a scale each 128 elements out, BF16 back, unless told otherwise.

    `scale_every` 0 sends no scales (BF16 out: `dispatch_element=2, scale_every=0`). Formats as in
    DeepEP's README (FP8 dispatch, BF16 combine); its low-latency message has a header of 16 bytes
    (deduced from its tables: 128 tokens to 8 experts each, 77 us, 98 GB/s). ValueError for sizes
    that are not positive.
    """
    if hidden < 1 or dispatch_element < 1 or combine_element < 1:
        raise ValueError("the hidden size and the sizes of elements are at least 1")
    scales = -(-hidden // scale_every) * scale_bytes if scale_every else 0
    return TokenBytes(hidden * dispatch_element + scales + header_bytes, hidden * combine_element)


TOKEN_BYTES = token_bytes().combine
"""A token of 7168 BF16 values: what is sent where the job does not say, and is not split."""


def expert_bytes(hidden: int = HIDDEN, intermediate: int = INTERMEDIATE, element: int = 2) -> int:
    """Weights of a gated expert (gate, up and down projections): 3 h f elements (textbook)."""
    return 3 * hidden * intermediate * element
