"""Numbers that the compiled pass over an NCCL debug log and its caller share: places and codes."""

from __future__ import annotations

from .number_rows import NULL as NULL

DONE, BARRIER, LEARN_CALL, LEARN_CHOICE, ROWS_FULL, SLOW_FULL, TABLES_FULL = range(7)
"""Why `scan` stopped: at the limit; at a line that must be read before the next (`BARRIER`); at a
call or choice not known yet; or because rows, lines given back or texts have no more room."""

(N, LIMIT, BASE, WHOLE, MOST, POS, ROWS, SLOW, END, CODE, SAID_NAME_END, SAID_COUNT, SAID_TYPE,
 SAID_ROOT, SAID_COMM, SAID_RANKS, STATE_SIZE) = range(17)  # fmt: skip
"""Places in the state. In: bytes of the block, where to stop, its offset, whether its lines have
ends, the longest line. In and out: next line, rows and lines given back so far. Out: where the next
line ends, and the code to learn. The rest is what the last call said."""

ROW_COLUMNS = ("comm", "seq", "rank", "op", "dtype", "in_bytes", "out_bytes", "group_size", "root",
               "peer", "event_id")  # fmt: skip
"""Columns of a row; behind them `member`, the communicator whose place `root` or `peer` is."""
(ROW_COMM, ROW_SEQ, ROW_RANK, ROW_OP, ROW_DTYPE, ROW_IN, ROW_OUT, ROW_SIZE, ROW_ROOT, ROW_PEER,
 ROW_EVENT, ROW_MEMBER) = range(12)  # fmt: skip

(HOW, LINES, SLOT, PLACE, IN_OTHER, OUT_OTHER, IN_ROOT, OUT_ROOT, MOST_COUNT, COMM, RANK, OP, DTYPE,
 SIZE, ROOT_IS, MEMBER, EVENT, CALL_COLUMNS) = range(18)  # fmt: skip
"""What is known of a kind of call: how it is read, its lines so far, the counter of its numbers,
the caller's place where the root's buffers are others; buffers a unit of the count, of others and
of the root (-1: null); the most that it may count; and what its rows have."""

UNKNOWN, ROW, COUNTED, BY_HAND = range(4)
"""HOW: not known; a row each; counted only; each line read by itself."""

IS_NOTHING, IS_ROOT, IS_PEER = range(3)
"""ROOT_IS: what the number behind `root` becomes."""
