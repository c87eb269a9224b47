"""The merged timeline: every slice of a small job, arrows, choices, hostile input, real files."""

from __future__ import annotations

import gzip
import itertools

import pytest
from retime.analysis.export import export
from retime.ingest.errors import UnusableInput, UsageError

RANK0, RANK1 = "rank 0 on a", "rank 1 on a"


def test_every_slice_of_two_ranks(rows, job_of, decode, tmp_path):
    """The job of `two_ranks`: rank 0 waits from 400 to 700 for rank 1, both move until 900."""
    told = export(job_of(rows), tmp_path / "t.perfetto-trace")
    trace = decode(tmp_path / "t.perfetto-trace")
    assert trace.on(RANK0, "steps") == [("step 5", 0, 1000)]
    assert trace.on(RANK0, "waits") == [("wait for rank 1 (all_reduce)", 400, 700)]
    assert trace.on(RANK0, "transfers") == [("all_reduce", 700, 900)]
    assert trace.on(RANK1, "waits") == []
    assert trace.on(RANK1, "transfers") == [("all_reduce", 700, 900)]
    assert trace.on(RANK0, "exposed") == [
        ("exposed_wait", 400, 700), ("exposed_transfer", 700, 900), ("exposed_memcpy", 900, 950),
    ]  # fmt: skip
    # Rank 1 computes from 800 to 900, under the second half of its transfer.
    assert trace.on(RANK1, "exposed") == [
        ("exposed_transfer", 700, 800), ("exposed_memcpy", 900, 950),
    ]  # fmt: skip
    assert trace.on(RANK0, "idle") == [("idle_unknown", 950, 1000)]
    assert trace.on(RANK0, "stream 7") == [("gemm", 0, 400), ("Memcpy DtoD", 900, 950)]
    assert trace.on(RANK0, "stream 8") == [("ncclDevKernel_AllReduce", 400, 900)]
    assert trace.on(RANK1, "stream 7") == [
        ("gemm", 0, 700), ("gemm", 800, 900), ("Memcpy DtoD", 900, 950),
    ]  # fmt: skip
    assert told["slices"] == len(trace.slices) == 19
    assert told["tracks"] == len(trace.tracks)
    assert (told["flows"], told["samples"], told["warnings"]) == (1, 0, [])
    assert told["bytes"] == (tmp_path / "t.perfetto-trace").stat().st_size


def test_an_arrow_from_the_last_to_arrive(rows, job_of, decode, tmp_path):
    export(job_of(rows), tmp_path / "t")
    arrows = [s for s in decode(tmp_path / "t").slices if s.flows]
    # The first in the file is where the arrow begins.
    order = sorted(arrows, key=lambda s: s.process)
    assert [(s.process, s.track, s.start, s.flows) for s in order] == [
        (RANK0, "transfers", 700, (1,)),
        (RANK1, "transfers", 700, (1,)),
    ]
    data = (tmp_path / "t").read_bytes()
    flow = b"\xf9\x02\x01" + bytes(7)
    first = data.index(flow)
    lane = next(s.lane for s in arrows if s.process == RANK1)
    assert data.rindex(b"\x58" + bytes([lane]), 0, first) > first - 400
    assert data.count(flow) == 2


def test_what_is_said_of_a_collective(rows, job_of, decode, tmp_path):
    export(job_of(rows), tmp_path / "t")
    trace = decode(tmp_path / "t")
    (kernel,) = (s for s in trace.slices if (s.process, s.track) == (RANK0, "stream 8"))
    assert kernel.args == {
        "event_id": 2, "step": 5, "bytes": 2048, "op": "all_reduce", "comm": "world", "dim": "dp",
        "n_ranks": 2, "n_seen": 2, "match": "exact", "wait_ns": 300, "transfer_ns": 200,
        "waits_for_rank": 1, "last_rank": 1, "clock_error_ns": 0, "collective_id": 77,
        # 2048 bytes in 500 ns, and in the 200 after ready; 2(n-1)/n is 1 for two ranks.
        "algbw_gbps": 4.096, "busbw_gbps": 4.096, "busbw_transfer_gbps": 10.24,
    }  # fmt: skip
    (gemm,) = (s for s in trace.slices if (s.process, s.name) == (RANK0, "gemm"))
    assert gemm.args == {"event_id": 1, "step": 5}
    assert trace.labels[RANK0] == ["clock ±0 ns"]


