"""Which annotations are training steps: by what frameworks call them, or as the user says."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

from ..nsys.stepnames import step_of

_WHOLE_STEPS = re.compile(
    r"\[pl\]\[profile\]run_training_batch"  # Lightning's own profiler
    r"|(deepspeed|pipeline)?engine\.train_batch"
    r"|(megatron[ ._]?)?train[ _.]?step"
    r"|training[ _]step"
)
_NUMBER = re.compile(r"(\d{1,15})\D{0,2}$")


def known(name: str) -> tuple[str, int] | None:
    """(family, number) of an annotation that is a step by its name; number -1 where it has none."""
    found = step_of(name)
    if found is None and _WHOLE_STEPS.fullmatch(name[:200].strip().lower()):
        return name.strip().lower(), -1
    return found


def forced(name: str, pattern: str) -> tuple[str, int] | None:
    """The same for the annotation that the user named (`*`, `?`; case does not count)."""
    if not fnmatchcase(name.lower(), pattern.lower()):
        return None
    number = _NUMBER.search(name[:200])
    return "", int(number.group(1)) if number else -1
