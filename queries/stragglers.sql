-- Who makes everybody wait, and why.
-- requires: late_ranks, straggler_causes

-- A number with three digits, or whole from 100 on.
CREATE MACRO _three_digits(x) AS CASE
    WHEN abs(x) >= 99.95 THEN printf('%.0f', x::DOUBLE)
    WHEN abs(x) >= 9.995 THEN printf('%.1f', x::DOUBLE)
    ELSE printf('%.2f', x::DOUBLE)
END;

-- A count that may be a mean: whole where it is.
CREATE MACRO _count_words(x) AS
    CASE WHEN x = round(x) THEN round(x)::BIGINT::VARCHAR ELSE printf('%.1f', x::DOUBLE) END;

-- A time in words, with three digits: '7.54 ms'.
CREATE MACRO _time_words(ns) AS CASE
    WHEN ns IS NULL THEN '?'
    WHEN abs(ns) >= 999.5e6 THEN _three_digits(ns / 1e9) || ' s'
    WHEN abs(ns) >= 999.5e3 THEN _three_digits(ns / 1e6) || ' ms'
    WHEN abs(ns) >= 999.5 THEN _three_digits(ns / 1e3) || ' us'
    ELSE round(ns)::BIGINT || ' ns'
END;

-- A name from a trace, cut where it is too long for a sentence.
CREATE MACRO _short_name(name) AS
    CASE WHEN len(name) > 80 THEN left(name, 77) || '...' ELSE name END;

-- One row a rank that holds others up: its cause with what supports it, times a step.
CREATE VIEW _caused AS
WITH decided AS (
    SELECT
        *,
        greatest(steps, 1) AS per,
        CASE
            WHEN NOT explains THEN 'unknown'
            WHEN class = 'compute' THEN CASE
                WHEN kernel IS NULL THEN 'slower_kernels'
                -- Another kernel for the same work is no more work.
                WHEN kernel_median_n = 0 AND launches > median_launches THEN 'more_work'
                WHEN kernel_median_n = 0 THEN 'slower_kernels'
                WHEN 2.0 * (units - median_units) * kernel_median_ns / nullif(median_units, 0)
                    > kernel_ns - kernel_median_ns THEN 'more_work'
                ELSE 'slower_kernels' END
            WHEN class = 'idle_launch_bound' THEN 'late_launches'
            WHEN class = 'idle_data_loading' THEN 'data_loading'
            WHEN class = 'idle_waiting_for_host' THEN 'waiting_for_host'
            WHEN class = 'idle_waiting_for_stream' THEN 'waiting_for_stream'
            WHEN class IN ('garbage_collection', 'memcpy') THEN class
            WHEN class = 'transfer' AND 2 * beyond_ns >= excess_ns THEN 'slow_link'
            WHEN class IN ('wait', 'comm', 'transfer', 'before') THEN 'earlier_collective'
            ELSE 'unknown'
        END AS cause
    FROM _causes
)
SELECT
    job, rank, key, late_on, stretches, cause, class, explains, kernel, host_op, host_ns, gaps_ns,
    CASE WHEN class = 'before' AND explains THEN late_on ELSE comm END AS comm,
    peer,
    -- Moments are compared, not shown: their own figure is the difference.
    CASE WHEN class IN ('before', 'began') THEN excess_ns ELSE own_ns END / per AS own_ns,
    CASE WHEN class IN ('before', 'began') THEN 0 ELSE median_ns END / per AS median_ns,
    excess_ns / per AS excess_ns,
    late_ns / per AS late_ns,
    kernel_ns / per AS kernel_ns, kernel_median_ns / per AS kernel_median_ns,
    kernel_n / per AS kernel_n, kernel_median_n / per AS kernel_median_n,
    CASE WHEN steps > 0 THEN 'step' ELSE 'trace' END AS scope
FROM decided;

