"""Real NCCL logs, each against counts that a few lines of `re` take from the file itself."""

import itertools
import re
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from retime.ingest import detect
from retime.ingest.source import LocalFile, Source


class Log:
    """The rows of a real log by table, and its text."""

    def __init__(self, path: Path):
        source = Source(str(path), path.stat().st_size, LocalFile(str(path)), path)
        self.format = detect.detect(source)
        batches: dict[str, list[pa.RecordBatch]] = {}
        for table, batch in detect.parser(self.format).parse(source):
            batches.setdefault(table, []).append(batch)
        self.rows = {t: pa.Table.from_batches(b).to_pylist() for t, b in batches.items()}
        self.odd = {r["code"]: r for r in self.rows.get("problems", [])}
        self.text = path.read_text(errors="replace")

    def kind(self, kind: str) -> list[dict]:
        return [r for r in self.rows["topology"] if r["kind"] == kind]


@pytest.fixture(scope="module")
def megatron(retime_traces) -> Log:
    folder = retime_traces / "nccl_logs" / "bigscience" / "gpt2-meg"
    return Log(folder / "meg_gpt2_perf_n16-1999618.out")


@pytest.fixture(scope="module")
def efa(retime_traces) -> Log:
    return Log(retime_traces / "nccl_logs" / "awsome-distributed-training" / "slurm-104.out")


@pytest.fixture(scope="module")
def bandwidth(retime_traces) -> Log:
    return Log(retime_traces / "nccl_logs/bigscience/bandwidth/all_reduce_bench-a100-n4.txt")


def inits(text: str) -> list[tuple[str, ...]]:
    """(host, pid, rank, nranks) of each communicator that a process completed."""
    return re.findall(
        r"([\w-]+):(\d+):\d+ \[\d\] NCCL INFO comm 0x\w+ rank (\d+) nranks (\d+) .* - Init COMPL",
        text,
    )


def test_megatron_is_found_although_its_head_says_nothing(megatron):
    assert megatron.format == "nccl-log"
    assert megatron.text.index("NCCL INFO") > detect.HEAD_BYTES


def test_megatron_has_64_ranks_on_16_hosts(megatron):
    world = {(int(r), h, int(p)) for h, p, r, n in inits(megatron.text) if n == "64"}
    ranks = megatron.rows["ranks"]
    assert {(r["rank"], r["host"], r["pid"]) for r in ranks} == world
    assert len(ranks) == 64
    assert len({r["host"] for r in ranks}) == 16
    assert {(r["world_size"], r["clock"]) for r in ranks} == {(64, "none")}
    assert Counter(r["local_rank"] for r in ranks) == {0: 16, 1: 16, 2: 16, 3: 16}


def test_megatron_has_400_inits_in_the_communicators_of_their_sizes(megatron):
    told = Counter(int(n) for *_, n in inits(megatron.text))
    assert told.total() == 400
    assert told == {64: 128, 16: 16, 4: 64, 2: 128, 1: 64}
    comms = megatron.rows["comms"]
    # A communicator whose members are known is one row for all of its inits; else one each.
    kept = Counter()
    for r in comms:
        kept[r["size"]] += len(r["ranks"]) if r["ranks"] is not None else 1
    assert kept == told
    known = Counter(r["size"] for r in comms if r["ranks"] is not None)
    assert known == {64: 2, 16: 1, 4: 16, 1: 64}
    by_host = {}
    for r in megatron.rows["ranks"]:
        by_host.setdefault(r["host"], []).append(r["rank"])
    assert sorted(r["ranks"] for r in comms if r["size"] == 4) == sorted(by_host.values())
    assert {r["backend"] for r in comms} == {"nccl 2.7.8"}
    assert megatron.odd["library_version"]["count"] == megatron.text.count("NCCL version 2.7.8")


def test_megatrons_nics_and_links_are_those_of_its_lines(megatron):
    nics = {
        (host, name)
        for host, line in re.findall(r"(\w+):\d+:\d+ \[\d\] NCCL INFO NET/IB : Using (.*) ;",
                                     megatron.text)
        for name in re.findall(r"\](\w+):1/IB", line)
    }  # fmt: skip
    assert {(r["host"], r["device"]) for r in megatron.kind("nic")} == nics
    assert len(nics) == 16 * 4
    # Each communicator is made by a thread of its own: the thread stands for it here.
    lines = re.findall(
        r"(\w+):(\d+):(\d+) \[\d\] NCCL INFO Channel (\d+) : (\d+)\[\w+\] -> (\d+)\[\w+\] "
        r"(?:\[(send|receive)\] )?via (\S+)",
        megatron.text,
    )
    links = {
        (host, pid, thread, channel, *((b, a) if way == "receive" else (a, b)), via)
        for host, pid, thread, channel, a, b, way, via in lines
    }
    assert len(megatron.kind("link")) == len(links)
    assert Counter(r["via"] for r in megatron.kind("link")) == Counter(
        "NET/IB" if via.startswith("NET") else via for *_, via in links
    )


