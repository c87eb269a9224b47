"""What a training step takes under a split: compute, memory traffic, launches, bytes, bubble.

A layer's pass on a GPU is its matrix products at a share of the peak, plus its other operations at
a share of the memory's bandwidth, or the host's time to launch it where that is longer; then its
collectives. Passes make stages, stages a pipeline (run exactly, `pipeline`), then gradients are
summed and the optimizer runs.
"""

from __future__ import annotations

from typing import NamedTuple

from . import bubble, memory, pipeline, volumes
from .memory import MEGATRON, Widths
from .model import Model
from .platform import Platform, all_to_all_ns, group, pass_ns
from .split import Split

TRAFFIC = 4.0 / 3
"""Bytes moved by the operations between matrix products, in a forward pass, over the bytes that
the layer keeps for its backward pass: each is written, and most are read again (deduced)."""

LOGIT_BYTES = 30.0
"""Moved a logit, both passes: written, widened to fp32, soft-max, its gradient, narrowed."""


class Efficiencies(NamedTuple):
    """What a platform's peaks are worth in practice; every one can be measured by itself."""

    gemm: float = 0.65
    """Share of the peak FLOPs that large matrix products reach."""
    memory: float = 0.6
    """Share of the memory's bandwidth that other operations and the optimizer reach."""
    unaligned: float = 0.5
    """Share of `gemm` left where a GPU's part of the vocabulary is no multiple of 8."""
    small_ns: float = 300_000.0
    """GPU time of a layer's forward pass that does not shrink with it: kernels too small to fill
    the GPU, and the gaps between; the backward pass has twice that."""
    launch_ns: float = 800_000.0
    """Host time to launch a layer's forward pass; its backward pass takes twice that."""
    collective_ns: float = 20_000.0
    """Fixed time of a collective inside a layer, beyond its links' alpha."""
    link: float = 0.9
    """Share of the links' usable bandwidth that a job's collectives reach."""


class Estimate(NamedTuple):
    """What a step takes, ns, and what a GPU holds and sends. Parts are of the busiest stage."""

    step_ns: float
    compute_ns: float
    tp_ns: float
    cp_ns: float
    ep_ns: float
    bubble_ns: float
    """Pipeline idle, the sends' own time in it."""
    dp_ns: float
    """Exposed."""
    optimizer_ns: float
    memory: memory.Memory
    volumes: volumes.Volumes
    mfu: float
    """Model FLOPs (no recomputation) over what all peaks would do in the step."""


class Passes(NamedTuple):
    """One microbatch on one layer, ns: forward and backward, compute and communication."""

    forward_ns: float
    backward_ns: float
    compute_ns: float
    tp_ns: float
    cp_ns: float
    ep_ns: float


def layer(model: Model, split: Split, platform: Platform, eff: Efficiencies) -> Passes:
    """A layer's passes over one microbatch on one GPU."""
    s, m = split, model
    tokens = s.micro_batch * m.sequence / s.cp
    gemm = m.layer_flops(1) * tokens / s.tp / (platform.flops_per_s * eff.gemm) * 1e9
    scores = 4.0 * tokens * m.sequence * m.hidden / s.tp / (platform.flops_per_s * eff.gemm) * 1e9
    kept = memory.layer_activation_bytes(
        m, s.micro_batch, tp=s.tp, cp=s.cp, sequence_parallel=s.sequence_parallel, flash=s.flash
    )
    other = TRAFFIC * kept / (platform.hbm_bytes_per_s * eff.memory) * 1e9
    forward = max(gemm + other + eff.small_ns, eff.launch_ns)
    again = forward if s.recompute == "full" else 0.0
    if s.recompute == "selective":
        # The scores' products, and unless they are fused the soft-max and dropout between them.
        unfused = 0.0 if s.flash else 5 * m.heads * m.sequence * tokens / s.tp
        again = scores + TRAFFIC * unfused / (platform.hbm_bytes_per_s * eff.memory) * 1e9
    backward = 2 * forward + again

    activation = tokens * m.hidden * 2
    tp = group(platform, s.tp, 1)
    one_pass = 0.0
    if s.tp > 1:
        # An all-reduce, or a reduce-scatter and an all-gather: two passes and one or two launches.
        calls = 2 if s.sequence_parallel else 1
        one_pass = 2 * (calls * eff.collective_ns + 2 * _over(tp, activation, eff))
    ep = 0.0
    if s.ep > 1:
        copies = volumes.copies_of_token(m, s)
        sent = tokens / (s.tp if s.sequence_parallel else 1) * copies * m.hidden * 2
        over = group(platform, s.ep, s.tp)
        ep = 2 * (eff.collective_ns + all_to_all_ns(platform, over, sent / eff.link))
    cp_f, cp_b = _context(model, split, platform, eff, scores)
    forwards = 2 if s.recompute == "full" else 1
    return Passes(
        forward + one_pass + ep + cp_f,
        backward + forwards * (one_pass + ep) + cp_b + (forwards - 1) * cp_f,
        forward + backward,
        (forwards + 1) * one_pass,
        forwards * cp_f + cp_b,
        (forwards + 1) * ep,
    )


