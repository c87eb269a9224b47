-- The bytes that each rail must have carried, by arithmetic: from what collectives were asked to
-- do, who took part and where those ranks are.
-- requires: clocks, sizes, nics

-- A member of a communicator with its rail, where the hosts of all members are known.
CREATE VIEW _comm_members AS
WITH members AS (
    SELECT job, comm, unnest(ranks) AS rank, generate_subscripts(ranks, 1) AS place
    FROM (SELECT job, comm, min(ranks) AS ranks FROM comms WHERE comm IS NOT NULL GROUP BY ALL)
), placed AS (
    SELECT
        m.job, m.comm, m.rank, m.place, r.host, r.port, r.how,
        count(*) OVER whole AS n,
        count(r.host) OVER whole AS n_placed,
        count(*) OVER here AS n_local,
        list(m.place) OVER here AS local_places
    FROM members m
    LEFT JOIN _rank_rails r USING (job, rank)
    WINDOW whole AS (PARTITION BY m.job, m.comm), here AS (PARTITION BY m.job, m.comm, r.host)
), counted AS (
    SELECT job, comm, count(DISTINCT host) AS n_hosts FROM placed GROUP BY job, comm
)
SELECT p.* EXCLUDE (n_placed), c.n_hosts
FROM placed p JOIN counted c USING (job, comm)
WHERE p.n_placed = p.n;

-- The NIC of a rank's end of a link between hosts, by communicator and channel.
CREATE VIEW _link_nics AS
SELECT job, comm, channel, rank, peer_rank, min(device) AS nic
FROM topology
WHERE kind = 'link' AND via LIKE 'NET%' AND device IS NOT NULL
GROUP BY ALL;

-- The edges of each ring and tree of a communicator, channel by channel, where a log tells the
-- whole of it (rank to the next one; child to parent), with the rails of both ends. A communicator
-- that has none takes those of another with the same members: sources name communicators
-- differently.
CREATE VIEW _edges AS
WITH spanning AS MATERIALIZED (
    SELECT job, comm, any_value(n) AS n, list(rank ORDER BY rank) AS members
    FROM _comm_members WHERE n_hosts > 1 GROUP BY job, comm
), own AS MATERIALIZED (
    FROM _rank_rails
), told AS (
    SELECT
        t.job, t.comm, t.kind, t.channel, t.rank, t.peer_rank,
        count(DISTINCT (t.rank, t.peer_rank)) OVER (
            PARTITION BY t.job, t.comm, t.kind, t.channel
        ) AS n_edges,
        s.n, s.members
    FROM (
        SELECT DISTINCT job, comm, kind, channel, rank, peer_rank
        FROM topology
        WHERE kind IN ('ring', 'tree') AND comm IS NOT NULL AND channel IS NOT NULL
          AND rank IS NOT NULL AND peer_rank IS NOT NULL
    ) t
    JOIN spanning s USING (job, comm)
), complete AS MATERIALIZED (
    FROM told WHERE n_edges = CASE kind WHEN 'ring' THEN n ELSE n - 1 END AND n > 1
), donors AS (
    SELECT s.job, s.comm, d.kind, arg_min(d.comm, (d.comm <> s.comm, d.comm)) AS donor
    FROM spanning s
    JOIN (SELECT DISTINCT job, comm, kind, members FROM complete) d USING (job, members)
    GROUP BY s.job, s.comm, d.kind
)
SELECT
    d.job, d.comm, d.kind, c.channel, c.rank, c.peer_rank, a.host, b.host AS peer_host,
    coalesce(x.nic, a.port) AS port, coalesce(y.nic, b.port) AS peer_port,
    x.nic IS NOT NULL AND y.nic IS NOT NULL AS links_known,
    dense_rank() OVER (PARTITION BY d.job, d.comm, d.kind ORDER BY c.channel) AS nth_channel
FROM donors d
JOIN complete c ON c.job = d.job AND c.comm = d.donor AND c.kind = d.kind
JOIN own a ON a.job = c.job AND a.rank = c.rank
JOIN own b ON b.job = c.job AND b.rank = c.peer_rank
LEFT JOIN _link_nics x
    ON x.job = d.job AND x.comm = d.donor AND x.channel = c.channel
    AND x.rank = c.rank AND x.peer_rank = c.peer_rank
LEFT JOIN _link_nics y
    ON y.job = d.job AND y.comm = d.donor AND y.channel = c.channel
    AND y.rank = c.peer_rank AND y.peer_rank = c.rank;

