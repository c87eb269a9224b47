"""When an operation ran, from what the host learnt of its kernel and from the kernel's clock."""

from __future__ import annotations


def kernel_time(
    kernels: list[tuple[int | None, int | None, int, int]],
) -> tuple[int | None, int | None, str | None]:
    """(start, end, timing) of an operation from its channels.

    The host learns late of a kernel's start and stop. The kernel's own clock gives the duration,
    and is laid so that nothing was learnt before it happened.
    """
    starts = [b for b, _, _, _ in kernels if b is not None]
    ends = [e for _, e, _, _ in kernels if e is not None]
    if not starts or not ends:
        return None, None, None
    clocked = [k for k in kernels if 0 < k[2] <= k[3]]
    if len(clocked) == len(kernels):
        late = [b - c for b, _, c, _ in clocked if b is not None]
        late += [e - c for _, e, _, c in clocked if e is not None]
        offset = min(late)
        start, end = min(k[2] for k in clocked) + offset, max(k[3] for k in clocked) + offset
        if start >= 0 and end - start < 1 << 60:
            return start, end, "kernel"
    return min(starts), max(ends), "kernel"