def _over(of, size_bytes: float, eff: Efficiencies) -> float:
    return pass_ns(of._replace(bytes_per_s=of.bytes_per_s * eff.link), size_bytes)


def _context(
    model: Model, split: Split, platform: Platform, eff: Efficiencies, scores_ns: float
) -> tuple[float, float]:
    """Exposed context-parallel time of a forward and a backward pass. A ring's exchange hides
    behind the attention of the blocks that have come; Ulysses' all-to-alls do not."""
    s = split
    if s.cp < 2:
        return 0.0, 0.0
    over = group(platform, s.cp, s.tp)
    whole = s.micro_batch * model.sequence * 2 / s.tp
    if s.context == "ulysses":
        part = whole * model.hidden / s.cp / eff.link
        once = 4 * (eff.collective_ns + all_to_all_ns(platform, over, part))
        return once, once
    exchange = _over(over, 2 * whole * model.kv_width, eff) + (s.cp - 1) * eff.collective_ns
    return max(0.0, exchange - scores_ns), max(0.0, 2 * exchange - 2 * scores_ns)


def head(model: Model, split: Split, platform: Platform, eff: Efficiencies) -> float:
    """The output and its loss, forward and backward, of one microbatch, ns."""
    s = split
    tokens = s.micro_batch * model.sequence / s.cp
    part = model.vocab // s.tp
    rate = platform.flops_per_s * eff.gemm * (1.0 if part % 8 == 0 else eff.unaligned)
    gemm = 3 * model.head_flops(1) * tokens / s.tp / rate
    logits = tokens * part * LOGIT_BYTES / (platform.hbm_bytes_per_s * eff.memory)
    return (gemm + logits) * 1e9


class Times(NamedTuple):
    """The parts of a step, ns; what `Estimate` says of each."""

    step_ns: float
    compute_ns: float
    tp_ns: float
    cp_ns: float
    ep_ns: float
    bubble_ns: float
    dp_ns: float
    optimizer_ns: float