-- The way a collective is taken to go between hosts. NCCL's PAT moves what a ring moves, NVLSTree
-- what a tree moves; for others (NVLS and CollNet, where switches add up) there is no form here.
CREATE MACRO _way_between_hosts(op, algorithm) AS CASE
    WHEN op IN ('all_to_all', 'gather', 'scatter', 'send', 'recv', 'send_recv') THEN 'direct'
    WHEN op NOT IN ('all_reduce', 'all_gather', 'reduce_scatter', 'broadcast', 'reduce') THEN NULL
    WHEN algorithm IS NULL OR algorithm IN ('ring', 'pat') THEN 'ring'
    WHEN algorithm IN ('tree', 'nvls_tree', 'nvlstree') AND op = 'all_reduce' THEN 'tree'
    WHEN algorithm = 'hierarchical' THEN 'hierarchical'
END;

-- Bytes in sizes of the operation that go over each edge of a ring of n ranks (broadcast and reduce
-- leave out one edge of n, on average over roots).
CREATE MACRO _over_a_ring_edge(op, n) AS
    CASE WHEN op = 'all_reduce' THEN 2.0 ELSE 1.0 END * (n - 1) / n;

-- Everything that could have crossed between hosts, one row a collective (of every rank) for
-- operations of rings and trees, one row a participation for those that go straight from rank to
-- rank; `why_not` says what keeps its bytes from being derived.
CREATE VIEW _crossings AS
WITH parts AS MATERIALIZED (
    SELECT
        c.job, c.collective_id, c.comm, c.op, c.rank, c.root, c.peer, c.step, c.channels,
        c.group_size, c.in_bytes, c.out_bytes,
        CASE WHEN len(c.in_splits) > 0 THEN c.in_splits END AS in_splits,
        CASE WHEN len(c.out_splits) > 0 THEN c.out_splits END AS out_splits,
        lower(c.algo) AS algorithm,
        coalesce(c.timing <> 'watchdog', true) AS timed,
        CASE WHEN timed THEN coalesce(k.clock, 'rank ' || c.rank) END AS clock,
        CASE WHEN timed THEN
            _aligned_ns(c.start_ns, k.offset_ns, k.drift_ppm, k.anchor_ns) END AS start_ns,
        CASE WHEN timed THEN
            _aligned_ns(c.end_ns, k.offset_ns, k.drift_ppm, k.anchor_ns) END AS end_ns
    FROM collectives c
    LEFT JOIN _rank_clocks k USING (job, rank)
    WHERE c.op <> 'barrier'
), whole AS MATERIALIZED (
    SELECT
        job, collective_id,
        min(comm) AS comm, min(op) AS op, min(step) AS step, min(algorithm) AS algorithm,
        max(channels) AS channels,
        max(message_bytes(op, in_bytes, out_bytes, group_size)) AS bytes,
        CASE WHEN count(DISTINCT clock) = 1 THEN max(start_ns) END AS ready_ns,
        CASE WHEN count(DISTINCT clock) = 1 THEN max(end_ns) END AS end_ns
    FROM parts
    WHERE collective_id IS NOT NULL
    GROUP BY job, collective_id
), placed AS (
    SELECT job, comm, any_value(n) AS n, any_value(n_hosts) AS n_hosts
    FROM _comm_members GROUP BY job, comm
), asked AS (
    SELECT
        job, collective_id, comm, op, NULL::INTEGER AS rank, NULL::INTEGER AS root,
        NULL::INTEGER AS peer, step, channels, bytes, NULL::BIGINT AS in_bytes,
        NULL::BIGINT AS out_bytes, NULL::BIGINT[] AS in_splits, NULL::BIGINT[] AS out_splits,
        algorithm, ready_ns AS start_ns, end_ns
    FROM whole
    WHERE coalesce(_way_between_hosts(op, algorithm) <> 'direct', true)
    UNION ALL BY NAME
    SELECT
        job, collective_id, comm, op, rank, root, peer, step, channels,
        greatest(in_bytes, out_bytes) AS bytes, in_bytes, out_bytes, in_splits, out_splits,
        algorithm,
        -- What a rank waits is not on the wire.
        CASE WHEN op = 'all_to_all' AND w.ready_ns < p.end_ns
             THEN greatest(p.start_ns, w.ready_ns) ELSE p.start_ns END AS start_ns,
        p.end_ns
    FROM parts p
    LEFT JOIN (SELECT job, collective_id, ready_ns FROM whole) w USING (job, collective_id)
    WHERE coalesce(_way_between_hosts(op, algorithm) = 'direct', collective_id IS NULL)
       OR (collective_id IS NULL AND _way_between_hosts(op, algorithm) <> 'direct')
)
SELECT
    a.*, p.n, p.n_hosts,
    x.host AS host,
    y.host AS other_host,
    _way_between_hosts(a.op, a.algorithm) AS way,
    CASE
        WHEN way IS NULL THEN 'no form for this operation under this algorithm'
        WHEN way <> 'direct' AND a.collective_id IS NULL THEN 'not matched across ranks'
        WHEN a.op IN ('send', 'recv', 'send_recv') AND a.peer IS NULL THEN 'peer unknown'
        WHEN a.op IN ('gather', 'scatter') AND a.root IS NULL THEN 'root unknown'
        WHEN a.op NOT IN ('send', 'recv', 'send_recv') AND p.n IS NULL
            THEN 'members or their hosts unknown'
        WHEN way = 'direct' AND a.op <> 'all_to_all' AND (x.host IS NULL OR y.host IS NULL)
            THEN 'members or their hosts unknown'
        WHEN a.bytes IS NULL THEN 'size unknown'
        WHEN a.op = 'all_to_all' AND a.in_splits IS NOT NULL AND len(a.in_splits) <> p.n
            THEN 'splits are cut off'
        WHEN a.op = 'all_to_all' AND a.out_splits IS NOT NULL AND len(a.out_splits) <> p.n
            THEN 'splits are cut off'
    END AS why_not
