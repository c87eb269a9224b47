"""Bytes on a GPU: parameters, gradients and optimizer, and the activations of its microbatches."""

from __future__ import annotations

from typing import NamedTuple

from .model import Model
from .split import Split


class Widths(NamedTuple):
    """Bytes a parameter and an element."""

    parameter: int = 2
    gradient: int = 4
    """4 where gradients are kept in fp32 (Megatron: 18 bytes a parameter), 2 in classic mixed
    precision (16, ZeRO's count)."""
    optimizer: int = 12
    """Master copy and Adam's two moments in fp32."""
    activation: int = 2


CLASSIC = Widths(gradient=2)
MEGATRON = Widths(gradient=4)


class Memory(NamedTuple):
    """What the fullest GPU holds, bytes."""

    state_bytes: float
    activation_bytes: float
    stage: int
    """The stage that is fullest."""

    @property
    def total_bytes(self) -> float:
        """Both; workspaces, fragments and the context's own are not in it."""
        return self.state_bytes + self.activation_bytes


def state_bytes_per_param(zero: int, n: int, widths: Widths = MEGATRON) -> float:
    """Bytes of parameter, gradient and optimizer a parameter, sharded over n ranks by ZeRO stage.

    Classic (gradient 2): 16; 4 + 12/n; 2 + 14/n; 16/n (arXiv 1910.02054). Gradient 4: 18, and with
    the optimizer sharded 6 + 12/n (Megatron-LM, theoretical_memory_usage.py).
    """
    parts = (widths.optimizer, widths.gradient, widths.parameter)
    return sum(p / n if zero > i else float(p) for i, p in enumerate(parts))


def layer_activation_bytes(
    model: Model,
    micro_batch: float,
    *,
    tp: int = 1,
    cp: int = 1,
    sequence_parallel: bool = False,
    flash: bool = False,
    recompute: str = "none",
) -> float:
    """Bytes that one layer keeps of one microbatch for its backward pass, on one GPU.

    s b h (10 + 24/t + 5as/(ht)); with sequence parallelism all of it over t; selective
    recomputation or a fused attention drops 5as/h; full recomputation keeps the layer's input,
    2 s b h (arXiv 2205.05198, table 2). The 24 is 8 + 4 ffn/h (Megatron's form); a gated MLP keeps
    6 ffn/h (gate, up and their product: deduced). An expert layer keeps top_k tokens' worth of MLP.
    """
    m = model
    tokens = micro_batch * m.sequence / cp
    sbh = tokens * m.hidden
    if recompute == "full":
        return 2 * sbh
    mlp = (6 if m.gated else 4) * m.ffn / m.hidden * (m.top_k if m.experts else 1)
    whole = 10.0 / (tp if sequence_parallel else 1)
    shared = (8.0 + mlp) / tp
    scores = 0.0 if flash or recompute == "selective" else 5 * m.heads * m.sequence / m.hidden / tp
    return sbh * (whole + shared + scores)


def in_flight(schedule: str, stage: int, pp: int, microbatches: int, chunks: int = 1) -> float:
    """Microbatches whose activations a stage holds at once, in layers' worth of its own layers.

    GPipe all; 1F1B p - stage; interleaved p (1 + (p-1)/(pv)) on the first stage (arXiv 2205.05198);
    ZB-H1 as 1F1B, ZB-H2 twice (2p - 1 on the first; arXiv 2401.10241); on every stage ZBV p, V-Half
    p/2, V-Min p/3 (zero-bubble's README), DualPipe p + 1 (its README).
    """
    m = float(microbatches)
    if schedule == "gpipe":
        return m
    if schedule == "interleaved":
        first = pp * (1 + (pp - 1) / (pp * chunks))
        return min(m, max(first - 2 * stage / chunks, 1.0))
    if schedule == "zb-h2":
        return min(m, 2.0 * (pp - stage) - 1)
    if schedule in ("zbv", "v-half", "v-min"):
        return min(m, pp / {"zbv": 1, "v-half": 2, "v-min": 3}[schedule])
    if schedule == "dualpipe":
        return min(m, pp + 1.0)
    return min(m, float(pp - stage))


def stage_params(model: Model, split: Split, stage: int) -> tuple[float, float]:
    """Parameters that a GPU of a stage holds: shared by dp x cp, and of its experts."""
    layers = split.layers_by_stage(model.layers)[stage]
    dense = layers * (model.layer_params() - model.experts * model.mlp_params())
    if stage == 0:
        dense += model.embedding_params()
    if stage == split.pp - 1:
        dense += model.head_params()
        if model.tied and split.pp > 1:
            dense += model.vocab * model.hidden
    expert = layers * model.experts * model.mlp_params() / split.ep
    copies = 2 if split.schedule == "dualpipe" else 1
    return copies * dense / split.tp, copies * expert / split.tp


def _layer_params(model: Model, split: Split) -> float:
    """A layer's parameters on a GPU once they are gathered."""
    experts = model.experts * model.mlp_params()
    return (model.layer_params() - experts + experts / split.ep) / split.tp


def of(model: Model, split: Split, widths: Widths = MEGATRON) -> Memory:
    """The fullest GPU's memory.

    ZeRO shards experts over the dp x cp / ep ranks that share them. Its stage 3 also holds the
    gathered parameters of two layers, the one at work and the next (deduced).
    """
    worst = Memory(-1.0, 0.0, 0)
    ranks = split.dp * split.cp
    by_stage = split.layers_by_stage(model.layers)
    for stage in range(split.pp):
        dense, expert = stage_params(model, split, stage)
        state = dense * state_bytes_per_param(split.zero, ranks, widths)
        state += expert * state_bytes_per_param(split.zero, max(1, ranks // split.ep), widths)
        if split.zero == 3:
            state += 2 * widths.parameter * _layer_params(model, split)
        activations = _activations(model, split, stage, by_stage[stage], widths)
        if state + activations > worst.total_bytes:
            worst = Memory(state, activations, stage)
    return worst


def _activations(model: Model, split: Split, stage: int, layers: int, widths: Widths) -> float:
    """Activations of a stage: its layers', and what the output and a recomputed layer need."""
    s = split
    each = {"tp": s.tp, "cp": s.cp, "sequence_parallel": s.sequence_parallel, "flash": s.flash}
    one = layer_activation_bytes(model, s.micro_batch, recompute=s.recompute, **each)
    held = in_flight(s.schedule, stage, s.pp, s.microbatches, s.chunks)
    total = held * layers * one
    if s.recompute == "full" and layers:
        total += layer_activation_bytes(model, s.micro_batch, **each)
    if stage == s.pp - 1:
        # Logits in the compute type, and in fp32 for the loss.
        tokens = s.micro_batch * model.sequence / s.cp
        total += tokens * model.vocab / s.tp * (widths.activation + 4)
    return total
