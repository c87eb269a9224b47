-- Collectives that some ranks had entered and others not when all were asked: a hang's anatomy.

-- Operations as Flight Recorder dumps tell them. Others that have a state do not count: what the
-- profiler plugin or the Inspector wrote last says nothing of what the rank had enqueued by then.
CREATE VIEW _dumped AS
SELECT * FROM collectives
WHERE state IS NOT NULL AND '+' || source || '+' LIKE '%+flight-recorder+%';

-- Ranks that say what they had enqueued and completed (a Flight Recorder dump).
CREATE VIEW _reporting AS
SELECT job, rank FROM _dumped
UNION
SELECT job, rank FROM progress WHERE source = 'flight-recorder';

-- A rank's own counts on a communicator. Where a rank gives a group by number alone, it is the one
-- that its fellow members give this number, if there is one only. Communicators with sends and
-- receives are left out: these share the counts.
CREATE VIEW _counts AS
WITH named AS (
    SELECT DISTINCT job, group_id, comm FROM progress WHERE comm IS NOT NULL
), members AS (
    SELECT n.job, n.group_id, n.comm, unnest(m.ranks) AS rank
    FROM named n
    JOIN (SELECT job, comm, any_value(ranks) AS ranks FROM comms GROUP BY ALL) m USING (job, comm)
), inferred AS (
    SELECT job, group_id, rank, any_value(comm) AS comm
    FROM members
    GROUP BY job, group_id, rank
    HAVING count(DISTINCT comm) = 1
)
SELECT
    job, coalesce(p.comm, i.comm) AS comm, rank,
    max(p.last_enqueued) AS last_enqueued,
    max(p.last_completed) AS last_completed
FROM progress p LEFT JOIN inferred i USING (job, group_id, rank)
WHERE coalesce(p.comm, i.comm) IS NOT NULL
  AND (job, coalesce(p.comm, i.comm)) NOT IN (
      SELECT (job, comm) FROM _dumped
      WHERE op IN ('send', 'recv', 'send_recv') AND comm IS NOT NULL
  )
GROUP BY ALL;

-- How far a rank had come on a communicator: by its operations and by its own counts. A dump may
-- leave out what has completed, and a communicator's operations complete in their order: what comes
-- before the first that is under way has completed.
CREATE VIEW _reached AS
SELECT job, comm, rank, max(entered) AS entered, max(completed) AS completed
FROM (
    SELECT
        job, comm, rank, max(seq) AS entered,
        greatest(
            max(seq) FILTER (state = 'completed'), min(seq) FILTER (state <> 'completed') - 1
        ) AS completed
    FROM _dumped
    WHERE seq IS NOT NULL AND comm IS NOT NULL
    GROUP BY ALL
    UNION ALL
    SELECT job, comm, rank, last_enqueued, last_completed FROM _counts
)
GROUP BY job, comm, rank;