def test_kernels_that_overlap_on_a_stream_are_all_there(rows, job_of, decode, tmp_path):
    more = {**rows["events"][0], "event_id": 90, "name": "early", "start_ns": 350, "dur_ns": 20}
    rows["events"] += [more, {**more, "event_id": 91, "name": "late", "dur_ns": 100}]
    export(job_of(rows), tmp_path / "t")
    trace = decode(tmp_path / "t")
    mine = [s for s in trace.slices if (s.process, s.track) == (RANK0, "stream 7")]
    assert {s.name for s in mine} == {"gemm", "early", "late", "Memcpy DtoD"}
    assert len({s.lane for s in mine}) == 3
    assert {trace.tracks[s.lane] for s in mine} == {("stream 7", RANK0)}


def test_host_threads_nest_below_a_track_of_their_own(rows, job_of, decode, tmp_path):
    base = {"rank": 0, "kind": "host_op", "thread": "12", "step": 5}
    rows["events"] += [
        {**base, "event_id": 80, "name": "outer", "start_ns": 0, "dur_ns": 100},
        {**base, "event_id": 81, "name": "inner", "start_ns": 0, "dur_ns": 100},
        {**base, "event_id": 82, "name": "crosses", "start_ns": 50, "dur_ns": 100},
    ]
    export(job_of(rows), tmp_path / "t")
    trace = decode(tmp_path / "t")
    mine = {s.name: s for s in trace.slices if s.track == "thread 12"}
    assert mine["outer"].lane == mine["inner"].lane != mine["crosses"].lane
    assert trace.tracks[mine["outer"].lane] == ("thread 12", "host threads")
    export(job_of(rows), tmp_path / "t", host=False)
    assert not any("thread" in name for name, _ in decode(tmp_path / "t").tracks.values())


def test_counters(rows, job_of, decode, tmp_path):
    sample = {"name": "bytes", "device": "mlx5_0", "time_ns": 10, "value": 1.5}
    rows["counters"] = [
        {**sample, "rank": 1},
        {**sample, "rank": 1, "time_ns": 20, "value": -2.0},
        {**sample, "host": "a", "name": "power", "device": None},
    ]
    told = export(job_of(rows), tmp_path / "t")
    trace = decode(tmp_path / "t")
    assert told["samples"] == 3
    assert sorted(trace.samples) == [
        ("host a", "power", 10, 1.5),
        (RANK1, "bytes (mlx5_0)", 10, 1.5),
        (RANK1, "bytes (mlx5_0)", 20, -2.0),
    ]


def test_choices(rows, job_of, decode, tmp_path):
    job = job_of(rows)
    export(job, tmp_path / "t", ranks="1", kinds="kernel,wait")
    assert {(s.process, s.name) for s in decode(tmp_path / "t").slices} == {
        (RANK1, "gemm"), (RANK1, "ncclDevKernel_AllReduce"),
    }  # fmt: skip
    # Of rank 0 alone nobody is there to wait for: the wait stays, the arrow goes.
    told = export(job, tmp_path / "t", ranks=[0], kinds=["wait", "transfer"])
    assert (told["slices"], told["flows"]) == (2, 0)


def test_one_step_of_several(rows, job_of, decode, tmp_path):
    rows["steps"] += [
        {**s, "step": 6, "start_ns": 1000, "end_ns": 2000, "host_start_ns": 1000,
         "host_end_ns": 2000}
        for s in rows["steps"]
    ]  # fmt: skip
    late = {**rows["events"][0], "event_id": 70, "name": "late", "start_ns": 1000, "dur_ns": 10}
    crossing = {**late, "event_id": 71, "name": "crossing", "start_ns": 990, "dur_ns": 20}
    rows["events"] += [late, crossing]
    job = job_of(rows)
    export(job, tmp_path / "t", steps=[6], kinds="kernel,step,wait")
    assert {s.name for s in decode(tmp_path / "t").slices} == {"late", "crossing", "step 6"}
    export(job, tmp_path / "t", steps="5", kinds="kernel")
    names = {s.name for s in decode(tmp_path / "t").slices}
    assert "crossing" in names
    assert "late" not in names


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"steps": "7"}, "no step 7; it has 5 to 5"),
        ({"ranks": "0-2"}, "no rank 2; it has 0 to 1"),
        ({"ranks": "x"}, "expected 3 or 0-7,9"),
        ({"kinds": "kernels"}, "no kind 'kernels'"),
        ({"to": "chrome"}, "perfetto and chakra"),
        ({"policies": "nonsense"}, "no policy 'nonsense'"),
        ({"to": "chakra", "policies": "unchanged"}, "for --to perfetto"),
    ],
)
def test_what_there_is_not_is_said(rows, job_of, tmp_path, wrong, said):
    with pytest.raises(UsageError, match=said):
        export(job_of(rows), tmp_path / "t", **wrong)
    assert not (tmp_path / "t").exists()


