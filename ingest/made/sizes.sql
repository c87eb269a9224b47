-- Message sizes: the classes that summaries group by, and the size a collective is known by.

-- The class of a message size: '<4KiB', '4KiB-64KiB', '64KiB-1MiB', '1MiB-16MiB',
-- '16MiB-256MiB', '>=256MiB' (the lower bound belongs to the class), or 'unknown' for null.
CREATE MACRO size_class(
    -- [bytes] message size
    bytes
) AS CASE
    WHEN bytes IS NULL THEN 'unknown'
    WHEN bytes < 4096 THEN '<4KiB'
    WHEN bytes < 65536 THEN '4KiB-64KiB'
    WHEN bytes < 1048576 THEN '64KiB-1MiB'
    WHEN bytes < 16777216 THEN '1MiB-16MiB'
    WHEN bytes < 268435456 THEN '16MiB-256MiB'
    ELSE '>=256MiB'
END;

-- The message size of a participation as nccl-tests counts it: the whole vector for all_gather,
-- reduce_scatter, gather and scatter (every rank's shard together), one rank's buffer for the
-- others; null for a barrier or where the source gives no size.
CREATE MACRO message_bytes(
    -- operation, as in `collectives.op`
    op,
    -- [bytes] input of the rank
    in_bytes,
    -- [bytes] output of the rank
    out_bytes,
    -- [ranks] size of the communicator
    n_ranks
) AS CASE op
    WHEN 'barrier' THEN NULL
    WHEN 'all_gather' THEN coalesce(out_bytes, in_bytes * n_ranks)
    WHEN 'gather' THEN coalesce(in_bytes * n_ranks, out_bytes)
    WHEN 'reduce_scatter' THEN coalesce(in_bytes, out_bytes * n_ranks)
    WHEN 'scatter' THEN coalesce(out_bytes * n_ranks, in_bytes)
    WHEN 'recv' THEN coalesce(out_bytes, in_bytes)
    WHEN 'send' THEN coalesce(in_bytes, out_bytes)
    ELSE greatest(in_bytes, out_bytes)
END;

-- What algorithm bandwidth is multiplied by to give bus bandwidth (nccl-tests, PERFORMANCE.md):
-- 2(n-1)/n for all_reduce; (n-1)/n for all_gather, reduce_scatter, all_to_all, gather and
-- scatter; 1 for broadcast, reduce and point-to-point; null for what has no agreed factor.
CREATE MACRO busbw_factor(
    -- operation, as in `collectives.op`
    op,
    -- [ranks] size of the communicator
    n_ranks
) AS CASE
    WHEN op = 'all_reduce' THEN 2.0 * (n_ranks - 1) / n_ranks
    WHEN op IN ('all_gather', 'reduce_scatter', 'all_to_all', 'gather', 'scatter')
        THEN 1.0 * (n_ranks - 1) / n_ranks
    WHEN op IN ('broadcast', 'reduce', 'send', 'recv', 'send_recv') THEN 1.0
END;

-- Whether anything says what part of a participation is wait: false where only one of several
-- ranks was seen (`members` of the communicator), or where nothing matched it.
CREATE MACRO _wait_is_known(ready_known, collective_id, n_seen, members) AS
    n_seen > 1
    OR coalesce(members = 1, false)
    OR (collective_id IS NOT NULL AND ready_known);