FROM asked a
LEFT JOIN placed p USING (job, comm)
LEFT JOIN ranks x ON x.job = a.job AND x.rank = a.rank
LEFT JOIN ranks y ON y.job = a.job
    AND y.rank = CASE WHEN a.op IN ('gather', 'scatter') THEN a.root ELSE a.peer END;

-- The share of an all-to-all that leaves the host: by its splits, else of equal parts.
CREATE MACRO _remote_share(splits, local_places, n, n_local) AS
    CASE WHEN splits IS NULL THEN 1.0 * (n - n_local) / n
         ELSE 1 - coalesce(
             list_sum(list_select(splits, local_places)) / nullif(list_sum(splits), 0), 1.0) END;

-- The rows of all operations: what one of them sent and received over one rail. Edges that a log
-- tells carry what the algorithm sends over an edge, divided over the channels in use, which are
-- the first ones. A ring or tree whose edges no log tells goes evenly over the rails of its
-- members, in and out of every host, as NCCL lays its channels; a hierarchical one goes round
-- between ranks of the same place in their hosts.
CREATE VIEW _derived_traffic AS
WITH crossing AS MATERIALIZED (
    SELECT
        *,
        way || CASE WHEN way <> 'direct' AND algorithm IS NULL THEN ' assumed' ELSE '' END AS called
    FROM _crossings
    WHERE why_not IS NULL AND bytes > 0 AND (n_hosts > 1 OR host <> other_host)
), members AS MATERIALIZED (
    FROM _comm_members
), edges AS MATERIALIZED (
    SELECT *, max(nth_channel) OVER (PARTITION BY job, comm, kind) AS n_channels FROM _edges
), used AS (
    SELECT DISTINCT
        c.job, c.comm, c.way, c.channels,
        greatest(1, least(coalesce(c.channels, n_channels), n_channels)) AS n_used
    FROM (SELECT DISTINCT job, comm, way, channels FROM crossing) c
    JOIN (SELECT DISTINCT job, comm, kind, n_channels FROM edges) h
        ON h.job = c.job AND h.comm = c.comm AND h.kind = c.way
), shares AS (
    -- Bytes go one way over an edge of a ring, up and down over one of a tree.
    SELECT
        u.job, u.comm, u.way, u.channels, e.at.host AS host, e.at.port AS port,
        sum(CASE WHEN e.at.sends THEN 1.0 / n_used ELSE 0 END) AS sent,
        sum(CASE WHEN e.at.receives THEN 1.0 / n_used ELSE 0 END) AS received,
        CASE WHEN bool_and(links_known) THEN 'channels and NICs of the log'
             ELSE 'channels of the log, rails of the ranks' END AS how
    FROM used u
    JOIN (
        SELECT job, comm, kind, nth_channel, links_known, unnest([
            {'host': host, 'port': port, 'sends': true, 'receives': kind = 'tree'},
            {'host': peer_host, 'port': peer_port, 'sends': kind = 'tree', 'receives': true}
        ]) AS at
        FROM edges
        WHERE host <> peer_host
    ) e ON e.job = u.job AND e.comm = u.comm AND e.kind = u.way AND e.nth_channel <= u.n_used
    GROUP BY u.job, u.comm, u.way, u.channels, e.at
), over_edges AS (
    SELECT
        c.job, c.step, c.collective_id, s.host, s.port, c.start_ns, c.end_ns,
        c.bytes * CASE c.way WHEN 'ring' THEN _over_a_ring_edge(c.op, c.n) ELSE 1 END AS volume,
        volume * s.sent AS sent_bytes,
        volume * s.received AS received_bytes,
        c.called || ', ' || s.how AS how
    FROM crossing c
    JOIN shares s
        ON s.job = c.job AND s.comm = c.comm AND s.way = c.way
        AND s.channels IS NOT DISTINCT FROM c.channels
), spread AS (
    SELECT
        c.job, c.step, c.collective_id, m.host, m.port, c.start_ns, c.end_ns,
        c.bytes / m.n_local * CASE c.way
            WHEN 'ring' THEN _over_a_ring_edge(c.op, c.n)
            ELSE _over_a_ring_edge(c.op, c.n_hosts) END AS sent_bytes,
        sent_bytes AS received_bytes,
        c.called || ', evenly over members; ' || m.how AS how
    FROM crossing c
    JOIN members m USING (job, comm)
    WHERE c.way <> 'direct'
      AND NOT EXISTS (
          FROM edges e WHERE e.job = c.job AND e.comm = c.comm AND e.kind = c.way
      )
), to_all AS (
    SELECT
        c.job, c.step, c.collective_id, m.host, m.port, c.start_ns, c.end_ns,
        coalesce(c.in_bytes, c.out_bytes)
            * _remote_share(c.in_splits, m.local_places, m.n, m.n_local) AS sent_bytes,
        coalesce(c.out_bytes, c.in_bytes)
            * _remote_share(c.out_splits, m.local_places, m.n, m.n_local) AS received_bytes,
        CASE WHEN c.in_splits IS NULL OR c.out_splits IS NULL
             THEN 'even split, ' ELSE 'splits, ' END || m.how AS how
    FROM crossing c
    JOIN members m ON m.job = c.job AND m.comm = c.comm AND m.rank = c.rank
    WHERE c.op = 'all_to_all'
), pairs AS (
    SELECT
        c.job, c.step, c.collective_id, r.host, r.port, c.start_ns, c.end_ns,
        CASE WHEN c.op IN ('send', 'send_recv') THEN coalesce(c.in_bytes, c.out_bytes) ELSE 0 END
            AS sent_bytes,
        CASE WHEN c.op IN ('recv', 'send_recv') THEN coalesce(c.out_bytes, c.in_bytes) ELSE 0 END
            AS received_bytes,
        'point to point, ' || r.how AS how
    FROM crossing c
    JOIN _rank_rails r USING (job, rank)
    WHERE c.op IN ('send', 'recv', 'send_recv') AND c.host <> c.other_host
), rooted AS (
    -- The others each move their shard; the root moves those of the ranks on other hosts.
    SELECT
        c.job, c.step, c.collective_id, m.host, m.port, c.start_ns, c.end_ns,
        CASE WHEN c.rank = c.root THEN m.n - m.n_local
             WHEN c.host <> c.other_host THEN 1 ELSE 0 END
            * least(c.in_bytes, c.out_bytes, c.bytes) AS volume,
        CASE WHEN (c.op = 'gather') = (c.rank <> c.root) THEN volume ELSE 0 END AS sent_bytes,
        CASE WHEN (c.op = 'gather') = (c.rank <> c.root) THEN 0 ELSE volume END AS received_bytes,
        'root to each, ' || m.how AS how
    FROM crossing c
    JOIN members m ON m.job = c.job AND m.comm = c.comm AND m.rank = c.rank
    WHERE c.op IN ('gather', 'scatter')
)
SELECT * EXCLUDE (volume) FROM over_edges
UNION ALL BY NAME FROM spread
UNION ALL BY NAME FROM to_all
UNION ALL BY NAME FROM pairs
UNION ALL BY NAME SELECT * EXCLUDE (volume) FROM rooted;

