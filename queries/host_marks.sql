-- Names by which a trace shows that a host collects garbage or loads data: the one place for them.

-- Whether an event is Python collecting garbage: PyTorch's own rows ("Python GC", written with
-- record_python_gc_info), a recorded call of gc.collect, the operation `gc` of recorded jobs, or a
-- range that says so ("gc", "manual gc", "garbage collection").
CREATE MACRO is_garbage_collection(
    -- kind, as in `events.kind`
    kind,
    -- name, as in `events.name`
    name
) AS kind IN ('python', 'host_op', 'annotation') AND (
    name IN ('Python GC', 'gc', 'gc.collect', '<built-in function collect>')
    OR (kind = 'annotation' AND regexp_matches(
        name,
        '^(python|manual|forced?|run)?[ _:.-]*(gc|garbage[ _-]?collect(ion|or)?)'
        '([ _:.#(-]*(collect|gen|step|[0-9]).*)?$',
        'i'
    ))
);

-- Whether an event is a wait for the next batch of training data: PyTorch's DataLoader (its own
-- ranges, and the frames of its __next__), or a range whose name says so ("dataloader",
-- "data loading", "get_batch", "batch-generator", Lightning's train_dataloader_next).
CREATE MACRO is_data_loading(
    -- kind, as in `events.kind`
    kind,
    -- name, as in `events.name`
    name
) AS (kind IN ('annotation', 'host_op') AND starts_with(name, 'enumerate(DataLoader)'))
OR (kind = 'annotation' AND regexp_matches(
    name,
    '(^|[^a-z])(train_)?data[ _-]?load(er|ing)?(_next)?([^a-z]|$)'
    '|(^|[^a-z])(get|next|fetch|load|read)[ _-](next[ _-])?(train[ _-])?(batch|data)([^a-z]|$)'
    '|(^|[^a-z])batch[ _-]generator([^a-z]|$)'
    '|(^|[^a-z])data[ _-](fetch|wait|time|iter)([^a-z]|$)',
    'i'
)) OR (kind = 'python' AND regexp_matches(
    name, 'data/dataloader\.py\([0-9]+\): (__next__|_next_data)$'
));
