"""Numbers that the compiled pass over Inspector's lines and its caller share: places and codes."""

from __future__ import annotations

from .tables_of_texts import ABSENT as ABSENT

NULL = -(1 << 63)
"""No value."""

(DONE, SLOW_LINES, LEARN_HEADER, LEARN_SHAPE, LEARN_LABEL, LEARN_VERSION, PAUSE,
 TABLES_FULL) = range(8)  # fmt: skip
"""Why `scan` stopped: at the end; at lines to be read by themselves; at a header, a shape, a label
or a version not known yet; because the caller looks after its batches now; or because a table is
full."""

(N, WHOLE, MOST, POS, ROWS, SLOW, END, CODE, N_ROWS, N_RECORDS, TAG, CONTEXT, LEFT_COLL, LEFT_P2P,
 LEFT_PROXY, COLL, SN, BYTES, MICROS, PEER, START, STOP, ENQUEUED, CHANNELS, NAME, NAME_END, TIMING,
 TIMING_END, ALGO, ALGO_END, PROTO, PROTO_END, HAS_PROXIES, EVERY, MOVED, MOST_MOVED, STEPS_WRITTEN,
 PX_KIND, PX_PARENT, PX_PARENT_SN, PX_OP_SN, PX_CHANNEL, PX_PEER, PX_DIRECTION, PX_DROPPED,
 PX_STEPS, CONTEXT_CODE, D_COLL, D_P2P, D_PROXY, D_STEPS, STATE_SIZE) = range(52)  # fmt: skip
"""Places in the state. In: bytes of the block, whether its lines have ends, the longest line, the
file's tag, whether there are proxies' records, and after how many rows, or how many transfers that
wait, the caller looks after its batches (EVERY, MOST_MOVED). In and out: next line, rows and
transfers (MOVED) here, lines given back, rows and records of the file, the header of lines that
have none (-1), how many of them there may be, and whether the dump has the proxies' steps too. The
rest is what the last line said: of an operation, from PX_KIND on of a proxy's record, and with D_
of the dump that it begins. Out: CONTEXT_CODE, the code of the header of a dump that began here,
UNCHANGED where none did, NO_CONTEXT where its lines have headers of their own."""

UNCHANGED, NO_CONTEXT = -1, -2

ROW_COLUMNS = ("comm", "seq", "rank", "op", "in_bytes", "out_bytes", "group_size", "peer", "algo",
               "proto", "channels", "start_ns", "end_ns", "exec_ns", "enqueued_ns", "timing",
               "clock", "event_id")  # fmt: skip
"""Columns of a row; behind them `member`, the header whose communicator `peer` is a place of."""
(ROW_COMM, ROW_SEQ, ROW_RANK, ROW_OP, ROW_IN, ROW_OUT, ROW_SIZE, ROW_PEER, ROW_ALGO, ROW_PROTO,
 ROW_CHANNELS, ROW_START, ROW_END, ROW_EXEC, ROW_ENQUEUED, ROW_TIMING, ROW_CLOCK, ROW_EVENT,
 ROW_MEMBER) = range(19)  # fmt: skip

MOVED_COLUMNS = ("rank", "channel", "peer_rank", "bytes", "start_ns", "end_ns", "event_id",
                 "direction", "clock")  # fmt: skip
"""Columns of a row of `transfers`; behind them `member`, as above."""
(MOVED_RANK, MOVED_CHANNEL, MOVED_PEER, MOVED_BYTES, MOVED_START, MOVED_END, MOVED_EVENT,
 MOVED_DIRECTION, MOVED_CLOCK, MOVED_MEMBER) = range(10)  # fmt: skip

(ST_BYTES, ST_OP_START, ST_OP_PROGRESS, ST_OP_STOP, ST_START, ST_STOP, ST_SEND_WAIT, ST_RECV_WAIT,
 ST_FLUSH, ST_GPU_WAIT, STEP_COLUMNS) = range(11)  # fmt: skip
"""Of a proxy's record or one of its steps: bytes, and times in ns."""

PROXY_OP, PROXY_STEP, PROXY_PART = range(3)
"""PX_KIND: a whole operation, one step, or a part of an operation."""

OF_P2P, OF_COLL, OF_STEPS = range(3)
"""What a number is of that was kept: an operation, by its kind, or one whose steps were seen."""

HOST_CODE, SENT, RECEIVED = range(3)
"""Codes of texts in rows of transfers."""

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