def times(
    model: Model,
    split: Split,
    platform: Platform,
    eff: Efficiencies,
    *,
    widths: Widths = MEGATRON,
    dp_hidden: float = 0.0,
) -> Times:
    """What a step takes, part by part. The split must fit the model (`split.problems`).

    `dp_hidden` is the share of the last microbatch's backward pass behind which data-parallel
    communication may hide (0: it starts afterwards).
    """
    s, m = split, split.microbatches
    one = layer(model, split, platform, eff)
    output = head(model, split, platform, eff)
    layers = s.layers_by_stage(model.layers)
    forward = [n * one.forward_ns for n in layers]
    backward = [n * one.backward_ns for n in layers]
    forward[-1] += output / 3
    backward[-1] += output * 2 / 3
    whole = [f + b for f, b in zip(forward, backward, strict=True)]
    busiest = max(range(s.pp), key=lambda i: whole[i])
    run = _pipeline(model, split, platform, eff, forward, backward)

    dp, optimizer = 0.0, 0.0
    # Where stages are not given, those between the first and the last are alike.
    different = range(s.pp) if s.stages else sorted({0, min(1, s.pp - 1), s.pp - 1})
    for stage in different:
        dense, expert = memory.stage_params(model, s, stage)
        sums = _data_parallel(s, platform, eff, widths, dense, s.dp * s.cp)
        sums += _data_parallel(s, platform, eff, widths, expert, max(1, s.dp * s.cp // s.ep))
        dp = max(dp, max(0.0, sums - dp_hidden * backward[stage]))
        optimizer = max(optimizer, _optimizer(s, platform, eff, widths, dense, expert))
    n = layers[busiest] * m
    compute = n * one.compute_ns + (m * output if busiest == s.pp - 1 else 0.0)
    return Times(
        run + dp + optimizer, compute, n * one.tp_ns, n * one.cp_ns, n * one.ep_ns,
        run - m * whole[busiest], dp, optimizer,
    )  # fmt: skip


def estimate(
    model: Model,
    split: Split,
    platform: Platform,
    eff: Efficiencies | None = None,
    *,
    widths: Widths = MEGATRON,
    dp_hidden: float = 0.0,
) -> Estimate:
    """`times` with what a GPU holds and sends, and the share of the peaks that is put to use."""
    found = times(model, split, platform, eff or Efficiencies(), widths=widths, dp_hidden=dp_hidden)
    ideal = model.step_flops(split.batch) / (split.world * platform.flops_per_s) * 1e9
    return Estimate(
        *found,
        memory.of(model, split, widths),
        volumes.of(model, split, widths),
        ideal / found.step_ns,
    )


def _pipeline(
    model: Model,
    split: Split,
    platform: Platform,
    eff: Efficiencies,
    forward: list[float],
    backward: list[float],
) -> float:
    """All microbatches through all stages, ns."""
    s, m = split, split.microbatches
    if s.pp == 1:
        return m * (forward[0] + backward[0])
    tokens = s.micro_batch * model.sequence / s.cp
    size = volumes.pp_boundary_bytes(
        tokens * model.hidden * 2, tp=s.tp, scatter=s.sequence_parallel
    )
    across = s.world > platform.gpus_per_host
    rate = platform.inter_bytes_per_s if across else platform.intra_bytes_per_s
    alpha = platform.inter_alpha_ns if across else platform.intra_alpha_ns
    send = alpha + size / (rate * eff.link) * 1e9
    if s.schedule in ("gpipe", "1f1b"):
        # Both ends stand while a stage's output, or its gradient, is sent (Megatron-LM).
        forward = [x + send * (i < s.pp - 1) for i, x in enumerate(forward)]
        backward = [x + send * (i > 0) for i, x in enumerate(backward)]
        send = 0.0
    if s.schedule in pipeline.SIMULATED:
        v = s.chunks if s.schedule == "interleaved" else 1
        f = [x / v for x in forward] * v
        b = [x / v for x in backward] * v
        if v > 1:
            f, b = _output_last(forward, v), _output_last(backward, v)
        weight = [x / 2 for x in b]
        return pipeline.simulate(s.schedule, f, b, m, weight=weight, send=send, chunks=v).period
    f, b = max(forward), max(backward)
    # Equal stages: all are as slow as the slowest.
    return m * (f + b) + bubble.bubble(s.schedule, s.pp, f, b / 2, b / 2) + 2 * (s.pp - 1) * send


def _output_last(times: list[float], v: int) -> list[float]:
    """Virtual stages' times: equal chunks of layers, the output on the last one alone."""
    each = times[0] / v
    out = [each] * (len(times) * v)
    out[-1] += times[-1] - times[0]
    return out


def _data_parallel(
    s: Split, platform: Platform, eff: Efficiencies, widths: Widths, params: float, n: int
) -> float:
    """Gradients (and sharded parameters) of a step between n ranks, ns."""
    if n < 2 or not params:
        return 0.0
    over = group(platform, n, s.tp)
    if s.zero == 3:
        one = _over(over, params * widths.parameter, eff)
        return s.microbatches * 3 * (one + eff.collective_ns)
    if s.zero:
        widest = params * widths.gradient, params * widths.parameter
        return sum(_over(over, w, eff) for w in widest) + 2 * eff.collective_ns
    return 2 * _over(over, params * widths.gradient, eff) + eff.collective_ns


def _optimizer(
    s: Split, platform: Platform, eff: Efficiencies, widths: Widths, dense: float, expert: float
) -> float:
    """The optimizer reads the gradient, reads and writes its state, and writes the parameter."""
    ranks = s.dp * s.cp
    own = dense / ranks + expert / max(1, ranks // s.ep) if s.zero else dense + expert
    each = widths.gradient + 2 * widths.optimizer + widths.parameter
    return own * each / (platform.hbm_bytes_per_s * eff.memory) * 1e9