def test_nothing_left_to_show_leaves_no_file(rows, job_of, tmp_path):
    with pytest.raises(UnusableInput, match="nothing to show"):
        export(job_of(rows), tmp_path / "t", kinds="python")
    assert [p for p in tmp_path.iterdir() if "rows-" not in p.name] == []


def test_the_same_job_gives_the_same_bytes_and_gz_is_gzip(rows, job_of, tmp_path):
    for name in ("a", "b.gz"):
        export(job_of(rows), tmp_path / name)
    packed = (tmp_path / "b.gz").read_bytes()
    assert packed[4:8] == bytes(4), "no time of writing"
    assert gzip.decompress(packed) == (tmp_path / "a").read_bytes()


def test_names_are_kept_as_they_are_and_absurd_ones_cut(rows, job_of, decode, tmp_path):
    hostile = "</script>\x1b[31m\u2028\x00"
    rows["events"][0]["name"] = hostile
    rows["events"][3]["name"] = "x" * 100_000
    rows["ranks"][0]["host"] = "h" * 10_000
    export(job_of(rows), tmp_path / "t", kinds="kernel")
    trace = decode(tmp_path / "t")
    names = {s.name for s in trace.slices}
    assert hostile in names
    assert "x" * 511 + "…" in names
    assert (tmp_path / "t").stat().st_size < 5_000


def test_times_before_zero_are_moved_and_that_is_said(rows, job_of, decode, tmp_path):
    for table in ("ranks", "steps", "events", "collectives"):
        for row in rows[table]:
            for column in ("start_ns", "end_ns", "host_start_ns", "host_end_ns"):
                if column in row:
                    row[column] -= 5_000
    told = export(job_of(rows), tmp_path / "t")
    assert told["shift_ns"] == 5_000
    assert decode(tmp_path / "t").on(RANK0, "waits") == [("wait for rank 1 (all_reduce)", 400, 700)]


def test_ranks_on_clocks_that_nothing_ties(rows, job_of, decode, tmp_path):
    for rank in rows["ranks"]:
        rank |= {"host": f"h{rank['rank']}", "clock_error_ns": None}
    told = export(job_of(rows), tmp_path / "t")
    trace = decode(tmp_path / "t")
    assert told["flows"] == 0
    assert "2 clocks" in told["warnings"][0]
    assert trace.labels["rank 0 on h0"] == ["clock of host h0: tied to no other"]
    assert trace.on("rank 0 on h0", "waits") == []
    assert trace.on("rank 0 on h0", "transfers") == [("all_reduce (wait or transfer)", 400, 900)]


def test_a_replay_that_changes_nothing_stands_where_the_measurement_does(
    rows, job_of, decode, tmp_path
):
    export(job_of(rows), tmp_path / "t", policies=["unchanged"])
    trace = decode(tmp_path / "t")
    replay = [s for s in trace.slices if s.process == "replay: unchanged"]
    per_rank = {}
    for s in replay:
        _, rank = trace.tracks[s.lane]
        per_rank.setdefault((rank, s.track), []).append((s.name, s.start, s.end))
    assert per_rank["rank 0", "waits"] == [("wait (all_reduce)", 400, 700)]
    assert per_rank["rank 1", "transfers"] == [("all_reduce", 700, 900)]
    assert sorted(per_rank["rank 1", "compute"]) == [("gemm", 0, 700), ("gemm", 800, 900)]
    assert per_rank["rank 0", "steps"] == [("step 5", 0, 1000)]


def test_a_replay_under_a_policy(rows, job_of, decode, tmp_path):
    export(job_of(rows), tmp_path / "t", policies=["align-arrivals"], steps="5")
    trace = decode(tmp_path / "t")
    (name,) = {s.process for s in trace.slices if s.process.startswith("replay")}
    assert name == "replay: align-arrivals"
    replay = {
        (trace.tracks[s.lane][1], s.track, s.name): s for s in trace.slices if s.process == name
    }
    moved = replay["rank 0", "transfers", "all_reduce"]
    assert ("rank 0", "waits", "wait (all_reduce)") not in replay
    # They came at 400 and 700: both come at the mean of the two now.
    assert (moved.start, moved.end) == (550, 750)
    assert (moved.args["measured_start_ns"], moved.args["measured_dur_ns"]) == (400, 500)