-- Copies of tokens that the router sends to experts on other hosts, where it says from which rank
-- to which; those of one token to several experts of a host count each.
CREATE VIEW _routed_traffic AS
WITH own AS MATERIALIZED (
    FROM _rank_rails
), routed AS (
    SELECT job, step, rank, expert_rank, sum(tokens) AS tokens
    FROM routing
    WHERE rank IS NOT NULL AND expert_rank IS NOT NULL AND tokens > 0
      AND coalesce(token_class <> 'dropped', true)
    GROUP BY ALL
), crossing AS MATERIALIZED (
    SELECT r.job, r.step, r.tokens, a.host, a.port, b.host AS to_host, b.port AS to_port,
           a.how, b.how AS to_how
    FROM routed r
    JOIN own a ON a.job = r.job AND a.rank = r.rank
    JOIN own b ON b.job = r.job AND b.rank = r.expert_rank
    WHERE a.host <> b.host
)
SELECT job, step, host, port, sum(sent) AS sent, sum(received) AS received, how
FROM (
    SELECT job, step, host, port, tokens AS sent, 0 AS received, 'routing, ' || how AS how
    FROM crossing
    UNION ALL
    SELECT job, step, to_host, to_port, 0, tokens, 'routing, ' || to_how
    FROM crossing
)
GROUP BY job, step, host, port, how;
