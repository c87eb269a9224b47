"""Numbers that the compiled pass over Inspector's lines and its caller share: places and codes."""

from __future__ import annotations

NULL = -(1 << 63)
"""No value."""

DONE, SLOW_LINES, LEARN_HEADER, LEARN_SHAPE, LEARN_LABEL, PAUSE, TABLES_FULL = range(7)
"""Why `scan` stopped: at the end; at lines to be read by themselves; at a header, a shape or a
label not known yet; because the caller looks after its batches now; or because a table is full."""

(N, WHOLE, MOST, POS, ROWS, SLOW, END, CODE, N_ROWS, N_RECORDS, TAG, CONTEXT, LEFT_COLL, LEFT_P2P,
 COLL, SN, BYTES, MICROS, PEER, START, STOP, ENQUEUED, CHANNELS, NAME, NAME_END, TIMING, TIMING_END,
 ALGO, ALGO_END, PROTO, PROTO_END, HAS_PROXIES, EVERY, STATE_SIZE) = range(34)  # fmt: skip
"""Places in the state. In: bytes of the block, whether its lines have ends, the longest line, the
file's tag, the rows after which the caller looks after its batches (EVERY). In and out: next line,
rows here, lines given back, rows and records of the file, the header of lines that have none (-1),
and how many of them there may be. The rest is what the last line said."""

ROW_COLUMNS = ("comm", "seq", "rank", "op", "in_bytes", "out_bytes", "group_size", "peer", "algo",
               "proto", "channels", "start_ns", "end_ns", "exec_ns", "enqueued_ns", "timing",
               "clock", "event_id")  # fmt: skip
"""Columns of a row; behind them `member`, the header whose communicator `peer` is a place of."""
(ROW_COMM, ROW_SEQ, ROW_RANK, ROW_OP, ROW_IN, ROW_OUT, ROW_SIZE, ROW_PEER, ROW_ALGO, ROW_PROTO,
 ROW_CHANNELS, ROW_START, ROW_END, ROW_EXEC, ROW_ENQUEUED, ROW_TIMING, ROW_CLOCK, ROW_EVENT,
 ROW_MEMBER) = range(19)  # fmt: skip

UNKNOWN, KNOWN, BY_HAND = range(3)

(H_HOW, H_NUMBER, HEADER_COLUMNS) = range(3)
"""Of a header's text: how its lines are read, and the number of what it says."""

(P_COMM, P_RANK, P_SIZE, P_EVENT, P_SLOT, P_METADATA, PLACE_COLUMNS) = range(7)
"""Of what a header says: communicator, global rank, size, event id without its number, the
rank's slot, and whether nothing more is to be had of the metadata."""

(S_HOW, S_OP, S_IN, S_OUT, S_GAP, SHAPE_COLUMNS) = range(6)
"""Of a header and an operation's name: the op, its buffers a byte of the message, and the slot of
its last number (-1 for point-to-point)."""

(L_HOW, L_TIMING, L_ALGO, L_PROTO, LABEL_COLUMNS) = range(5)
"""Of an operation's texts."""

(R_SAMPLED, R_SAMPLED_COUNT, R_TIMED, R_TIMED_COUNT, R_START, R_END, RANK_COLUMNS) = range(7)
"""Of a rank: whether it was told that numbers are missing, how many; whether it was told that times
are the host's, how often; and the span of its times."""

HOST, MOST_BYTES, MOST_MICROS = "host", ((1 << 63) - 1) // (1 << 23), ((1 << 63) - 1) // 1000
MOST_GAP = 10**12
EVENT_BITS = 26
