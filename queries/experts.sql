-- How many tokens each expert and each rank of experts got, and how evenly.
-- requires: clocks

-- One row a routed count that reached an expert, with the expert's holder: the rank that the source
-- names, else its place by contiguous blocks in the job's expert-parallel communicators (dim ep),
-- where they all have one size that divides the number of experts. A place is of a rank where only
-- one communicator can be meant.
CREATE VIEW _routed AS
WITH numbered AS (
    SELECT
        job, source, block, layer, step, rank, expert_rank, tokens, weight_sum,
        coalesce(expert, physical_expert) AS expert,
        CASE WHEN expert IS NOT NULL THEN 'logical' ELSE 'physical' END AS id_space
    FROM routing
    WHERE coalesce(token_class, 'real') = 'real' AND coalesce(expert, physical_expert) IS NOT NULL
), counted AS (
    -- The highest number seen tells how many there are: those above it got nothing anywhere.
    SELECT job, source, block, id_space, max(expert)::BIGINT + 1 AS n_experts,
        count(expert_rank) = count(*) AS recorded
    FROM numbered
    GROUP BY ALL
), lists AS (
    -- By a number: rows of routing then carry no lists of ranks, which grow with the job.
    SELECT job, size, ranks, dense_rank() OVER (ORDER BY job, ranks) AS list
    FROM comms
    WHERE dim = 'ep'
), groups AS (
    SELECT
        job,
        min(size) AS size,
        min(size) = max(size) AND min(size) > 1 AS usable,
        count(DISTINCT list_sort(ranks)) AS n_groups,
        any_value(list) FILTER (ranks IS NOT NULL) AS list
    FROM lists
    WHERE size IS NOT NULL
    GROUP BY job
), members AS (
    SELECT job, rank, any_value(list) AS list
    FROM (SELECT job, list, unnest(ranks) AS rank FROM lists)
    GROUP BY job, rank
    HAVING count(DISTINCT list) = 1
), all_members AS (
    SELECT job, count(DISTINCT rank) AS n_members FROM members GROUP BY job
), holders AS (
    SELECT list, unnest(ranks) AS rank, generate_subscripts(ranks, 1) - 1 AS place
    FROM (SELECT DISTINCT list, ranks FROM lists)
), placed AS (
    SELECT
        n.*, c.n_experts, c.recorded,
        CASE WHEN NOT c.recorded AND g.usable AND c.n_experts % g.size = 0 THEN g.size END
            AS n_places,
        (n.expert // (c.n_experts // n_places))::INTEGER AS place,
        CASE WHEN place IS NOT NULL
             THEN coalesce(m.list, CASE WHEN g.n_groups = 1 THEN g.list END) END AS list
    FROM numbered n
    JOIN counted c
        ON c.job = n.job AND c.source IS NOT DISTINCT FROM n.source
        AND c.block IS NOT DISTINCT FROM n.block AND c.id_space = n.id_space
    LEFT JOIN groups g ON g.job = n.job
    LEFT JOIN members m ON m.job = n.job AND m.rank = n.rank
)
SELECT
    p.job, p.source, p.block, p.layer, p.step, p.rank, p.id_space, p.expert, p.n_experts, p.tokens,
    p.weight_sum,
    CASE WHEN p.recorded THEN p.expert_rank ELSE h.rank END AS expert_rank,
    CASE WHEN p.recorded THEN NULL ELSE p.place END AS expert_place,
    CASE WHEN p.recorded THEN 'recorded' WHEN p.place IS NOT NULL THEN 'contiguous' END AS placement,
    p.n_places, CASE WHEN NOT p.recorded THEN a.n_members END AS n_members
FROM placed p
LEFT JOIN holders h ON h.list = p.list AND h.place = p.place
LEFT JOIN all_members a ON a.job = p.job;

-- An expert of a layer in a step, with the tokens that chose it (a token with k experts counts once
-- for each). Padding and dropped choices do not count; experts that got nothing have no row. Two
-- sources may tell of the same tokens, so each stands for itself.
CREATE VIEW expert_load (
    -- job
    job,
    -- step, or forward pass; null where the source has none
    step,
    -- layer
    layer,
    -- decoder, mtp, ... where the source says
    block,
    -- what told it
    source,
    -- what `expert` counts: logical experts, or physical ones (replicas)
    id_space,
    -- expert
    expert,
    -- rank that holds it; null where not known, or where several do
    expert_rank,
    -- its place in each expert-parallel communicator, where that was derived; else null
    expert_place,
    -- how its holder is known: recorded, or contiguous (blocks of equal size in the order of the
    -- expert-parallel communicator: an assumption); null where it is not
    placement,
    -- [tokens] tokens routed to it
    tokens,
    -- tokens over those of all experts of the layer in the step, 0 to 1
    share,
    -- sum of the gate weights; null where the source has none
    weight_sum,
    -- [ranks] ranks that sent some; null where the source tells sums over all ranks
    source_ranks
) AS
WITH loads AS (
    SELECT
        job, step, layer, block, source, id_space, expert,
        CASE WHEN min(expert_rank) = max(expert_rank) AND count(expert_rank) = count(*)
             THEN any_value(expert_rank) END AS expert_rank,
        any_value(expert_place) AS expert_place,
        any_value(placement) AS placement,
        TRY_CAST(sum(tokens) AS BIGINT) AS tokens,
        sum(weight_sum) AS weight_sum,
        nullif(count(DISTINCT rank) FILTER (tokens > 0), 0) AS source_ranks
    FROM _routed
    GROUP BY job, step, layer, block, source, id_space, expert
)
SELECT
    job, step, layer, block, source, id_space, expert, expert_rank, expert_place, placement,
    tokens,
    tokens / nullif(sum(tokens) OVER (
        PARTITION BY job, step, layer, block, source, id_space
    ), 0) AS share,
    weight_sum, source_ranks
FROM loads;

-- Coefficient of variation of n loads, of which the sum and the sum of squares are known: those
-- that are not there count as 0. Null where nothing was carried.
CREATE MACRO _spread(total, squares, n) AS
    sqrt(greatest(0, squares / nullif(n, 0) - power(total / nullif(n, 0), 2)))
    / nullif(total / nullif(n, 0), 0);

-- How unevenly a layer's tokens fell in a step. Of n loads x: max/mean; the population standard
-- deviation over the mean; Jain's index (sum x)^2 / (n sum x^2). Experts and ranks that got nothing
-- count: there are as many experts as the highest number seen of the source, plus one, and as many
-- ranks as the source ever names (with a derived placement: as the expert-parallel groups have).
CREATE VIEW expert_imbalance (
    -- job
    job,
    -- step, or forward pass; null where the source has none
    step,
    -- layer
    layer,
    -- decoder, mtp, ... where the source says
    block,
    -- what told it
    source,
    -- what is counted as an expert: logical, or physical (replicas)
    id_space,
    -- [tokens] choices of experts
    tokens,
    -- [experts] experts of the layer, idle ones too
    n_experts,
    -- [experts] experts that got any
    experts_used,
    -- expert that got most (the lowest of several)
    busiest_expert,
    -- largest load of an expert over the mean
    max_over_mean_by_expert,
    -- coefficient of variation over experts
    cv_by_expert,
    -- Jain's index over experts
    jain_by_expert,
    -- [ranks] ranks that hold experts (places of one expert-parallel group, where only those are
    -- known); null where unknown
    n_expert_ranks,
    -- rank whose experts got most (the lowest of several); null where only places are known
    busiest_rank,
    -- largest load of a rank over the mean; null where no placement is known
    max_over_mean_by_rank,
    -- coefficient of variation over ranks
    cv_by_rank,
    -- Jain's index over ranks
    jain_by_rank,
    -- recorded, or contiguous (derived: see expert_load); null where unknown
    placement,
    -- [tokens] choices that no expert took; null where the source tells of none
    dropped_tokens,
    -- [tokens] fake tokens; null where the source tells of none
    padding_tokens
) AS
WITH by_expert AS (
    SELECT
        job, step, layer, block, source, id_space, expert,
        any_value(n_experts) AS n_experts, any_value(placement) AS placement,
        sum(tokens)::DOUBLE AS load
    FROM _routed
    GROUP BY ALL
), experts AS (
    SELECT
        job, step, layer, block, source, id_space,
        any_value(n_experts) AS n, any_value(placement) AS placement,
        count(*) FILTER (load > 0) AS used,
        arg_min(expert, (-load, expert)) AS busiest,
        max(load) AS most, sum(load) AS total, sum(load * load) AS squares
    FROM by_expert
    GROUP BY ALL
), by_holder AS (
    -- Where a place is known but not of which group, the places of all groups are taken together.
    SELECT
        job, step, layer, block, source, id_space, expert_rank,
        CASE WHEN expert_rank IS NULL THEN expert_place END AS place,
        any_value(n_places) AS n_places, any_value(n_members) AS n_members,
        sum(tokens)::DOUBLE AS load
    FROM _routed
    WHERE placement IS NOT NULL
    GROUP BY ALL
), holders AS (
    SELECT job, source, block, id_space, count(DISTINCT expert_rank) AS n_ranks
    FROM by_holder
    GROUP BY ALL
), ranks AS (
    SELECT
        job, step, layer, block, source, id_space,
        count(expert_rank) = count(*) AS ranks_known,
        any_value(n_places) AS n_places,
        any_value(n_members) AS n_members,
        arg_min(expert_rank, (-load, expert_rank)) AS busiest,
        max(load) AS most, sum(load) AS total, sum(load * load) AS squares
    FROM by_holder
    GROUP BY ALL
), ranked AS (
    SELECT r.*, CASE WHEN r.ranks_known THEN coalesce(r.n_members, h.n_ranks)
                     ELSE r.n_places END AS n
    FROM ranks r
    JOIN holders h
        ON h.job = r.job AND h.source IS NOT DISTINCT FROM r.source
        AND h.block IS NOT DISTINCT FROM r.block AND h.id_space = r.id_space
), lost AS (
    SELECT
        job, step, layer, block, source,
        sum(tokens) FILTER (token_class = 'dropped') AS dropped,
        sum(tokens) FILTER (token_class = 'padding') AS padding
    FROM routing
    WHERE token_class IN ('dropped', 'padding')
    GROUP BY ALL
)
SELECT
    e.job, e.step, e.layer, e.block, e.source, e.id_space,
    TRY_CAST(e.total AS BIGINT) AS tokens, e.n AS n_experts, e.used AS experts_used,
    CASE WHEN e.most > 0 THEN e.busiest END AS busiest_expert,
    e.most * e.n / nullif(e.total, 0) AS max_over_mean_by_expert,
    _spread(e.total, e.squares, e.n) AS cv_by_expert,
    e.total * e.total / nullif(e.n * e.squares, 0) AS jain_by_expert,
    r.n AS n_expert_ranks,
    CASE WHEN r.ranks_known AND r.most > 0 THEN r.busiest END AS busiest_rank,
    r.most * r.n / nullif(r.total, 0) AS max_over_mean_by_rank,
    _spread(r.total, r.squares, r.n) AS cv_by_rank,
    r.total * r.total / nullif(r.n * r.squares, 0) AS jain_by_rank,
    e.placement,
    l.dropped::BIGINT AS dropped_tokens, l.padding::BIGINT AS padding_tokens
FROM experts e
LEFT JOIN ranked r
    ON r.job = e.job AND r.step IS NOT DISTINCT FROM e.step
    AND r.layer IS NOT DISTINCT FROM e.layer AND r.block IS NOT DISTINCT FROM e.block
    AND r.source IS NOT DISTINCT FROM e.source AND r.id_space = e.id_space
LEFT JOIN lost l
    ON l.job = e.job AND l.step IS NOT DISTINCT FROM e.step
    AND l.layer IS NOT DISTINCT FROM e.layer AND l.block IS NOT DISTINCT FROM e.block
    AND l.source IS NOT DISTINCT FROM e.source;
