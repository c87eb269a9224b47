"""Numbers that the compiled pass over an NCCL debug log and its caller share: places and codes."""

from __future__ import annotations

from .number_rows import NULL as NULL

(DONE, BARRIER, LEARN_CALL, LEARN_CHOICE, ROWS_FULL, SLOW_FULL, TABLES_FULL, LEARN_WRITER,
 LEARN_POINTER, LEARN_ROUTE, LEARN_NICS) = range(11)  # fmt: skip
"""Why `scan` stopped: at the limit; at a line that must be read before the next (`BARRIER`); at a
call, a choice, or of a link the writer, the pointer or the way not known yet; at names of NICs that
may be new; or because rows, lines given back or texts have no more room."""

(N, LIMIT, BASE, WHOLE, MOST, POS, ROWS, SLOW, END, CODE, SAID_NAME_END, SAID_COUNT, SAID_TYPE,
 SAID_ROOT, SAID_COMM, SAID_RANKS, EDGES, MOVED, MOST_EDGES, SEED, N_SEEN, SEEN_ELSEWHERE, CLEARED,
 TOLD_UNKNOWN, TOLD_CUT, TOLD_ALONE, N_UNKNOWN, N_CUT, N_ALONE, L_CHANNEL, L_ME, L_PEER, L_RECEIVED,
 L_VIA, L_VIA_END, L_POINTER, L_N, NIC_TURN, N_COMMS, STATE_SIZE) = range(40)  # fmt: skip
"""Places in the state. In: bytes of the block, where to stop, its offset, whether its lines have
ends, the longest line. In and out: next line, rows and lines given back so far. Out: where the next
line ends, and the code to learn. What begins with SAID is what the last call said, with L_ the last
link, ring or trees.

Of these there are rows of `topology` (EDGES) and `transfers` (MOVED) so far, MOST_EDGES before they
are taken; what was told is counted here and by the caller (SEEN_ELSEWHERE), and how often it was
forgotten (CLEARED); how often NICs got names (NIC_TURN, from 1 on); and of links of unknown
communicators, rings that are cut and those of one rank, whether that was told (TOLD_) and how many
more there were (N_). While the log is surveyed: places in communicators so far (N_COMMS)."""

LATELY_BITS = 12
"""Of the number of a slot for a writer that wrote lately."""

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

EDGE_COLUMNS = ("host", "device", "kind", "peer", "rank", "peer_rank", "comm", "channel", "via")
MOVED_COLUMNS = ("rank", "host", "nic", "channel", "peer_rank", "direction", "via")
"""Columns of rows of `topology` and of `transfers`; behind both `member`, which is none."""
(E_HOST, E_DEVICE, E_KIND, E_PEER, E_RANK, E_PEER_RANK, E_COMM, E_CHANNEL, E_VIA,
 E_MEMBER) = range(10)  # fmt: skip
V_RANK, V_HOST, V_NIC, V_CHANNEL, V_PEER, V_DIRECTION, V_VIA, V_MEMBER = range(8)

EDGE_TEXTS = ("link", "ring", "tree", "send", "recv", "transfer", "nic")
K_LINK, K_RING, K_TREE, K_SEND, K_RECV, K_TRANSFER, K_NIC = range(len(EDGE_TEXTS))
"""Codes of these texts."""

IS_NEITHER, IS_LINK, IS_RING, IS_TREES = range(4)

(W_HOW, W_THREAD, W_THREAD_END, W_PROCESS, W_PROCESS_END, W_RANK, W_HOST, W_OWNER, W_THREAD_ID,
 W_NAMES, W_AT, WRITER_COLUMNS) = range(12)  # fmt: skip
"""Of a writer: how its lines are read; where the communicators of its thread and of its process
begin and end in the list of them; rank, host, process and thread; a number for what it and its
host call NICs; and which of its thread's communicators it was making at its last line, -1 where
they were not made one after another."""

(C_BEGUN, C_MADE, C_UNMADE, C_ENDED, C_PLACE, C_SIZE, C_NAME, C_CODE, C_RANK,
 COMM_COLUMNS) = range(10)  # fmt: skip
"""Of a process's place in a communicator: as in `debug_log_survey.Comm`, `C_MADE` being its first
line where it was not (`C_UNMADE`); number and code of its name, and the process's rank."""

M_START, M_END, M_WORLD, M_SIZE, NAME_COLUMNS = range(5)
"""Of a name: where its members (place, rank) begin and end, and whether ranks are places."""

P_HOW, P_START, P_END, POINTER_COLUMNS = range(4)
R_HOW, R_VIA, R_NIC, ROUTE_COLUMNS = range(4)
"""Of a pointer: its communicators in the list; of a way: transport and NIC."""

IS_OTHER, IS_BEGUN, IS_MADE, IS_READ = range(4)
(I_IS, I_AT, I_WRITER, I_POINTER, I_PLACE, I_SIZE, I_DEVICE, I_HASH,
 INIT_COLUMNS) = range(9)  # fmt: skip
"""Of a line of a communicator's making: which it is (IS_READ: it was read by itself), where its
header begins, code of its writer, and what it says; I_HASH is 0 where it says none."""

(Q_PROCESS, Q_THREAD, Q_POINTER, Q_PLACE, Q_SIZE, Q_BEGUN, Q_MADE, Q_ENDED, Q_STARTED, Q_HASH,
 PLACE_COLUMNS) = range(11)  # fmt: skip
"""Of a process's place in a communicator while the log is surveyed: number of the process and of
the thread, code of the pointer, and what `debug_log_survey.Comm` has; NULL where a line is missing,
and 0 where nothing says the hash."""