def test_megatrons_transfers_name_the_nic_of_each_channel(megatron):
    """Of the world's communicators the peers are global ranks: each line is one row there."""
    names = {}
    for host, line in re.findall(r"(\w+):\d+:\d+ \[\d\] NCCL INFO NET/IB : Using (.*) ;",
                                 megatron.text):  # fmt: skip
        names |= {(host, n): name for n, name in re.findall(r"\[(\d)\](\w+):", line)}
    threads = set(re.findall(r"(\w+:\d+:\d+) \[\d\] NCCL INFO comm \S+ rank \d+ nranks 64 ",
                             megatron.text))  # fmt: skip
    expected = set()
    for thread, channel, a, b, way, n in re.findall(
        r"(\w+:\d+:\d+) \[\d\] NCCL INFO Channel (\d+) : (\d+)\[\w+\] -> (\d+)\[\w+\] "
        r"\[(send|receive)\] via NET/IB/(\d)",
        megatron.text,
    ):
        if thread in threads:
            me, peer, way = (a, b, "send") if way == "send" else (b, a, "recv")
            host = thread.split(":")[0]
            expected.add((int(me), names[host, n], int(channel), int(peer), way))
    got = {
        (r["rank"], r["nic"], r["channel"], r["peer_rank"], r["direction"])
        for r in megatron.rows["transfers"]
        if r["peer_rank"] is not None
    }
    assert expected <= got
    assert len(expected) > 100
    assert all(r["measured"] is False and r["bytes"] is None for r in megatron.rows["transfers"])


def test_megatrons_messages_are_all_accounted_for(megatron):
    """Whatever gives no row is counted: nothing of the 8485 messages is dropped in silence."""
    assert megatron.text.count(" NCCL INFO ") == 8485
    used = len(re.findall(
        r"NCCL INFO (?:Channel \d+ : \d+\[|Channel \d+/\d+ :|Trees |NET/IB : Using|comm 0x)",
        megatron.text,
    ))  # fmt: skip
    rings_of_one = len(re.findall(r"NCCL INFO Channel \d+/\d+ :    0\n", megatron.text))
    assert rings_of_one == 2048
    assert megatron.odd["other_lines"]["count"] == 8485 - used + rings_of_one
    assert "cut_line" not in megatron.odd


def test_megatrons_rings_of_64_are_printed_to_their_20th_rank(megatron):
    lines = re.findall(r"NCCL INFO Channel (\d+)/04 : +0 ([\d ]+)\n", megatron.text)
    assert {len(rest.split()) for _, rest in lines} == {19}
    assert megatron.odd["ring_cut"]["count"] == len(lines) == 8
    ring = [r for r in megatron.kind("ring") if r["comm"] == "nccl-log-64-0" and r["channel"] == 1]
    order = [0, *(int(x) for x in lines[1][1].split())]
    assert [(r["rank"], r["peer_rank"]) for r in ring] == list(itertools.pairwise(order))


def test_efa_has_16_ranks_on_2_hosts_behind_sruns_labels(efa):
    assert efa.format == "nccl-log"
    told = set(re.findall(r"Rank +(\d+) Group +0 Pid +(\d+) on (\S+) device +(\d) \[\w+\] (.*)\n",
                          efa.text))  # fmt: skip
    assert len(told) == 16
    ranks = efa.rows["ranks"]
    assert {(str(r["rank"]), str(r["pid"]), r["host"], str(r["device"]), r["device_name"])
            for r in ranks} == told  # fmt: skip
    assert len({r["host"] for r in ranks}) == 2
    assert [(c["comm"], c["ranks"], c["backend"]) for c in efa.rows["comms"]] == [
        ("nccl-94343f5a50e0fc8e", list(range(16)), "nccl 2.18.3")
    ]


