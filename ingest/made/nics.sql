-- Which network interfaces a host has, and which of them is whose: the rails of a job.
-- requires: clocks

-- What a counter of bytes on a NIC counts: its direction, the bytes a unit is worth, and whether
-- it only grows; null for any other counter. The kernel counts InfiniBand data in words of four
-- bytes (sysfs, port_xmit_data); ethtool, EFA and node_exporter count bytes.
CREATE MACRO _nic_counter(name) AS CASE
    WHEN regexp_matches(name, '(^|[^a-z])port_xmit_data$') THEN {'way': 'send', 'unit': 4}
    WHEN regexp_matches(name, '(^|[^a-z])port_rcv_data$') THEN {'way': 'recv', 'unit': 4}
    WHEN regexp_matches(
        name, '(^|[^a-z])(tx_bytes(_phy)?|(port_data_transmitted|network_transmit)_bytes_total)$'
    ) THEN {'way': 'send', 'unit': 1}
    WHEN regexp_matches(
        name, '(^|[^a-z])(rx_bytes(_phy)?|(port_data_received|network_receive)_bytes_total)$'
    ) THEN {'way': 'recv', 'unit': 1}
END;

-- A NIC of a host, as something names it: the NICs that a log or a topology lists, else those of
-- the links that a log tells, and besides what is counted at NICs (level 3) and what a rank's own
-- traffic names (level 4). `place` is its place among its host's by name (the number at its end as
-- a number); its rail where nothing says another. Level 4 is one rank's: it says nothing of the
-- other ranks, comes after the others, does not count in `n_nics`, and has only a recorded rail. A
-- NIC that is known by its number alone (ib0) is the one in that place, where the names are known.
CREATE VIEW _nics AS
WITH said AS (
    SELECT job, host, device AS nic, rail, plane, CASE WHEN kind = 'nic' THEN 1 ELSE 2 END AS level
    FROM topology
    WHERE device IS NOT NULL AND (kind = 'nic' OR (kind = 'link' AND via LIKE 'NET%'))
    UNION ALL
    SELECT t.job, coalesce(t.host, r.host), t.nic, t.rail, t.plane,
           CASE WHEN t.at_nic OR t.rank IS NULL THEN 3 ELSE 4 END
    FROM (
        SELECT DISTINCT
            job, host, rank, nic, rail, plane, source IS NOT DISTINCT FROM 'nsys' AS at_nic
        FROM transfers
        WHERE measured AND nic IS NOT NULL AND regexp_matches(via, '^(NET|RDMA)(/|$)')
    ) t
    LEFT JOIN ranks r USING (job, rank)
    UNION ALL
    SELECT DISTINCT c.job, coalesce(c.host, r.host), c.device, NULL, NULL, 3
    FROM counters c
    LEFT JOIN ranks r USING (job, rank)
    WHERE c.device IS NOT NULL AND _nic_counter(c.name) IS NOT NULL
), of_hosts AS (
    SELECT job, host, nic, max(rail) AS rail, max(plane) AS plane, min(level) AS level
    FROM said
    WHERE (job, host) IN (SELECT (job, host) FROM ranks WHERE host IS NOT NULL)
    GROUP BY job, host, nic
), chosen AS (
    FROM of_hosts
    QUALIFY level = min(level) OVER (PARTITION BY job, host)
        OR (level >= 3 AND NOT regexp_matches(nic, '^ib\d+$'))
)
SELECT *, coalesce(said_rail, CASE WHEN level < 4 THEN place END)::INTEGER AS rail
FROM (
    SELECT
        job, host, nic, rail AS said_rail, plane, level,
        row_number() OVER (
            PARTITION BY job, host
            ORDER BY level = 4, regexp_replace(nic, '\d+$', ''),
                     try_cast(regexp_extract(nic, '(\d+)$', 1) AS BIGINT), nic
        ) - 1 AS place,
        count(*) FILTER (level < 4) OVER (PARTITION BY job, host) AS n_nics
    FROM chosen
);

