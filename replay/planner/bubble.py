"""How long a pipeline of equal stages stands idle, in closed form, by schedule.

F, D, W: a stage's forward pass of a microbatch, and its backward pass's two parts (gradients of
the input, gradients of the weights), in any unit of time; p stages.
"""

from __future__ import annotations

from .split import SCHEDULES


def bubble(schedule: str, p: int, f: float, d: float, w: float, *, chunks: int = 1) -> float:
    """Idle time of a GPU in a step, in the unit of f, d and w; never below 0.

    GPipe and 1F1B (p-1)(F+D+W); interleaved that over its chunks (arXiv 2104.04473); ZB-H1
    (p-1)(F+D-W), ZB-H2 (p-1)(F+D-2W) (arXiv 2401.10241); ZBV 0, V-Half a half and V-Min two thirds
    of 1F1B's where F, D and W are equal (zero-bubble's README: of unequal ones these are the
    least); DualPipe (p/2-1)(F&B + B - 3W), its B the full backward pass D+W and F&B a forward and a
    backward pass run together, here as long as one after the other (its README).
    """
    if p < 2:
        return 0.0
    idle = {
        "gpipe": (p - 1) * (f + d + w),
        "1f1b": (p - 1) * (f + d + w),
        "interleaved": (p - 1) * (f + d + w) / chunks,
        "zb-h1": (p - 1) * (f + d - w),
        "zb-h2": (p - 1) * (f + d - 2 * w),
        "zbv": 0.0,
        "v-half": (p - 1) * (f + d + w) / 2,
        "v-min": (p - 1) * (f + d + w) * 2 / 3,
        "dualpipe": (p / 2 - 1) * ((f + d + w) + (d + w) - 3 * w),
    }
    if schedule not in idle:
        raise ValueError(f"no schedule {schedule!r}: there are {', '.join(SCHEDULES)}")
    return max(0.0, idle[schedule])
