"""What a host event's name makes of it: a step, a call, something that ran on the host."""

from __future__ import annotations

PLAIN, STEP, CALL, OLD_CALL, API_CALL, HOST_RAN, COLLECTIVE_COMM = range(7)

NO_NUMBER = -1


def step_number(name: str) -> int:
    """N of `ProfilerStep#N`; NO_NUMBER for any other name."""
    head, _, number = name.partition("#")
    if head != "ProfilerStep" or not number.isdecimal() or len(number) > 18:
        return NO_NUMBER
    return int(number)


def role(name: str) -> int:
    """Which of these an event of a name is."""
    if step_number(name) != NO_NUMBER:
        return STEP
    if name == "record_param_comms":
        return CALL
    if name.startswith("gloo:"):
        return HOST_RAN
    if name.startswith(("nccl:", "rccl:", "ucc:", "mpi:")):
        return OLD_CALL
    if name.startswith("c10d::"):
        return API_CALL
    if name.startswith("xccl:"):
        return COLLECTIVE_COMM
    return PLAIN


def may_be_read_again(name: str) -> bool:
    """Whether arguments that no column holds may be wanted of an event of a name."""
    return role(name) >= OLD_CALL