-- Each rank's own rail: the NIC that most of its links use, else that of its recorded rail, else
-- the one that most bytes of its own traffic went over, else the one at its place in the host (with
-- fewer NICs than GPUs, neighbours share one; a NIC that only another rank's traffic names is not
-- shared). Where none is known the rail is the recorded one, else that of the local rank. `port`
-- tells the rails of a host apart.
CREATE VIEW _rank_rails AS
WITH nics AS MATERIALIZED (
    FROM _nics
), placed AS (
    SELECT
        job, rank, host, rail AS own_rail,
        coalesce(local_rank, row_number() OVER (PARTITION BY job, host ORDER BY rank) - 1) AS local,
        greatest(
            count(*) OVER (PARTITION BY job, host),
            max(local_rank) OVER (PARTITION BY job, host) + 1,
            max(n_devices) OVER (PARTITION BY job, host)
        ) AS n_local
    FROM ranks
), linked AS (
    SELECT job, rank, host, device AS nic
    FROM topology
    WHERE kind = 'link' AND via LIKE 'NET%' AND rank IS NOT NULL AND device IS NOT NULL
    GROUP BY job, rank, host, device
    QUALIFY row_number() OVER (PARTITION BY job, rank, host ORDER BY count(*) DESC, device) = 1
), moved AS (
    SELECT job, rank, nic
    FROM transfers
    WHERE measured AND nic IS NOT NULL AND rank IS NOT NULL
      AND source IS DISTINCT FROM 'nsys' AND regexp_matches(via, '^(NET|RDMA)(/|$)')
    GROUP BY job, rank, nic
    QUALIFY row_number() OVER (
        PARTITION BY job, rank ORDER BY coalesce(sum(bytes), 0) DESC, nic
    ) = 1
)
SELECT
    p.job, p.rank, p.host,
    coalesce(l.nic, a.nic, t.nic, b.nic) AS nic,
    coalesce(l.rail, p.own_rail, t.rail, CASE WHEN t.nic IS NULL THEN b.rail END,
             CASE WHEN p.host IS NOT NULL THEN p.local END)::INTEGER AS rail,
    CASE WHEN l.nic IS NOT NULL THEN l.plane
         WHEN a.nic IS NOT NULL THEN a.plane
         WHEN t.nic IS NOT NULL THEN t.plane
         ELSE b.plane END AS plane,
    coalesce(l.nic, a.nic, t.nic, b.nic,
             'rail ' || coalesce(p.own_rail, CASE WHEN p.host IS NOT NULL THEN p.local END),
             'rank ' || p.rank) AS port,
    CASE WHEN l.nic IS NOT NULL THEN 'NIC of the rank''s links'
         WHEN p.own_rail IS NOT NULL THEN 'recorded rail of the rank'
         WHEN t.nic IS NOT NULL THEN 'NIC of the rank''s traffic'
         WHEN b.nic IS NOT NULL THEN 'NIC by local rank (assumed)'
         WHEN p.host IS NOT NULL THEN 'one rail a local rank (assumed)'
         ELSE 'host unknown' END AS how
FROM placed p
LEFT JOIN linked k ON k.job = p.job AND k.rank = p.rank AND k.host = p.host
LEFT JOIN nics l ON l.job = p.job AND l.host = p.host AND l.nic = k.nic
LEFT JOIN (
    FROM nics QUALIFY row_number() OVER (PARTITION BY job, host, rail ORDER BY place) = 1
) a ON a.job = p.job AND a.host = p.host AND a.rail = p.own_rail
LEFT JOIN moved m ON m.job = p.job AND m.rank = p.rank
LEFT JOIN nics t ON t.job = p.job AND t.host = p.host AND t.nic = m.nic
LEFT JOIN nics b
    ON b.job = p.job AND b.host = p.host AND p.own_rail IS NULL AND b.level < 4
    AND b.place = p.local * b.n_nics // p.n_local;

-- Every rail of every host, idle ones too: its NICs, else its ranks' own rails. `rank` where it is
-- one rank's alone.
CREATE VIEW _rails AS
WITH owned AS (
    SELECT
        job, host, port,
        min(nic) AS nic, min(rail) AS rail, min(plane) AS plane,
        CASE WHEN count(*) = 1 THEN min(rank) END AS rank
    FROM _rank_rails
    GROUP BY job, host, port
)
SELECT
    job, host, port, coalesce(o.nic, n.nic) AS nic,
    coalesce(o.rail, n.rail) AS rail, coalesce(o.plane, n.plane) AS plane,
    o.rank
FROM owned o
FULL JOIN (SELECT *, nic AS port FROM _nics) n USING (job, host, port);
