"""Fabric files: what they say is what comes out, and what is wrong is told in one sentence."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from retime.ingest.errors import UsageError
from retime.replay.fabric import BadFabric, Fabric, graph, load, preset, presets, storage_route

WHOLE = """
name = "lab"
device = "H100"
gpus_per_host = 4
hosts = 6

[scale_up]
link = "nvlink"
domain = 4
bandwidth = "450GB/s"
efficiency = 0.8
alpha = "0.7us"
incast_gamma = 0.02
incast_free = 2

[pcie]
bandwidth = "64GB/s"
sockets = 2
switches = 2

[pcie.switch]
bandwidth = "50GB/s"

[pcie.socket]
bandwidth = "40GB/s"

[pcie.memory]
bandwidth = "200GB/s"

[nic]
count = 2
planes = 2
bandwidth = "400Gb/s"
efficiency = 0.97
alpha = "1300ns"

[network]
wiring = "rail"
hosts_per_leaf = 3
uplinks = 2
oversubscription = 1.5

[network.leaf]
alpha = "1us"
efficiency = 0.9

[storage]
attach = "shared"

[storage.server]
bandwidth = "20GB/s"

[storage.staging]
bandwidth = "6GB/s"

[[background]]
of = "leaf"
share = 0.25

[[background]]
of = "nic_rx host 5 rail 1"
share = 0.5

[[traffic]]
name = "collective"
share = 0.7

