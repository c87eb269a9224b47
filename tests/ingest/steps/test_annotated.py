"""Steps by annotations that are no `ProfilerStep`, or that the user names."""

from __future__ import annotations

import json

import polars as pl
import pytest
from retime.ingest.run import ingest
from retime.ingest.steps import names
from retime.ingest.warehouse import Warehouse

GPU = {"device": 0, "stream": 7}


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("ProfilerStep#12", ("profilerstep", 12)),
        ("step 3", ("step", 3)),
        ("train_step", ("train_step", -1)),
        ("Iteration 7", ("iteration", 7)),
        ("iteration_12", ("iteration", 12)),
        ("[pl][profile]run_training_batch", ("[pl][profile]run_training_batch", -1)),
        ("PipelineEngine.train_batch", ("pipelineengine.train_batch", -1)),
        ("Training Step", ("training step", -1)),
        # parts of a step, or none
        ("Optimizer.step#AdamW.step", None),
        ("[pl][profile][Strategy]DDPStrategy.training_step", None),
        ("DeepSpeedEngine.step", None),
        ("step_lr", None),
        ("forward", None),
        ("", None),
    ],
)
def test_names_of_frameworks(name, told):
    assert names.known(name) == told


def test_the_users_pattern_fits_the_whole_name_and_its_last_number_counts():
    assert names.forced("My Loop 12", "my loop *") == ("", 12)
    assert names.forced("batch[3]", "batch*") == ("", 3)
    assert names.forced("work", "WORK") == ("", -1)
    assert names.forced("workout", "work") is None


def trace(tmp_path, marks, more=()):
    """A trace of three steps of 100 us, each a kernel 20 us after its launch; `marks` annotate."""
    events = []
    for i in range(3):
        at = 1000 + 100 * i
        events += [
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at + 10, "dur": 5,
             "pid": 1, "tid": 1, "args": {"correlation": i + 1}},
            {"ph": "X", "cat": "kernel", "name": "work", "ts": at + 30, "dur": 60,
             "pid": 0, "tid": 7, "args": {**GPU, "correlation": i + 1}},
        ]  # fmt: skip
        events += [
            {"ph": "X", "cat": "user_annotation", "name": name.format(i=i), "ts": at, "dur": 99,
             "pid": 1, "tid": 1}
            for name in marks
        ]  # fmt: skip
    path = tmp_path / "rank0.json"
    text = {
        "schemaVersion": 1,
        "baseTimeNanoseconds": 0,
        "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1},
        "traceEvents": [*events, *more],
    }
    path.write_text(json.dumps(text))
    return path


def steps(tmp_path, path=None, **options):
    if path is not None:
        ingest(tmp_path / "w", str(path), job="j", **options)
    files = Warehouse(tmp_path / "w").snapshot("j").files["steps"]
    if not files:
        return []
    frame = pl.read_parquet(files, hive_partitioning=False).sort("step")
    rows = frame.select("step", "start_ns", "end_ns", "host_start_ns", "found_by").rows()
    return [(step, *(t // 1000 for t in times), by) for step, *times, by in rows]


def expected(*numbers):
    """Bounds on the device: from a step's kernel to the next one's, in us."""
    ends = (1130, 1230, 1290)
    return [
        (n, 1030 + 100 * i, ends[i], 1000 + 100 * i, "annotation") for i, n in enumerate(numbers)
    ]


def test_numbered_annotations_are_steps_with_bounds_on_the_device(tmp_path):
    assert steps(tmp_path, trace(tmp_path, ["iteration {i}"])) == expected(0, 1, 2)


def test_annotations_without_numbers_are_counted(tmp_path):
    path = trace(tmp_path, ["forward", "train_step"])
    assert steps(tmp_path, path) == expected(0, 1, 2)


def test_profilers_steps_come_before_others_and_the_users_before_those(tmp_path):
    path = trace(tmp_path, ["ProfilerStep#2{i}", "iteration {i}", "loop 1{i}"])
    assert [s[0] for s in steps(tmp_path, path)] == [20, 21, 22]
    assert steps(tmp_path, path, step_annotation="loop *") == expected(10, 11, 12)
    # kept in the job: what comes later is read the same way; "" forgets it
    assert [s[0] for s in steps(tmp_path)] == [10, 11, 12]
    assert [s[0] for s in steps(tmp_path, path, step_annotation="")] == [20, 21, 22]


def test_a_name_that_no_annotation_has_changes_nothing_and_is_said(tmp_path):
    path = trace(tmp_path, ["ProfilerStep#2{i}"])
    assert [s[0] for s in steps(tmp_path, path, step_annotation="epoch*")] == [20, 21, 22]
    files = Warehouse(tmp_path / "w").snapshot("j").files["problems"]
    odd = pl.read_parquet(files, hive_partitioning=False).filter(code="steps_unclear")
    assert "'epoch*'" in odd["message"][0]


def test_one_annotation_that_does_not_recur_is_no_step(tmp_path):
    once = {"ph": "X", "cat": "user_annotation", "name": "train_step", "ts": 1000, "dur": 400,
            "pid": 1, "tid": 1}  # fmt: skip
    assert steps(tmp_path, trace(tmp_path, [], [once])) == []


def test_annotations_of_a_part_of_the_step_are_no_steps_unless_the_user_says_so(tmp_path):
    """A `step` round the optimizer only."""
    short = [
        {"ph": "X", "cat": "user_annotation", "name": "step", "ts": 1005 + 100 * i, "dur": 20,
         "pid": 1, "tid": 1}
        for i in range(3)
    ]  # fmt: skip
    path = trace(tmp_path, [], short)
    assert steps(tmp_path, path) == []
    assert [s[0] for s in steps(tmp_path, path, step_annotation="step")] == [0, 1, 2]


def test_a_source_of_before_steps_were_derived_keeps_its_steps(tmp_path):
    """Its rows were a table as it stands: `steps/`, named so in its manifest."""
    path = trace(tmp_path, ["ProfilerStep#2{i}"])
    before = steps(tmp_path, path)
    folder = Warehouse(tmp_path / "w").job_folder("j")
    (manifest,) = (p for p in (folder / "_manifests").glob("*.json") if "derived" not in p.name)
    said = json.loads(manifest.read_text())
    (part,) = said["tables"]["steps"] = said["views"].pop("steps")
    (folder / part["file"]).rename(folder / "steps" / part["file"].split("/")[-1])
    part["file"] = part["file"].removeprefix("_staged/")
    manifest.write_text(json.dumps(said))
    for old in folder.rglob("derived-*"):
        old.unlink()
    assert steps(tmp_path) == before
    assert len(Warehouse(tmp_path / "w").snapshot("j").files["steps"]) == 1