def test_efas_rings_trees_and_links_are_those_of_its_lines(efa):
    rings = {
        (int(channel), a, b)
        for channel, order in re.findall(r"Channel (\d+)/08 : +([\d ]+)\n", efa.text)
        for ranks in [[int(x) for x in order.split()]]
        for a, b in zip(ranks, ranks[1:] + ranks[:1], strict=True)
    }
    assert len(rings) == 8 * 16
    got = [(r["channel"], r["rank"], r["peer_rank"]) for r in efa.kind("ring")]
    assert set(got) == rings
    assert len(got) == len(rings)
    trees = set()
    for line in re.findall(r"NCCL INFO Trees (.*)\n", efa.text):
        for channel, below, me, up in re.findall(r"\[(\d+)\] (\S+?)->(\d+)->(-?\d+)", line):
            pairs = [(me, up), *((child, me) for child in below.split("/"))]
            trees |= {(int(channel), int(a), int(b)) for a, b in pairs if "-1" not in (a, b)}
    got = [(r["channel"], r["rank"], r["peer_rank"]) for r in efa.kind("tree")]
    assert set(got) == trees
    assert len(got) == len(trees)
    links = set()
    for channel, a, b, way, via in re.findall(
        r"Channel (\d+)/\d : (\d+)\[\d\] -> (\d+)\[\d\] (?:\[(\w+)\] )?via (.*)\n", efa.text
    ):
        links.add((channel, *((b, a) if way == "receive" else (a, b)), via))
    assert len(efa.kind("link")) == len(links)


def test_efas_transfers_are_its_network_lines(efa):
    lines = set()
    for channel, a, b, way, nic, rest in re.findall(
        r"Channel (\d+)/\d : (\d+)\[\d\] -> (\d+)\[\d\] \[(\w+)\] via NET/AWS Libfabric/(\d)"
        r"(?:\(\d+\))?(/\S+)",
        efa.text,
    ):
        me, peer = (b, a) if way == "receive" else (a, b)
        lines.add((int(me), int(peer), int(channel), way[:3], f"AWS Libfabric/{nic}", rest))
    got = [
        (r["rank"], r["peer_rank"], r["channel"], r["direction"][:3], r["nic"],
         r["via"].removeprefix("NET/AWS Libfabric"))
        for r in efa.rows["transfers"]
    ]  # fmt: skip
    assert set(got) == lines
    assert len(got) == len(lines) == 96


def test_efas_benchmark_table_is_part_of_the_same_source(efa):
    rows = re.findall(r"\n 0: +(\d+) +\d+ +float +none ", efa.text)
    assert Counter(r["bytes"] for r in efa.rows["cost_curves"]) == Counter(
        2 * [int(size) for size in rows]
    )
    assert len(rows) == 29


def test_the_bandwidth_log_has_32_ranks_in_one_communicator(bandwidth):
    assert bandwidth.format == "nccl-log"
    world = {(int(r), h, int(p)) for h, p, r, n in inits(bandwidth.text) if n == "32"}
    assert len(world) == 32
    got = {(r["rank"], r["host"], r["pid"]) for r in bandwidth.rows["ranks"]}
    assert got == world
    assert [c["ranks"] for c in bandwidth.rows["comms"]] == [list(range(32))]
    nets = re.findall(r"NCCL INFO Channel .* via NET/IB/\d", bandwidth.text)
    assert len(bandwidth.rows["transfers"]) == len(nets) == 40


@pytest.mark.parametrize("gpus", [2, 4, 6])
@pytest.mark.parametrize(("choice", "algo"), [("NVLS", "nvls"), ("Ring", "ring"), ("auto", None)])
def test_each_choice_of_the_collectives_bench_is_counted(retime_traces, gpus, choice, algo):
    folder = retime_traces / "nccl_logs" / "nccl-collectives-bench" / "scaling_attributed"
    log = Log(folder / f"g{gpus}_{choice}.log")
    assert log.format == "nccl-log"
    told = Counter(
        (int(size), name.lower(), int(high) - int(low) + 1)
        for size, name, low, high in re.findall(
            r"AllReduce: (\d+) Bytes -> Algo (\w+) proto SIMPLE channel\{Lo\.\.Hi\}="
            r"\{(\d+)\.\.(\d+)\}",
            log.text,
        )
    )
    assert told.total() == 654
    assert {(r["bytes"], r["algo"], r["channels"]): r["count"] for r in log.rows["tuning"]} == told
    assert {(r["op"], r["proto"], r["rank"], r["n_ranks"]) for r in log.rows["tuning"]} == {
        ("all_reduce", "Simple", 0, gpus)
    }
    assert algo in (None, *{r["algo"] for r in log.rows["tuning"]})
    ids = set(re.findall(r"commId 0x(\w+)", log.text))
    assert [(c["comm"], c["ranks"]) for c in log.rows["comms"]] == [
        (f"nccl-{ids.pop():0>16}", list(range(gpus)))
    ]
    assert len(log.rows["ranks"]) == gpus
    assert len(log.rows["cost_curves"]) == 12