[[traffic]]
name = "storage"
share = 0.3
"""


def test_everything_that_a_file_can_say():
    fabric = load(WHOLE)
    assert (fabric.name, fabric.device, fabric.hosts, fabric.gpus) == ("lab", "H100", 6, 24)
    up = fabric.scale_up.link
    assert (up.bandwidth_bytes_per_s, up.efficiency, up.alpha_ns) == (450e9, 0.8, 700)
    assert (up.incast_gamma, up.incast_free) == (0.02, 2)
    assert (fabric.pcie.sockets, fabric.pcie.switches) == (2, 2)
    assert fabric.nic.serves == (0, 0, 1, 1)
    assert fabric.nic.at == (0, 1)
    assert [t.share for t in fabric.traffic] == [0.7, 0.3]
    links = graph(fabric)
    rate = {links.name(i): c for i, c in enumerate(links.link_capacity_bytes_per_s)}
    assert rate["scale_up_tx gpu 7"] == 360e9
    assert rate["pcie_switch_up host 2 switch 1"] == 50e9
    assert rate["nic_tx host 5 rail 1"] == pytest.approx(48.5e9)
    assert rate["nic_rx host 5 rail 1"] == pytest.approx(24.25e9)
    # 3 hosts x 50 GB/s over 1.5, of which 0.9 is reached and 0.25 others have.
    assert rate["leaf_up segment 1 rail 0"] == pytest.approx(3 * 50e9 / 1.5 * 0.9 * 0.75)
    assert rate["memory_write host 0 socket 1"] == 100e9
    assert load(WHOLE, gpus=48).hosts == 12
    with pytest.raises(BadFabric, match="nic_rx host 2 rail 1 would work"):  # of hosts 0 to 2
        load(WHOLE, gpus=12)


def test_storage_shares_the_nics_of_collectives_unless_it_has_its_own():
    links = graph(load(WHOLE))
    read = [links.name(i) for i in storage_route(links, 22).of(0)]
    assert read == [
        "server_read", "leaf_down segment 1 rail 1", "nic_rx host 5 rail 1", "pcie_rx gpu 22",
    ]  # fmt: skip
    write = [links.name(i) for i in storage_route(links, 22, write=True).of(0)]
    assert write == [
        "pcie_tx gpu 22", "nic_tx host 5 rail 1", "leaf_up segment 1 rail 1", "server_write",
    ]  # fmt: skip
    staged = [links.name(i) for i in storage_route(links, [0, 23], staged=True).links]
    assert staged == ["nvme_read host 0", "nvme_read host 5"]
    own = WHOLE.replace('attach = "shared"', 'attach = "own"\nbandwidth = "200Gb/s"')
    links = graph(load(own))
    found = storage_route(links, 22)
    assert [links.name(i) for i in found.of(0)] == ["server_read", "storage_rx host 5"]
    assert found.capacity_bytes_per_s(links)[0] == 20e9
    with pytest.raises(UsageError, match=r"\[storage\]"):
        storage_route(graph(preset("h100")), 0)


def test_optical_circuits_are_up_for_a_share_of_the_time():
    # RotorNet-like: circuits held 180 us, 20 us to turn: 0.9 of the time.
    text = WHOLE + (
        '\n[optical]\nswitches = 4\nreconfigure = "20us"\nhold = "180us"\nschedule = "rotor"\n'
        'bandwidth = "50GB/s"\n'
    )
    links = graph(load(text.replace('[[background]]\nof = "leaf"\nshare = 0.25\n', "")))
    at = links.select("leaf_up segment 0 rail 0")
    assert links.link_capacity_bytes_per_s[at] == pytest.approx(2 * 4 * 50e9 * 0.97 * 0.9)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("domain = 4", "domian = 4", r"scale_up\.'domian': did you mean domain\?"),
        ("[scale_up]", "[scaleup]", r"'scaleup': did you mean scale_up\?"),
        ("[network.leaf]", "[network.leav]", r"network\.'leav': did you mean leaf\?"),
        ('"450GB/s"', "450", r"scale_up\.bandwidth is 450: write it with its unit"),
        ('"450GB/s"', '"450GB"', r"by the second"),
        ('"450GB/s"', '"450furlongs/s"', "unknown unit"),
        ('"450GB/s"', '"2000000GB/s"', "1 PB/s"),
        ('"450GB/s"', '"0GB/s"', "more than 0"),
        ('"450GB/s"', '"nanGB/s"', "expected a number"),
        ('"0.7us"', "0.7", r"scale_up\.alpha is 0\.7: write it with its unit"),
        ('"0.7us"', '"7"', "a time has a unit"),
        ('"0.7us"', '"2 fortnights"', "unknown unit of time"),
        ('"0.7us"', '"9999999s"', "an hour"),
        ("efficiency = 0.8", "efficiency = 80", r"scale_up\.efficiency is 80: a number from"),
        ("efficiency = 0.8", "efficiency = nan", r"efficiency is nan"),
        ("efficiency = 0.8", "efficiency = true", r"efficiency is True"),
        ("domain = 4", "domain = 3", "neither divides a host's 4 nor"),
        ("domain = 4", "domain = 1000000000", "from 2 to"),
        ("hosts = 6", "hosts = 0", "hosts is 0: a whole number from 1"),
        ("hosts = 6", "hosts = 6.5", "hosts is 6.5"),
        ("hosts = 6", "hosts = 6\ngpus = 25", "6 hosts of 4 have 24"),
        ("hosts = 6", "gpus = 25", "25 GPUs do not fill hosts of 4: 24 or 28 would"),
        ("gpus_per_host = 4", "", "no gpus_per_host: add one"),
        ("sockets = 2", "sockets = 3", "does not divide a host's 4 GPUs"),
        ("switches = 2", "switches = 3", "divides a host's 4 GPUs"),
        ("planes = 2", "serves = [0, 1]", "names a rail from 0 to 1 for each of a host's 4 GPUs"),
        ("planes = 2", "serves = [0, 0, 0, 0]\nrails = 2", "leaves a rail that no GPU uses"),
        ("planes = 2", "at = [0, 7]", "from 0 to 1"),
        ("planes = 2", "at = [0]", "1 places for 2 rails"),
        ("planes = 2", 'at = "left"', "a list of whole numbers"),
        ("count = 2", "count = 6", "count is 6, which does not divide over 4 rails"),
        ('wiring = "rail"', 'wiring = "star"', "rail or tor would work"),
        ('wiring = "rail"', "", r"\[network\] has no wiring: add one"),
        ('wiring = "rail"', 'wiring = "tor"\nisolated_rails = true', "needs wiring rail"),
        ("uplinks = 2", "uplinks = 2\nradix = 2", "pods of up to"),
        ("uplinks = 2", "uplinks = 2\nhosts_per_pod = 4", "a multiple of hosts_per_leaf"),
        ("oversubscription = 1.5", "oversubscription = 0", "from 0.1 to 1000"),
        ("share = 0.7", "share = 0.8", "add up to 1.1"),
        ("share = 0.25", "share = 1", "share is 1: a number from 0 to 0.999"),
        ('of = "leaf"', 'of = "laef"', "'laef'.*leaf"),
        ('of = "leaf"', 'of = "nic_rx host 9 rail 1"', "nic_rx host 0 rail 0 to nic_rx host 5"),
        ('of = "leaf"', "", r"\[background\] has no of: add one"),
        ('attach = "shared"', 'attach = "own"', "storage.bandwidth is 0"),
        ('name = "lab"', 'name = "lab"\nname = "lab"', "not TOML"),
        ('name = "lab"', 'name = "' + "x" * 300 + '"', "1 to 200"),
        ('name = "lab"', "name = 99999999999999999999999999", "a text of"),
        ('name = "lab"', "name = 0x" + "f" * 5000, "a text of"),
        ('name = "lab"', "name = " + "9" * 5000, "not TOML"),
        ('name = "lab"', "name = 1979-05-27", "a text of"),
        ('name = "lab"', "a = " + "[" * 5000 + "]" * 5000, "not TOML"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_sentence_with_file_and_key(tmp_path, old, new, said):
    assert old in WHOLE
    path = tmp_path / "lab.toml"
    path.write_text(WHOLE.replace(old, new, 1))
    with pytest.raises(BadFabric) as caught:
        load(path)
    text = str(caught.value)
    assert text.startswith(str(path)[:200] + ": ")
    assert re.search(said, text), text
    assert "\n" not in text
    assert len(text) < 500 + len(str(path))


def test_a_value_where_a_table_should_be():
    with pytest.raises(BadFabric, match=r"scale_up is no table: write \[scale_up\]"):
        load('name = "x"\ngpus_per_host = 1\nscale_up = 3\n')
    with pytest.raises(BadFabric, match=r"write \[\[traffic\]\]"):
        load('name = "x"\ngpus_per_host = 1\n[traffic]\nname = "a"\n')
    with pytest.raises(BadFabric, match=r"scale_up\.domain is a table"):
        load('name = "x"\ngpus_per_host = 1\n[scale_up.domain]\nname = "a"\n')


def test_parts_that_nothing_joins():
    alone = 'name = "x"\ngpus_per_host = 8\nhosts = 2\n'
    with pytest.raises(BadFabric, match="nothing joins a host's 8 GPUs"):
        load(alone)
    pcie = alone + '[pcie]\nbandwidth = "32GB/s"\n'
    with pytest.raises(BadFabric, match="nothing joins the 2 hosts"):
        load(pcie)
    with pytest.raises(BadFabric, match=r"add \[nic\]"):
        load(pcie + '[network]\nwiring = "tor"\nhosts_per_leaf = 2\n')
    whole = pcie + '[nic]\ncount = 1\nbandwidth = "100Gb/s"\n[network]\nwiring = "tor"\n'
    assert load(whole + "hosts_per_leaf = 2\n").rails == 1
    with pytest.raises(BadFabric, match="no radix"):
        load(whole)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        load(tmp_path / "none.toml")
    with pytest.raises(UsageError, match="a directory"):
        load(str(tmp_path) + "/")
    (tmp_path / "bin.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="UTF-8"):
        load(tmp_path / "bin.toml")
    (tmp_path / "big.toml").write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(UsageError, match="at most"):
        load(tmp_path / "big.toml")
    with pytest.raises(UsageError, match=r"not a path|embedded null"):
        load("a\x00/b.toml")


def test_unknown_names_say_which_there_are():
    with pytest.raises(UsageError, match="h100 or h20 or h800"):
        load("h10")
    with pytest.raises(UsageError, match="gb200-nvl72"):
        load("nvl72")
    with pytest.raises(UsageError) as caught:
        load("zzzz")
    assert all(name in str(caught.value) for name in presets())


def test_a_preset_is_a_file_that_can_be_changed(tmp_path):
    from importlib import resources

    text = (resources.files("retime.replay.fabric") / "presets/h100.toml").read_text()
    path = tmp_path / "mine.toml"
    path.write_text(text.replace('"450GB/s"', '"900GB/s"'))
    assert load(str(path), gpus=64).scale_up.link.bandwidth_bytes_per_s == 900e9
    assert load(text, gpus=64) == preset("h100", 64)


VALUES = st.one_of(
    st.integers(-(2**70), 2**70), st.floats(), st.booleans(), st.text(max_size=12),
    st.sampled_from(["1GB/s", "400Gb/s", "1us", "switch", "rail", "tor", "full", "1e308GB/s"]),
    st.lists(st.integers(-5, 5), max_size=9),
    st.sampled_from([1, 2, 3, 4, 7, 8, 0, -1, 10**6, 0.5]),
)  # fmt: skip


def _written(value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return (
            '"' + "".join(f"\\U{ord(c):08x}" for c in value if not 0xD800 <= ord(c) < 0xE000) + '"'
        )
    if isinstance(value, list):
        return "[" + ", ".join(map(_written, value)) + "]"
    if isinstance(value, float):
        return repr(value) if value == value and abs(value) != float("inf") else "nan"
    return str(value)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_hostile_values_give_a_fabric_or_one_sentence(data):
    lines = WHOLE.splitlines()
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(lines) - 1))
        if " = " in lines[at]:
            lines[at] = lines[at].split(" = ")[0] + " = " + _written(data.draw(VALUES))
        elif data.draw(st.booleans()):
            del lines[at]
    gpus = data.draw(st.sampled_from([None, 4, 24]))
    said = ""
    try:
        fabric = load("\n".join(lines) + "\n", gpus=gpus)
        assert isinstance(fabric, Fabric)
        assert gpus is None or fabric.gpus >= gpus
    except UsageError as e:
        said = str(e)
    assert "\n" not in said
    assert len(said) < 600


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=200))
def test_any_text_gives_a_fabric_or_one_sentence(text):
    with pytest.raises(UsageError):
        load(text + "\n")


@pytest.mark.parametrize(
    "text", ["\n[a" + ".a" * 50_000 + "]\nb = 1", "\na" + ".a" * 50_000 + "=1"]
)
def test_tables_in_tables_without_end_are_refused_before_they_are_parsed(text):
    # Parsing takes the square of the depth: minutes for a file of 100 kB.
    with pytest.raises(BadFabric, match="more than 200 dots in line 2"):
        load(text)
