"""Compiled sums of blocks of lines: a chunk of rows is scanned, then summed, until all are.

Importing this module costs numba: `plain_blocks_code` says what of it is kept as machine code.
"""

# pyright cannot see through numba's decorators.
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

from .plain_columns import DONE, NOT_PLAIN, STATE
from .plain_fold import fold
from .plain_scan_csv import scan_csv
from .plain_scan_json import scan_json
from .plain_tables import rehash
from .text_numbers import jit

__all__ = ["fold", "rehash", "sum_csv", "sum_json"]

_AT, _ROWS, _ROW = STATE.at, STATE.rows, STATE.row


@jit
def sum_csv(buf, n, fields, words, integers, texts, row_sums, ids, id_ends, listed, weights,
            weight_ends, weighed, used, class_of, state, places, place_slots, groups, slots, sums,
            met):  # fmt: skip
    """As `fold`, of the lines of CSV in the `n` bytes of `buf`; see `scan_csv`."""
    while True:
        if state[_ROW] == state[_ROWS]:
            if state[_AT] >= n:
                return DONE
            state[_ROWS] = scan_csv(buf, n, fields, words, state, integers, texts, row_sums, ids,
                                    id_ends, listed, weights, weight_ends, weighed, used,
                                    class_of)  # fmt: skip
            state[_ROW] = 0
            if state[_ROWS] < 0:
                return NOT_PLAIN
        found = fold(integers, texts, row_sums, ids, id_ends, listed, weights, weight_ends,
                     weighed, used, class_of, state, places, place_slots, groups, slots, sums,
                     met)  # fmt: skip
        if found != DONE:
            return found


@jit
def sum_json(buf, n, order, begins, words, integers, texts, row_sums, ids, id_ends, listed,
             weights, weight_ends, weighed, used, class_of, state, places, place_slots, groups,
             slots, sums, met):  # fmt: skip
    """As `fold`, of the lines of JSON in the first `n` bytes of `buf`; see `scan_json`."""
    while True:
        if state[_ROW] == state[_ROWS]:
            if state[_AT] >= n:
                return DONE
            state[_ROWS] = scan_json(buf, n, order, begins, words, state, integers, texts,
                                     row_sums, ids, id_ends, listed, weights, weight_ends, weighed,
                                     used, class_of)  # fmt: skip
            state[_ROW] = 0
            if state[_ROWS] < 0:
                return NOT_PLAIN
        found = fold(integers, texts, row_sums, ids, id_ends, listed, weights, weight_ends,
                     weighed, used, class_of, state, places, place_slots, groups, slots, sums,
                     met)  # fmt: skip
        if found != DONE:
            return found
