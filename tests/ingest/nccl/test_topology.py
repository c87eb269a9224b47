"""NCCL's topology and graph XML: written as `xml.cc` and `topo.cc` do, and the real files."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from retime.ingest import detect
from retime.ingest.errors import UnusableInput
from retime.ingest.nccl import topology
from retime.ingest.nccl.topology_devices import pci_bandwidth
from retime.ingest.source import LocalFile, Source


def source_of(path: Path) -> Source:
    return Source(str(path), path.stat().st_size, LocalFile(str(path)), path)


def rows_of(source: Source) -> tuple[list[dict], dict[str, dict]]:
    """(rows of topology without the null columns, problems by code)."""
    rows: dict[str, list[dict]] = {"topology": [], "problems": []}
    for table, batch in topology.parse(source):
        rows[table] += batch.to_pylist()
    found = [{k: v for k, v in r.items() if v is not None} for r in rows["topology"]]
    return found, {r["code"]: r for r in rows["problems"]}


def read(tmp_path: Path, text: str | bytes) -> tuple[list[dict], dict[str, dict]]:
    path = tmp_path / "topo.xml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return rows_of(source_of(path))


HOST = """<system version="1">
  <cpu host_hash="0x1f2e" numaid="1" affinity="ff" arch="x86_64" vendor="GenuineIntel">
    <pci busid="0000:0a:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
      <pci busid="0000:0f:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="8">
        <gpu dev="0" sm="90" rank="4" gdr="1">
          <nvlink target="0000:1d:00.0" count="4" tclass="0x068000"/>
          <nvlink target="0000:2f:00.0" count="2" tclass="0x030200"/>
          <c2c bw="44000" count="10"/>
        </gpu>
      </pci>
      <nic>
        <net name="mlx5_0" dev="0" speed="400000" port="1" latency="0.0" guid="0x1" rail="3"
             plane="1"/>
        <net name="mlx5_1" dev="1" speed="-1" port="2"/>
      </nic>
    </pci>
  </cpu>
  <cpu numaid="-1">
    <pci busid="0000:2f:00.0" class="0x030200" link_speed="Unknown" link_width="255">
      <gpu dev="1" sm="90" rank="-1" gdr="1"/>
    </pci>
  </cpu>
</system>
"""


def test_a_host_with_its_devices_and_links(tmp_path):
    rows, odd = read(tmp_path, HOST)
    first = {"host": "0x1f2e", "numa": 1, "source": "nccl-topology"}
    link = {**first, "device": "gpu0", "rank": 4}
    assert rows == [
        {"kind": "cpu", "device": "cpu1", **first},
        {"kind": "pci", "device": "0000:0a:00.0", "peer": "cpu1", "via": "PCIe", "count": 16,
         "bandwidth_bytes_per_s": 63_015_384_615, **first},
        {"kind": "pci", "device": "0000:0f:00.0", "peer": "0000:0a:00.0", "via": "PCIe",
         "count": 8, "bandwidth_bytes_per_s": 15_753_846_154, **first},
        {"kind": "gpu", "device": "gpu0", "peer": "0000:0f:00.0", "rank": 4, **first},
        {"kind": "nic", "device": "mlx5_0", "peer": "0000:0a:00.0", "rail": 3, "plane": 1,
         "bandwidth_bytes_per_s": 50_000_000_000, **first},
        {"kind": "nic", "device": "mlx5_1:2", "peer": "0000:0a:00.0", **first},
        {"kind": "cpu", "device": "cpu-1", "source": "nccl-topology"},
        {"kind": "pci", "device": "0000:2f:00.0", "peer": "cpu-1", "via": "PCIe", "count": 255,
         "source": "nccl-topology"},
        {"kind": "gpu", "device": "gpu1", "peer": "0000:2f:00.0", "source": "nccl-topology"},
        {"kind": "nvlink", "peer": "0000:1d:00.0", "count": 4, "via": "NVLink",
         "bandwidth_bytes_per_s": 100_000_000_000, **link},
        {"kind": "nvlink", "peer": "gpu1", "count": 2, "via": "NVLink",
         "bandwidth_bytes_per_s": 50_000_000_000, **link},
        {"kind": "c2c", "peer": "cpu1", "count": 10, "via": "NVLink-C2C",
         "bandwidth_bytes_per_s": 440_000_000_000, **link},
    ]  # fmt: skip
    assert odd["pci_speed_unknown"]["count"] == 1
    assert odd["rank_in_communicator"]["severity"] == "info"


@pytest.mark.parametrize(
    ("speed", "width", "expected"),
    [
        ("2.5 GT/s PCIe", 1, 250_000_000),
        ("5.0 GT/s PCIe", 16, 8_000_000_000),
        ("8 GT/s", 16, 15_753_846_154),
        ("16 GT/s", 16, 31_507_692_308),
        ("64.0 GT/s PCIe", 16, 121_000_000_000),
        ("Unknown speed", 16, None),
        ("16 GT/s", None, None),
        ("16 GT/s", 0, None),
        ("", 16, None),
    ],
)
def test_bandwidth_of_pci_links(speed, width, expected):
    """16 lanes of 16e9 bit/s at 128/130 are 31,507,692,307.7 bytes/s; and so on."""
    assert pci_bandwidth(speed, width) == expected


def test_links_of_unknown_speed_have_no_bandwidth(tmp_path):
    rows, odd = read(
        tmp_path,
        '<system version="1"><cpu numaid="0"><pci busid="a"><gpu dev="0" sm="75" rank="0">'
        '<nvlink target="b" count="2"/></gpu></pci><pci busid="b"><gpu dev="1" gcn="gfx942" '
        'rank="1"><xgmi target="a" count="1"/></gpu></pci></cpu></system>',
    )
    links = [r for r in rows if r["kind"] in ("nvlink", "xgmi")]
    ends = [(r["device"], r["peer"], r["peer_rank"]) for r in links]
    assert ends == [("gpu0", "gpu1", 1), ("gpu1", "gpu0", 0)]
    assert [r.get("bandwidth_bytes_per_s") for r in links] == [None, 64_000_000_000]
    assert odd["link_speed_unknown"]["count"] == 1


def test_a_graph_gives_each_hop_of_its_channels(tmp_path):
    """As search.cc writes it: a ring between NICs, one inside the host, and a tree."""
    rows, _ = read(
        tmp_path,
        """<graphs version="1">
  <graph id="0" pattern="4" crossnic="0" nchannels="2" speedintra="20" speedinter="12.5"
         typeintra="NVL" typeinter="PIX" samechannels="0">
    <channel><net dev="1"/><gpu dev="0" rank="0"/><gpu dev="1" rank="1"/><net dev="1"/></channel>
    <channel><gpu dev="0" rank="0"/><gpu dev="2" rank="2"/><gpu dev="1" rank="1"/></channel>
  </graph>
  <graph id="1" pattern="1" speedintra="3" typeintra="SYS">
    <channel><gpu dev="0" rank="0"/><gpu dev="1" rank="1"/></channel>
  </graph>