-- A collective that at least one rank had entered and not completed when it was asked, by its
-- Flight Recorder dump (no other source counts). Its members are in one of the four lists each. A
-- member that never entered it, while others are in it, is what they wait for; one that has not
-- completed what others have is stuck on its device. A member that left no dump may be either. In a
-- job that ran on while it was dumped a rank may seem missing that only came later. Sends and
-- receives are in `hanging_pairs`.
CREATE VIEW hangs (
    -- job
    job,
    -- communicator
    comm,
    -- description of the communicator in its source, else its name
    group_name,
    -- parallel dimension of the communicator
    dim,
    -- operation; several, where its ranks entered different ones under one number
    op,
    -- sequence number on the communicator
    seq,
    -- [bytes] the larger of input and output, the largest over its ranks
    bytes,
    -- [ns] when the first rank enqueued it, in that rank's host's clock
    enqueued_ns,
    -- [ranks] members of the communicator
    n_ranks,
    -- ranks that had completed it
    completed,
    -- ranks that had entered it and not completed it
    entered,
    -- ranks that had not entered it, though they left a dump
    missing,
    -- ranks that left no dump
    silent
) AS
WITH pending AS (
    SELECT DISTINCT job, comm, seq
    FROM _dumped
    WHERE state IN ('scheduled', 'started') AND seq IS NOT NULL AND comm IS NOT NULL
), seen AS (
    SELECT
        c.job, c.comm, c.seq, c.rank,
        bool_or(c.state = 'completed') AS completed,
        string_agg(DISTINCT c.op, ' or ' ORDER BY c.op) AS op,
        max(greatest(c.in_bytes, c.out_bytes)) AS bytes,
        min(c.enqueued_ns) AS enqueued_ns
    FROM _dumped c JOIN pending USING (job, comm, seq)
    GROUP BY ALL
), about AS (
    SELECT
        job, comm, any_value(ranks) AS ranks, any_value(dim) AS dim,
        any_value(coalesce(nullif(description, ''), name)) AS group_name
    FROM comms
    GROUP BY job, comm
), members AS (
    SELECT p.job, p.comm, p.seq, unnest(a.ranks) AS rank
    FROM pending p JOIN about a USING (job, comm)
    UNION
    SELECT job, comm, seq, rank FROM seen
), placed AS (
    SELECT
        m.job, m.comm, m.seq, m.rank, s.op, s.bytes, s.enqueued_ns,
        CASE
            WHEN s.completed OR r.completed >= m.seq THEN 'completed'
            WHEN s.rank IS NOT NULL OR r.entered >= m.seq THEN 'entered'
            WHEN w.rank IS NOT NULL THEN 'missing'
            ELSE 'silent'
        END AS place
    FROM members m
    LEFT JOIN seen s USING (job, comm, seq, rank)
    LEFT JOIN _reached r USING (job, comm, rank)
    LEFT JOIN _reporting w USING (job, rank)
)
SELECT
    p.job, p.comm, any_value(a.group_name) AS group_name, any_value(a.dim) AS dim,
    string_agg(DISTINCT p.op, ' or ' ORDER BY p.op) AS op,
    p.seq, max(p.bytes) AS bytes, min(p.enqueued_ns) AS enqueued_ns,
    count(*) AS n_ranks,
    coalesce(list(p.rank ORDER BY p.rank) FILTER (place = 'completed'), []) AS completed,
    coalesce(list(p.rank ORDER BY p.rank) FILTER (place = 'entered'), []) AS entered,
    coalesce(list(p.rank ORDER BY p.rank) FILTER (place = 'missing'), []) AS missing,
    coalesce(list(p.rank ORDER BY p.rank) FILTER (place = 'silent'), []) AS silent
FROM placed p LEFT JOIN about a USING (job, comm)
GROUP BY p.job, p.comm, p.seq;

-- Sends or receives of one rank with one other that had not completed when it was asked.
CREATE VIEW hanging_pairs (
    -- job
    job,
    -- communicator
    comm,
    -- global rank that waits
    rank,
    -- send or recv
    op,
    -- global rank at the other end
    peer,
    -- [operations] how many of them had not completed
    n,
    -- [ns] when the first was enqueued, in the rank's host's clock
    enqueued_ns,
    -- true where the peer's end of it is under way; false where the peer left a dump in which
    -- nothing is under way with anybody on this communicator; null where nobody can tell
    peer_entered
) AS
WITH pending AS (
    SELECT job, comm, rank, op, peer, count(*) AS n, min(enqueued_ns) AS enqueued_ns
    FROM _dumped
    WHERE state IN ('scheduled', 'started') AND op IN ('send', 'recv') AND peer IS NOT NULL
    GROUP BY ALL
)
SELECT
    p.job, p.comm, p.rank, p.op, p.peer, p.n, p.enqueued_ns,
    CASE WHEN q.n IS NOT NULL THEN true
         WHEN w.rank IS NOT NULL AND b.rank IS NULL THEN false END AS peer_entered
FROM pending p
LEFT JOIN pending q
    ON q.job = p.job AND q.rank = p.peer AND q.peer = p.rank AND q.op <> p.op
    AND q.comm IS NOT DISTINCT FROM p.comm
LEFT JOIN (SELECT DISTINCT job, comm, rank FROM pending) b
    ON b.job = p.job AND b.rank = p.peer AND b.comm IS NOT DISTINCT FROM p.comm
LEFT JOIN _reporting w ON w.job = p.job AND w.rank = p.peer;
