-- The bytes that each rail was seen to carry: of the sources that watch a host, the one that sees
-- most.
-- requires: clocks, nics

-- Samples of counters of bytes that only grow, as what came in between; one that falls began anew.
-- A NIC's bytes count once, whoever reads them: of each way the lowest rank that recorded any, and
-- of its counters that of the port or the wire (a network device's own leaves out RDMA).
CREATE VIEW _counted_traffic AS
WITH read AS (
    SELECT
        c.job, c.rank, coalesce(c.host, r.host) AS host, c.device AS nic, c.name, c.time_ns,
        c.value, _nic_counter(c.name) AS of
    FROM counters c
    LEFT JOIN ranks r USING (job, rank)
    WHERE _nic_counter(c.name) IS NOT NULL AND c.device IS NOT NULL AND c.time_ns IS NOT NULL
), reporters AS (
    SELECT job, host, nic, of.way AS way, rank, name
    FROM read
    GROUP BY job, host, nic, way, rank, name
    QUALIFY row_number() OVER (
        PARTITION BY job, host, nic, way
        ORDER BY NOT regexp_matches(name, 'port_|_phy$'), rank NULLS LAST, name
    ) = 1
), samples AS (
    SELECT
        c.job, c.rank, c.host, c.nic, c.time_ns, c.value, c.of,
        lag(c.value) OVER series AS value_before,
        lag(c.time_ns) OVER series AS before_ns
    FROM read c
    JOIN reporters o
        ON o.job = c.job AND o.host IS NOT DISTINCT FROM c.host AND o.nic = c.nic
        AND o.name = c.name AND o.rank IS NOT DISTINCT FROM c.rank
    WINDOW series AS (PARTITION BY c.job, c.host, c.nic, c.name ORDER BY c.time_ns, c.value)
)
SELECT
    job, rank, host, nic, of.way AS direction, before_ns AS start_ns, time_ns AS end_ns,
    (value - value_before) * of.unit AS bytes
FROM samples
WHERE value >= value_before;

-- Samples of NICs by nsys. Several reports of a host sample the same NICs and tell the same bytes.
-- Where they say their rank the lowest one counts. Where they do not, nothing tells them apart but
-- that samples of one report do not overlap: an instant of a NIC counts once, by the sample that
-- began first; of another one only the share of its time that is new counts.
CREATE VIEW _sampled_traffic AS
WITH samples AS (
    SELECT t.*, coalesce(t.host, r.host) AS at_host
    FROM transfers t
    LEFT JOIN ranks r USING (job, rank)
    WHERE t.measured AND t.source = 'nsys' AND regexp_matches(t.via, '^(NET|RDMA)(/|$)')
), reporters AS (
    SELECT job, at_host, nic, direction, min(rank) AS rank
    FROM samples
    GROUP BY ALL
), timed AS (
    SELECT
        s.*,
        greatest(s.start_ns, max(s.end_ns) OVER (
            PARTITION BY s.job, s.at_host, s.nic, s.direction, s.via
            ORDER BY s.start_ns, s.end_ns, s.bytes ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        )) AS new_ns
    FROM samples s
    JOIN reporters o
        ON o.job = s.job AND o.at_host IS NOT DISTINCT FROM s.at_host
        AND o.nic IS NOT DISTINCT FROM s.nic AND o.direction IS NOT DISTINCT FROM s.direction
        AND o.rank IS NOT DISTINCT FROM s.rank
)
SELECT
    * EXCLUDE (at_host, new_ns)
    REPLACE (
        at_host AS host,
        CASE WHEN new_ns > start_ns THEN new_ns ELSE start_ns END AS start_ns,
        CASE WHEN new_ns > start_ns THEN bytes * (1.0 * (end_ns - new_ns) / (end_ns - start_ns))
             ELSE bytes END AS bytes
    )
FROM timed
WHERE new_ns IS NULL OR start_ns IS NULL OR new_ns = start_ns OR new_ns < end_ns;

-- What one source saw of each host, in the order of how much it sees: counters of NICs see all that
-- a NIC carries, the proxy's records only what NCCL sent. Sources of one host tell the same bytes,
-- so one counts. `level`: 1 and 2 watch NICs, the others single ranks.
CREATE VIEW _sightings AS
WITH seen AS (
    SELECT
        t.job, t.rank, coalesce(t.host, r.host) AS host, t.nic, t.rail, t.direction,
        t.bytes, t.start_ns, t.end_ns, t.collective_id, t.source,
        coalesce(list_position(['nsys', 'counters', 'profiler', 'inspector'], t.source), 5) AS level
    FROM transfers t
    LEFT JOIN ranks r USING (job, rank)
    -- Links within a host (NVLink, PCIe, HCCS, shared memory) are no NICs; nor are switches.
    WHERE t.measured AND t.source IS DISTINCT FROM 'nsys'
      AND regexp_matches(t.via, '^(NET|RDMA)(/|$)')
      AND coalesce(t.host, r.host, t.rank::VARCHAR) IS NOT NULL
    UNION ALL BY NAME
    SELECT job, rank, host, nic, rail, direction, bytes, start_ns, end_ns, collective_id, source,
           1 AS level
    FROM _sampled_traffic
    WHERE coalesce(host, rank::VARCHAR) IS NOT NULL
    UNION ALL BY NAME
    SELECT job, rank, host, nic, NULL AS rail, direction, bytes, start_ns, end_ns,
           NULL AS collective_id, 'counters' AS source, 2 AS level
    FROM _counted_traffic
    WHERE host IS NOT NULL
)
FROM seen s
SEMI JOIN (
    -- Few sources: a sum over all rows costs less than to order them.
    SELECT job, coalesce(host, 'rank ' || rank) AS place, min(level) AS level FROM seen GROUP BY ALL
) l ON l.job = s.job AND l.place = coalesce(s.host, 'rank ' || s.rank) AND l.level = s.level;

-- One row a transfer or an interval of a counter, on the job's clock, with the rail it went over.
-- `moved` is null for a single step of NCCL's proxy: it has a time, and its bytes are elsewhere.
CREATE VIEW _measured_traffic AS
WITH nics AS MATERIALIZED (
    FROM _nics
), clocks AS (
    SELECT
        job, rank, host,
        {'offset_ns': offset_ns, 'drift_ppm': drift_ppm, 'anchor_ns': anchor_ns} AS known
    FROM _rank_clocks
), of_host AS (
    FROM clocks WHERE host IS NOT NULL
    QUALIFY row_number() OVER (PARTITION BY job, host ORDER BY rank) = 1
), stepped AS (
    SELECT job, rank, collective_id, min(step) AS step
    FROM collectives
    WHERE collective_id IS NOT NULL AND step IS NOT NULL
    GROUP BY job, rank, collective_id
), placed AS (
    SELECT
        s.*,
        p.step,
        coalesce(n.nic, m.nic, l.nic, r.port) AS port,
        CASE WHEN n.nic IS NOT NULL THEN 'NIC named by the source'
             WHEN m.nic IS NOT NULL THEN 'NIC by its number'
             WHEN l.nic IS NOT NULL THEN 'NIC by its rail'
             ELSE r.how END AS found,
        coalesce(k.known, h.known) AS clock
    FROM _sightings s
    LEFT JOIN stepped p
        ON p.job = s.job AND p.rank = s.rank AND p.collective_id = s.collective_id
    LEFT JOIN nics n ON n.job = s.job AND n.host = s.host AND n.nic = s.nic
    LEFT JOIN nics m ON m.job = s.job AND m.host = s.host
        AND m.place = try_cast(regexp_extract(s.nic, '^ib(\d+)$', 1) AS BIGINT)
    LEFT JOIN (
        FROM nics QUALIFY row_number() OVER (PARTITION BY job, host, rail ORDER BY place) = 1
    ) l ON l.job = s.job AND l.host = s.host AND l.rail = s.rail
    LEFT JOIN _rank_rails r ON r.job = s.job AND r.rank = s.rank
    -- Not one join by either: that would try every transfer with every rank.
    LEFT JOIN clocks k ON k.job = s.job AND k.rank = s.rank
    LEFT JOIN of_host h ON s.rank IS NULL AND h.job = s.job AND h.host = s.host
)
SELECT
    job, step, collective_id, host, port,
    _aligned_ns(start_ns, clock.offset_ns, clock.drift_ppm, clock.anchor_ns) AS start_ns,
    _aligned_ns(end_ns, clock.offset_ns, clock.drift_ppm, clock.anchor_ns) AS end_ns,
    -- 0 times bytes: null where there are none.
    bytes * CASE direction WHEN 'send' THEN 1 WHEN 'recv' THEN 0 END AS sent,
    bytes * CASE direction WHEN 'recv' THEN 1 WHEN 'send' THEN 0 END AS received,
    bytes AS moved,
    source || ', ' || found AS how
FROM placed
WHERE port IS NOT NULL AND (bytes IS NULL OR bytes > 0 OR level > 2);

-- The rails that a host's measured source watches: all NICs of the host where it counts at NICs,
-- else the rails of the ranks that it was on in.
CREATE VIEW _watched_rails AS
WITH on_in AS MATERIALIZED (
    SELECT DISTINCT job, host, rank, source, level FROM _sightings
), of_ranks AS (
    SELECT DISTINCT c.job, c.rank, unnest(string_split(c.source, '+')) AS source
    FROM (SELECT DISTINCT job, rank, source FROM collectives) c
)
SELECT job, host, port FROM _rails WHERE (job, host) IN (
    SELECT (job, host) FROM on_in WHERE level <= 2
)
UNION
SELECT r.job, r.host, r.port
FROM _rank_rails r
WHERE (r.job, r.rank) IN (SELECT (job, rank) FROM on_in WHERE level > 2)
   OR (r.job, r.rank) IN (
       SELECT (c.job, c.rank) FROM of_ranks c JOIN (
           SELECT DISTINCT job, source FROM on_in WHERE level > 2
       ) o USING (job, source)
   );