</graphs>""",
    )
    got = [(r["kind"], r["channel"], r.get("device"), r.get("rank"), r.get("peer_rank"), r["via"],
            r["bandwidth_bytes_per_s"] // 10**6) for r in rows]  # fmt: skip
    assert got == [
        ("ring", 0, "net1", 0, None, "PIX", 12500),
        ("ring", 0, None, 0, 1, "NVL", 20000),
        ("ring", 0, "net1", 1, None, "PIX", 12500),
        ("ring", 1, None, 0, 2, "NVL", 20000),
        ("ring", 1, None, 2, 1, "NVL", 20000),
        ("ring", 1, None, 1, 0, "NVL", 20000),
        ("tree", 0, None, 0, 1, "SYS", 3000),
    ]


BOMB = """<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "bbbb"><!ENTITY c "&b;&b;&b;&b;">]>
<system version="1"><cpu numaid="&c;"/></system>"""
OUTSIDE = (
    """<!DOCTYPE a SYSTEM "file:///etc/passwd"><system version="1"><cpu numaid="0"/></system>"""
)


@pytest.mark.parametrize("text", [BOMB, OUTSIDE])
def test_document_types_and_entities_are_refused(tmp_path, text):
    assert topology.looks_like(text.encode(), "topo.xml")
    with pytest.raises(UnusableInput, match="refused"):
        read(tmp_path, text)


def test_deep_nesting_and_many_attributes_are_refused(tmp_path):
    deep = '<system version="1">' + '<pci busid="a">' * 100_000
    with pytest.raises(UnusableInput, match="nested deeper than 64"):
        read(tmp_path, deep)
    many = " ".join(f'a{n}="1"' for n in range(100))
    with pytest.raises(UnusableInput, match="more than 64 attributes"):
        read(tmp_path, f'<system version="1"><cpu {many}/></system>')


def test_huge_values_are_cut_and_strange_ones_null(tmp_path):
    rows, odd = read(
        tmp_path,
        f'<system version="1"><cpu numaid="9999999999999"><pci busid="{"f" * 1_000_000}" '
        'link_speed="1e400 GT/s" link_width="99999999999999999999"><gpu dev="x" rank="99999999" '
        'sm="nan"><nvlink target="q" count="-3"/></gpu></pci><net name="" speed="1e9" '
        'rail="99999999999"/></cpu></system>',
    )
    assert [len(r["device"]) for r in rows if r["kind"] == "pci"] == [256]
    assert all("bandwidth_bytes_per_s" not in r and "rank" not in r for r in rows)
    assert odd["long_value"]["count"] == 1
    assert odd["value_out_of_range"]["severity"] == "warning"


def test_xml_that_breaks_off_keeps_what_came_before(tmp_path):
    rows, odd = read(tmp_path, HOST[: HOST.index("<nic>")])
    assert [r["kind"] for r in rows] == ["cpu", "pci", "pci", "gpu", "nvlink", "nvlink", "c2c"]
    assert odd["xml_broken"]["severity"] == "lost"


@pytest.mark.parametrize(
    "text",
    [
        "<system version='1'><cpu",
        "<system version='1'/>",
        '<?xml version="1.0" encoding="x-no"?><system version="1"><cpu/></system>',
        "<graphs version='1'><graph id='0'/></graphs>",
    ],
)
def test_what_holds_no_device_is_refused(tmp_path, text):
    with pytest.raises(UnusableInput):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (HOST.encode(), True),
        (b"\xef\xbb\xbf<!-- licence -->\n" + HOST.encode(), True),
        (b'<graphs version="1">\n <graph id="0">', True),
        (b'Example:\n<system version="1"><cpu numaid="0">', False),
        (b'<svg version="1.1"><graph/></svg>', False),
        (b'<system version="1"><user/></system>', False),
        (b"", False),
    ],
)
def test_only_nccls_xml_looks_like_it(head, expected):
    assert topology.looks_like(head, "a.xml") is expected


KINDS = {"cpu": "cpu", "pci": "pci", "gpu": "gpu", "net": "nic", "nvlink": "nvlink", "xgmi": "xgmi"}


def test_every_real_topology_has_a_row_for_each_element(retime_traces):
    files = sorted((retime_traces / "topo").rglob("*.xml"))
    assert len(files) == 10
    for path in files:
        source = source_of(path)
        assert detect.detect(source) == "nccl-topology"
        rows, odd = rows_of(source)
        elements = [KINDS[e.tag] for e in ET.parse(path).iter() if e.tag in KINDS]
        # A template names GPUs and NICs by their PCI class only: 0x0302 and 0x0200, 0x0207.
        leaves = [e for e in ET.parse(path).iter("pci") if not len(e)]
        elements += ["gpu" for e in leaves if e.get("class", "")[:6] in ("0x0302", "0x1200")]
        elements += ["nic" for e in leaves if e.get("class", "")[:6] in ("0x0200", "0x0207")]
        assert sorted(r["kind"] for r in rows) == sorted(elements), path.name
        assert not {"unknown_element", "pci_speed_unknown", "link_speed_unknown"} & odd.keys()


def test_the_h100_hosts_gpus_reach_450_gb_per_second(retime_traces):
    """18 NVLinks of 25 GB/s each way: NVIDIA's 900 GB/s counts both directions."""
    rows, _ = rows_of(source_of(retime_traces / "topo/oci-hpc/samples/gpu/H100-topology.xml"))
    links = [r for r in rows if r["kind"] == "nvlink"]
    assert [(r["rank"], r["count"]) for r in links[:4]] == [(0, 5), (0, 5), (0, 4), (0, 4)]
    per_gpu: dict[int, int] = {}
    for r in links:
        per_gpu[r["rank"]] = per_gpu.get(r["rank"], 0) + r["bandwidth_bytes_per_s"]
    assert per_gpu == dict.fromkeys(range(8), 450_000_000_000)


