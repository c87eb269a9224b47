"""What stands for what an NCCL debug log told of links: three numbers, no two things the same.

The texts of a log have up to five digits for a channel (17 bits) and eight for a place (27); codes
of texts are below 2**21 (there are no more words and communicators), processes below 2**18.
Compiled code and its caller share these: what is in an array of 24 bytes a key need not wait as
long for memory as five numbers would.
"""

from __future__ import annotations

from . import debug_log_state as of


def link_key(owner, name, channel, me, place, via, nic):
    """Of a link that a process told; `name` and `nic` are -1 for none."""
    a = of.K_LINK | (owner << 8) | (channel << 32)
    return a, (me << 32) | place, ((name + 1) << 42) | (via << 21) | (nic + 1)


def moved_key(way, rank, nic, channel, peer, via):
    """Of a transfer; `peer` is NULL where it is unknown."""
    return of.K_TRANSFER | (way << 8) | (rank << 16), peer, (channel << 42) | (via << 21) | nic


def edge_key(kind, whose, channel, low, high):
    """Of an edge of a ring or tree, whose places a tree may say as negative.

    `whose` is a communicator's name, or `~` a thread.
    """
    return kind | (channel << 8), whose, (low << 32) ^ (high & 0xFFFFFFFF)


def nic_key(host, net, name):
    """Of a NIC, by codes of texts."""
    return of.K_NIC | (host << 8), net, name