-- What a cause comes to, as the words that follow "rank 3".
CREATE MACRO _cause_words(
    cause, class, explains, scope, key, own_ns, median_ns, kernel, kernel_ns, kernel_median_ns,
    kernel_n, kernel_median_n, host_op, host_ns, gaps_ns, comm, peer, excess_ns
) AS CASE
    WHEN cause IN ('slower_kernels', 'more_work') THEN
        'computes ' || _time_words(own_ns) || ' a ' || scope
        || CASE WHEN key >= 0 THEN ' before the collectives that it is last in' ELSE '' END
        || ' where the median rank computes ' || _time_words(median_ns)
        || CASE WHEN kernel IS NULL THEN ''
                ELSE ', most of all in ' || _short_name(kernel) || ' ('
                    || _time_words(kernel_ns) || ' against ' || _time_words(kernel_median_ns)
                    || CASE WHEN cause = 'more_work' AND kernel_n > kernel_median_n
                            THEN ', launched ' || _count_words(kernel_n) || ' times against '
                                || _count_words(kernel_median_n)
                            WHEN cause = 'more_work' THEN ', in more thread blocks' ELSE '' END
                    || ')' END
    WHEN cause = 'unknown' AND class IS NULL THEN
        'cannot be compared with the others before those collectives'
    WHEN cause = 'unknown' AND NOT explains THEN
        'does nothing in that time that explains its lateness'
    WHEN cause = 'unknown' AND class = 'began' THEN
        'began its first step ' || _time_words(excess_ns) || ' behind the median rank'
    ELSE 'has ' || _time_words(own_ns) || ' of '
        || CASE cause
            WHEN 'late_launches' THEN 'launch-bound idle'
            WHEN 'data_loading' THEN 'waiting for data'
            WHEN 'garbage_collection' THEN 'garbage collection'
            WHEN 'waiting_for_host' THEN 'idle waiting for the host'
            WHEN 'waiting_for_stream' THEN 'idle waiting for a stream'
            WHEN 'memcpy' THEN 'exposed copies'
            WHEN 'slow_link' THEN 'exposed transfer'
            WHEN 'earlier_collective' THEN CASE class
                WHEN 'wait' THEN 'waiting in earlier collectives'
                WHEN 'transfer' THEN 'transfer in earlier collectives'
                WHEN 'before' THEN 'delay in leaving the collective before'
                ELSE 'earlier collectives' END
            ELSE 'idle time that nothing in the trace explains' END
        || ' a ' || scope
        || CASE WHEN key >= 0 THEN ' before the collectives that it is last in' ELSE '' END
        || ', the median rank ' || _time_words(median_ns)
        || CASE
            WHEN cause = 'slow_link' THEN
                ': transfers on ' || _short_name(comm) || ' take longer than on its peers'
            WHEN cause = 'earlier_collective' AND comm IS NOT NULL THEN
                ': longest on ' || _short_name(comm)
                || CASE WHEN peer IS NULL THEN ''
                        ELSE ', where rank ' || peer || ' is last' END
            -- What covers little of the gaps is no reason for them.
            WHEN host_op IS NOT NULL AND 5 * host_ns >= gaps_ns
                AND cause NOT IN ('earlier_collective', 'memcpy') THEN
                '; in its longest gaps its host is in ' || _short_name(host_op) || ' for '
                || _time_words(host_ns) || ' of ' || _time_words(gaps_ns)
            ELSE '' END
END;

-- The same, with the words.
CREATE VIEW _explained AS
SELECT
    *,
    _cause_words(
        cause, class, explains, scope, key, own_ns, median_ns, kernel, kernel_ns, kernel_median_ns,
        kernel_n, kernel_median_n, host_op, host_ns, gaps_ns, comm, peer, excess_ns
    ) AS detail
FROM _caused;