def test_a_real_rank_has_every_event_at_its_time(bundled, decode, tmp_path):
    """More than one batch of packets; kernels of one stream overlap in it."""
    told = export(bundled, tmp_path / "t", ranks="4")
    trace = decode(tmp_path / "t")
    events = bundled.sql("SELECT event_id, name, start_ns, dur_ns FROM events WHERE rank = 4")
    assert told["slices"] == len(trace.slices) > 16_384
    derived = {"steps", "waits", "transfers", "exposed", "idle"}
    found = [
        (s.args["event_id"], s.name, s.start, s.end) for s in trace.slices if s.track not in derived
    ]
    expected = [(i, n[:511] + "…" if len(n) > 512 else n, t, t + d) for i, n, t, d in events.rows()]
    assert sorted(found) == sorted(expected)
    lanes = {}
    for s in trace.slices:
        if s.track.startswith("stream") and not s.track.endswith("annotations"):
            lanes.setdefault(s.lane, []).append((s.start, s.end))
    assert len(lanes) > len({trace.tracks[lane] for lane in lanes})
    for spans in lanes.values():
        spans.sort()
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))
    waits = bundled.sql("SELECT start_ns, wait_ns FROM waits WHERE rank = 4 AND wait_ns > 0")
    assert sorted((s.start, s.end - s.start) for s in trace.slices if s.track == "waits") == sorted(
        waits.rows()
    )


def test_the_bundled_job_in_perfettos_own_trace_processor(bundled, ask, tmp_path):
    path = tmp_path / "demo.perfetto-trace.gz"
    told = export(bundled, path, policies=["unchanged"])
    errors, (slices), flows, kernels, backward, clock = ask(
        path,
        [
            "SELECT name, value FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0",
            "SELECT count(*) AS n, min(dur) AS least FROM slice",
            "SELECT count(*) AS n FROM flow",
            "SELECT count(DISTINCT extract_arg(s.arg_set_id, 'debug.event_id')) AS n, "
            "max(s.depth) AS depth FROM slice s JOIN process_track t ON s.track_id = t.id "
            "JOIN process p USING (upid) WHERE p.name LIKE 'rank %' AND t.name LIKE 'stream __' "
            "OR t.name LIKE 'stream _'",
            "SELECT count(*) AS n FROM flow f JOIN slice a ON f.slice_out = a.id JOIN slice b "
            "ON f.slice_in = b.id WHERE a.ts > b.ts OR "
            "extract_arg(b.arg_set_id, 'debug.waits_for_rank') IS NOT "
            "extract_arg(a.arg_set_id, 'debug.last_rank')",
            "SELECT min(ts) AS first FROM slice JOIN process_track t ON slice.track_id = t.id "
            "WHERE t.name = 'waits'",
        ],
    )
    assert errors == []
    assert slices[0]["n"] == told["slices"] > 180_000
    assert slices[0]["least"] >= 0
    assert flows == [{"n": told["flows"]}]
    on_device = bundled.sql(
        "SELECT count(*) AS n, count(DISTINCT event_id) AS ids FROM events "
        "WHERE kind IN ('kernel', 'memcpy', 'memset')"
    )
    # Kernels of one stream overlap here: none is nested in another, none is lost.
    assert kernels == [{"n": on_device["ids"][0], "depth": 0}]
    assert on_device["n"][0] == on_device["ids"][0]
    assert backward == [{"n": 0}]
    waits = bundled.sql("SELECT min(start_ns) AS first FROM waits WHERE wait_ns > 0")
    assert int(clock[0]["first"]) == waits["first"][0]


def test_the_official_messages_know_every_field(rows, job_of, decode, tmp_path):
    protos = pytest.importorskip(
        "perfetto.protos.perfetto.trace.perfetto_trace_pb2", reason="needs perfetto (extra: peers)"
    )
    from google.protobuf.unknown_fields import UnknownFieldSet

    rows["counters"] = [{"rank": 0, "name": "c", "time_ns": 1, "value": 2.0}]
    told = export(job_of(rows), tmp_path / "t")
    trace = protos.Trace.FromString((tmp_path / "t").read_bytes())
    begins = [p for p in trace.packet if p.track_event.type == protos.TrackEvent.TYPE_SLICE_BEGIN]
    assert len(begins) == told["slices"]
    assert sum(len(p.track_event.flow_ids) for p in begins) == 2 * told["flows"]
    assert sum(p.HasField("track_descriptor") for p in trace.packet) == told["tracks"]

    def known(message):
        assert len(UnknownFieldSet(message)) == 0
        for field, value in message.ListFields():
            if field.type == field.TYPE_MESSAGE:
                for one in value if not hasattr(value, "ListFields") else [value]:
                    known(one)

    known(trace)
