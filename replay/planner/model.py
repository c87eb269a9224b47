"""A transformer's dimensions, and its parameters and floating-point operations by arithmetic."""

from __future__ import annotations

from typing import NamedTuple

from ...ingest.errors import UsageError


class Model(NamedTuple):
    """A decoder of equal layers, dense or with experts; what a layer is made of, and how many."""

    name: str
    layers: int
    hidden: int
    heads: int
    ffn: int
    """Width of the dense MLP, or of one expert."""
    sequence: int
    """Tokens of a sequence."""
    vocab: int
    kv_heads: int = 0
    """Heads of keys and values; 0: as many as `heads`."""
    gated: bool = False
    """Three matrices in an MLP (SwiGLU), not two."""
    biases: bool = True
    """Linear layers and norms have biases, positions are learned (GPT); else neither (Llama)."""
    tied: bool = True
    """The output uses the embedding's weights."""
    experts: int = 0
    """Routed experts of an MoE layer; 0: a dense model, else every layer is an MoE layer."""
    top_k: int = 0
    """Experts of a token."""

    @property
    def kv_width(self) -> int:
        """Width of the keys (or the values) of a token."""
        return self.hidden // self.heads * (self.kv_heads or self.heads)

    def attention_params(self) -> int:
        """Parameters of a layer's attention and norms."""
        h, kv = self.hidden, self.kv_width
        weights = 2 * h * h + 2 * h * kv
        return weights + (2 * h + 2 * kv + 4 * h if self.biases else 2 * h)

    def mlp_params(self) -> int:
        """Parameters of one MLP: of the dense one, or of one expert."""
        weights = (3 if self.gated else 2) * self.hidden * self.ffn
        return weights + (self.ffn + self.hidden if self.biases else 0)

    def layer_params(self) -> int:
        """Parameters of a layer, all its experts and its router counted."""
        if not self.experts:
            return self.attention_params() + self.mlp_params()
        router = self.hidden * self.experts
        return self.attention_params() + router + self.experts * self.mlp_params()

    def embedding_params(self) -> int:
        """Parameters before the first layer."""
        return (self.vocab + (self.sequence if self.biases else 0)) * self.hidden

    def head_params(self) -> int:
        """Parameters after the last layer (none of its own where tied)."""
        norm = self.hidden * (2 if self.biases else 1)
        return norm + (0 if self.tied else self.vocab * self.hidden)

    def params(self) -> int:
        """All parameters. For GPT: 12 l h^2 (1 + 13/(12h) + (V+s)/(12 l h)) + 2h (Narayanan 2021,
        arXiv 2104.04473, which leaves out the last norm)."""
        return self.layers * self.layer_params() + self.embedding_params() + self.head_params()

    def active_params(self) -> int:
        """Parameters that a token meets: all but those of the experts that it did not choose."""
        idle = self.layers * (self.experts - self.top_k) * self.mlp_params() if self.experts else 0
        return self.params() - idle

    def layer_flops(self, tokens: int) -> float:
        """Matrix FLOPs of one layer's forward pass over `tokens`, attention scores in full.

        2 a weight and token, and 4 s h a token for scores and their product with the values.
        A causal kernel may skip half of the latter; the field's counts do not (arXiv 2104.04473).
        """
        h, kv = self.hidden, self.kv_width
        mlp = (self.top_k if self.experts else 1) * (3 if self.gated else 2) * h * self.ffn
        weights = 2 * h * h + 2 * h * kv + mlp + (h * self.experts if self.experts else 0)
        return float(tokens) * (2 * weights + 4 * self.sequence * h)

    def head_flops(self, tokens: int) -> float:
        """Matrix FLOPs of the output's forward pass over `tokens`."""
        return 2.0 * tokens * self.hidden * self.vocab

    def step_flops(self, batch: int, *, recompute: str = "none") -> float:
        """Matrix FLOPs of a training step of `batch` sequences: three times the forward pass.

        Full recomputation runs the layers (not the output) forward once more: for GPT this is
        96 B s l h^2 (1 + s/(6h) + V/(16 l h)) (arXiv 2104.04473); selective recomputation repeats
        the scores alone (arXiv 2205.05198).
        """
        tokens = batch * self.sequence
        layer = self.layer_flops(tokens)
        passes = 3 * layer
        if recompute == "full":
            passes += layer
        elif recompute == "selective":
            passes += 4.0 * tokens * self.sequence * self.hidden
        return self.layers * passes + 3 * self.head_flops(tokens)


def _gpt(name: str, layers: int, hidden: int, heads: int) -> Model:
    return Model(name, layers, hidden, heads, 4 * hidden, 2048, 51200)


def _llama(name: str, layers: int, hidden: int, heads: int, ffn: int, kv: int, **more) -> Model:
    base: dict = {"sequence": 8192, "vocab": 128256, "gated": True, "biases": False, "tied": False}
    return Model(name, layers, hidden, heads, ffn, kv_heads=kv, **(base | more))


PRESETS: dict[str, Model] = {
    m.name: m
    for m in (
        _gpt("gpt3-1.3b", 24, 2048, 16),
        _gpt("gpt3-6.7b", 32, 4096, 32),
        _gpt("gpt3-13b", 40, 5120, 40),
        _gpt("gpt3-175b", 96, 12288, 96),
        _llama("llama2-7b", 32, 4096, 32, 11008, 32, sequence=4096, vocab=32000),
        _llama("llama2-70b", 80, 8192, 64, 28672, 8, sequence=4096, vocab=32000),
        _llama("llama3-8b", 32, 4096, 32, 14336, 8),
        _llama("llama3-70b", 80, 8192, 64, 28672, 8),
        _llama("llama3-405b", 126, 16384, 128, 53248, 8),
        _llama("mixtral-8x7b", 32, 4096, 32, 14336, 8, vocab=32000, experts=8, top_k=2),
        _llama("mixtral-8x22b", 56, 6144, 48, 16384, 8, vocab=32000, experts=8, top_k=2),
    )
}
"""GPT-3's sizes (arXiv 2005.14165; vocabulary padded to 51,200 as in Megatron), Llama 2 and 3, and
Mixtral (their published configurations)."""


def named(name: str) -> Model:
    """The preset of that name. Raises UsageError."""
    if name.lower() not in PRESETS:
        raise UsageError(f"no model {name!r}: there are {', '.join(PRESETS)}")
    return PRESETS[name.lower()]