-- A rank of `late_ranks`, with why it is late. What it does is looked at before the collectives at
-- which it was last by more than the clock error, on the communicator on which that cost the others
-- most: from the moment when it left its participation before on that communicator (or its first
-- step began) to its start. The same stretches of the other ranks are its measure. The class of time
-- by which it exceeds the median rank most is the cause, if the excess explains at least a quarter
-- of how far it came behind the median start. A rank that is waited for mostly at sends and receives
-- is compared by whole steps with the median rank of the job instead (a pipeline's schedule alone
-- makes somebody last there), and the excess must come to a hundredth of the step.
CREATE VIEW stragglers (
    -- job
    job,
    -- global rank
    rank,
    -- machine the rank ran on
    host,
    -- [collectives] collectives in which it could be compared
    collectives,
    -- [collectives] those in which it started last (the lowest rank of several)
    times_last,
    -- times_last over collectives, 0 to 1
    last_share,
    -- [ns] wait of the others, added up, that its being last caused
    wait_caused_ns,
    -- [collectives] times it was last by less than the clock error: nobody can tell
    times_within_error,
    -- [ns] how much earlier a step would have ended with this rank at the median, by replay; null
    -- where none was made (see table replay_scores, and its `how`)
    score_ns,
    -- [ns] 2.5 % of the bootstrap over steps of the score
    score_low_ns,
    -- [ns] 97.5 % of it
    score_high_ns,
    -- slower_kernels (which: `kernel`), more_work (the same kernels, launched more often or with
    -- more thread blocks), late_launches (its GPU had nothing to do: `host_op`), data_loading,
    -- garbage_collection, waiting_for_host (a blocking call), waiting_for_stream, memcpy,
    -- earlier_collective (it waited or moved more in earlier collectives: `comm`, `peer`), slow_link
    -- (its earlier transfers, of the same size, take longer than those of peer communicators:
    -- `comm`), or unknown (nothing reaches the threshold, or the time is idle without a trace of
    -- why). Null for a rank that holds nobody up: the wait that it caused (surely: by more than the
    -- clock error), added up over the others, is less than a hundredth of its own time in steps
    cause,
    -- name of the kernel (host operation on a rank without a GPU) whose time exceeds the median
    -- rank's most, for slower_kernels and more_work
    kernel,
    -- [ns] what the cause comes to a step: the rank's time less the median rank's, over its steps
    -- (over the whole trace where it has none). Of the strongest candidate where unknown
    cause_ns,
    -- [ns] the rank's own time of that kind, a step
    own_ns,
    -- [ns] the median rank's, a step (the lower one of an even number)
    median_ns,
    -- [ns] how far it came behind the median start, a step, in these collectives; null where steps
    -- are compared
    late_ns,
    -- cause_ns over late_ns; null where steps are compared
    explained_share,
    -- [ns] excess of `kernel` alone over the median rank's, a step
    kernel_excess_ns,
    -- the host operation, call, function or range under way in the rank's longest gaps, where the
    -- cause is idle time
    host_op,
    -- communicator of earlier_collective and slow_link
    comm,
    -- rank that was last there at the greatest cost to this one
    peer,
    -- how it was found: stretches (before collectives on `late_on`) or steps
    measured_on,
    -- communicator on which its being last cost most, whose collectives are looked at
    late_on,
    -- [stretches] stretches (or steps) of the rank that were compared
    stretches,
    -- the cause in words that follow "rank N"
    detail
) AS
SELECT
    l.job, l.rank, l.host, l.collectives, l.times_last, l.last_share, l.wait_caused_ns,
    l.times_within_error,
    r.score_ns,
    r.low_ns AS score_low_ns,
    r.high_ns AS score_high_ns,
    c.cause,
    c.kernel,
    round(c.excess_ns)::BIGINT AS cause_ns,
    round(c.own_ns)::BIGINT AS own_ns,
    round(c.median_ns)::BIGINT AS median_ns,
    round(c.late_ns)::BIGINT AS late_ns,
    c.excess_ns / nullif(c.late_ns, 0) AS explained_share,
    round(c.kernel_ns - c.kernel_median_ns)::BIGINT AS kernel_excess_ns,
    c.host_op, c.comm, c.peer,
    CASE WHEN c.key >= 0 THEN 'stretches' WHEN c.key < 0 THEN 'steps' END AS measured_on,
    c.late_on, c.stretches,
    c.detail
FROM late_ranks l
LEFT JOIN _explained c USING (job, rank)
LEFT JOIN replay_scores r USING (job, rank);
