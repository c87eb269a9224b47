"""What stands for what a log told: no two things the same, at the ends of what a text can say."""

from __future__ import annotations

import itertools

import pytest
from retime.ingest.nccl import debug_log_told as told
from retime.ingest.nccl.number_rows import NULL

CODES = (0, 1, (1 << 21) - 2)
OWNERS = (0, (1 << 18) - 1)
CHANNELS = (0, 99999)
PLACES = (0, 1, 99999999)
RANKS = (0, (1 << 23) - 1)
SIGNED = (-99999999, -1, *PLACES)

WAYS = {
    "link": (told.link_key, OWNERS, (-1, *CODES), CHANNELS, PLACES, PLACES, CODES, (-1, *CODES)),
    "transfer": (told.moved_key, (0, 1, 2), RANKS, CODES, CHANNELS, (NULL, *RANKS), CODES),
    "edge": (told.edge_key, (1, 2), (*CODES, *(~o for o in OWNERS)), CHANNELS, SIGNED, SIGNED),
    "NIC": (told.nic_key, CODES, CODES, CODES),
}


@pytest.mark.parametrize("way", WAYS)
def test_each_has_three_numbers_of_its_own(way):
    key, *ends = WAYS[way]
    keys = [key(*given) for given in itertools.product(*ends)]
    assert len(set(keys)) == len(keys)
    assert all(-(1 << 63) <= number < 1 << 63 for three in keys for number in three)
