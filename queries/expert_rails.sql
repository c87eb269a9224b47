-- Whether uneven experts explain uneven rails.
-- requires: experts, rails

-- A layer of a job with experts: the regression, over steps, of the rails' imbalance on the
-- experts'. Both are max/mean: that of ranks of experts where their placement is known, else of
-- experts (`expert_imbalance`); that of the bytes of rails (`rail_imbalance`, the row to use of each
-- step). Least squares; null where fewer than three steps have both, or one of them does not vary.
-- Rails' loads that were derived follow from what the traces say of sizes and routing, so a high r2
-- of those says that all-to-alls dominate them, and nothing of the fabric (`rail_source`).
CREATE VIEW expert_rail_regression (
    -- job
    job,
    -- layer
    layer,
    -- decoder, mtp, ... where the source says
    block,
    -- what told the routing
    source,
    -- by_rank or by_expert: which imbalance of the experts is taken
    regressor,
    -- share of the variance of the rails' imbalance that the experts' explains, 0 to 1
    r2,
    -- change of the rails' max/mean for each 1 of the experts' max/mean
    slope,
    -- standard error of the slope
    slope_error,
    -- [steps] steps that have both
    n,
    -- measured or derived; mixed where steps differ
    rail_source,
    -- what the rails' loads count: bytes, tokens, or mixed
    unit
) AS
WITH rails AS (
    SELECT job, step, max_over_mean, source, unit
    FROM rail_imbalance
    WHERE is_best AND window_by = 'step' AND max_over_mean IS NOT NULL
), experts AS (
    SELECT
        job, step, layer, block, source,
        CASE WHEN bool_and(max_over_mean_by_rank IS NOT NULL) OVER (
            PARTITION BY job, layer, block, source
        ) THEN 'by_rank' ELSE 'by_expert' END AS regressor,
        CASE regressor WHEN 'by_rank' THEN max_over_mean_by_rank
             ELSE max_over_mean_by_expert END AS x
    FROM expert_imbalance
    WHERE step IS NOT NULL AND id_space = 'logical' AND tokens > 0
), fitted AS (
    SELECT
        e.job, e.layer, e.block, e.source, e.regressor,
        count(*) AS n,
        count(*) >= 3 AND var_pop(e.x) > 0 AND var_pop(r.max_over_mean) > 0 AS usable,
        regr_r2(r.max_over_mean, e.x) AS r2,
        regr_slope(r.max_over_mean, e.x) AS slope,
        regr_sxx(r.max_over_mean, e.x) AS sxx,
        regr_syy(r.max_over_mean, e.x) AS syy,
        CASE WHEN min(r.source) = max(r.source) THEN min(r.source) ELSE 'mixed' END AS rail_source,
        CASE WHEN min(r.unit) = max(r.unit) THEN min(r.unit) ELSE 'mixed' END AS unit
    FROM experts e JOIN rails r ON r.job = e.job AND r.step = e.step
    GROUP BY e.job, e.layer, e.block, e.source, e.regressor
)
SELECT
    job, layer, block, source, regressor,
    CASE WHEN usable THEN r2 END AS r2,
    CASE WHEN usable THEN slope END AS slope,
    CASE WHEN usable THEN sqrt(greatest(0, 1 - r2) * syy / (n - 2) / sxx) END AS slope_error,
    n, rail_source, unit
FROM fitted;