def test_the_rocm_model_links_every_gpu_with_every_other(retime_traces):
    models = retime_traces / "topo/rccl/tools/topo_expl/models"
    rows, _ = rows_of(source_of(models / "topo_8p_940.xml"))
    links = {(r["rank"], r["peer_rank"]) for r in rows if r["kind"] == "xgmi"}
    assert links == {(a, b) for a in range(8) for b in range(8) if a != b}
    assert {r["bandwidth_bytes_per_s"] for r in rows if r["kind"] == "nic"} == {50_000_000_000}


def test_devices_of_a_template_are_told_by_their_pci_class(retime_traces):
    # AWS p4d.24xlarge: 8 A100 and 4 EFA NICs; Azure ND H100 v5: 8 H100 and 8 InfiniBand NICs.
    for name, gpus, nics in (("p4d-24xl-topo.xml", 8, 4), ("ndv5-topo.xml", 8, 8)):
        (path,) = (retime_traces / "topo").rglob(name)
        rows, _ = rows_of(source_of(path))
        found = [r for r in rows if r["kind"] in ("gpu", "nic")]
        assert [r["kind"] for r in found].count("gpu") == gpus
        assert [r["kind"] for r in found].count("nic") == nics
        buses = {r["device"] for r in rows if r["kind"] == "pci"}
        assert all(r["peer"] in buses and r["device"].endswith(r["peer"]) for r in found)
        assert all("numa" in r and "bandwidth_bytes_per_s" not in r for r in found)
