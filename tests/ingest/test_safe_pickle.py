"""Strangers' pickles and torch files: what is read comes out exactly, nothing of it ever runs."""

import collections
import io
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from retime.ingest.errors import Damaged, UnusableInput
from retime.ingest.pickles import safe_pickle, torchfile
from retime.ingest.source import LocalFile, Source
from retime.ingest.sources import find_sources

PLAIN = [
    None, True, False, 0, 255, 256, 65536, -3, -(2**31), 2**31, 2**70, 10**30, 1.5, float("inf"),
    3 + 4j, "", "x" * 300, "é\U0001f600", b"\xff\x00", b"y" * 300, [], {}, (), (1,), (1, 2, (3,)),
    {"a": [1, {"b": None}]}, {(1, 2): 3}, {1, 2}, frozenset({3}),
    collections.OrderedDict(a=1, b=2), collections.Counter("abca"),
    collections.defaultdict(list, {1: [2]}), collections.defaultdict(int, {"n": 1}),
]  # fmt: skip
ARRAYS = [
    np.arange(6).reshape(2, 3), np.zeros((0, 3)), np.array([True, False]), np.array(5),
    np.arange(6.0, dtype=">f4").reshape(2, 3).T,
    np.array([1], np.float16), np.array([2**63], np.uint64),
]  # fmt: skip


@pytest.mark.parametrize("protocol", range(6))
def test_plain_values_of_every_protocol_come_back(protocol):
    assert safe_pickle.loads(pickle.dumps(PLAIN, protocol), name="x") == PLAIN


@pytest.mark.parametrize("protocol", range(6))
def test_numpy_numbers_and_arrays_come_back_as_plain_read_only_ones(protocol):
    scalars = [np.float32(1.5), np.int64(4), np.bool_(True)]
    got = safe_pickle.loads(pickle.dumps(scalars, protocol), name="x")
    assert [(type(v), v) for v in got] == [(float, 1.5), (int, 4), (bool, True)]
    for array in ARRAYS:
        # The second is the first, by way of the memo.
        a, b = safe_pickle.loads(pickle.dumps([array, array], protocol), name="x")
        assert a is b
        assert not a.flags.writeable
        assert (a.dtype, a.shape) == (array.dtype.newbyteorder("="), array.shape)
        assert (a == array).all()


def test_the_real_pickles_are_what_python_reads(retime_traces):
    paths = [*retime_traces.glob("moe/**/*.pkl"), *retime_traces.glob("flight_recorder/**/_dump_*")]
    assert len(paths) == 6 + 32
    for path in paths:
        data = path.read_bytes()
        assert safe_pickle.loads(data, name=path.name) == pickle.loads(data)


class Calls:
    """Pickles as a call of a function."""

    def __init__(self, what, *args):
        self.call = what, args

    def __reduce__(self):
        return self.call


def exploded(*_):
    raise AssertionError("code of the pickle ran")


def system(protocol, path):
    return pickle.dumps(Calls(__import__("os").system, f"touch {path}"), protocol)


@pytest.mark.parametrize("protocol", range(6))
def test_os_system_is_refused_by_name_and_does_not_run(protocol, tmp_path):
    mark = tmp_path / "ran"
    with pytest.raises(UnusableInput, match=r"^evil\.pkl at byte \d+: .*(posix|nt)\.system") as e:
        safe_pickle.loads(system(protocol, mark), name="evil.pkl")
    assert e.value.path == "evil.pkl"
    assert not mark.exists()


def text(value: str) -> bytes:
    return b"\x8c" + bytes([len(value)]) + value.encode()


def named(module: str, name: str) -> bytes:
    return text(module) + text(name) + b"\x93"


NESTED = pickle.dumps({"a": [collections.OrderedDict(b=Calls(eval, "exploded()"))]})
HOSTILE = {
    "eval": (pickle.dumps(Calls(eval, "exploded()")), "builtins.eval"),
    "a nested reduce": (NESTED, "builtins.eval"),
    "a path of attributes": (b"\x80\x04" + named("os", "path.join") + b".", "os.path.join"),
    "getattr": (b"cbuiltins\ngetattr\n(cbuiltins\nset\nVpop\ntR.", "builtins.getattr"),
    "an instance": (b"(S'x'\nios\nsystem\n.", "os.system"),
    "an object": (b"(cos\nsystem\nS'x'\no.", "os.system"),
    "new": (b"\x80\x02csubprocess\nPopen\n)\x81.", "subprocess.Popen"),
    "copyreg": (b"ccopy_reg\n_reconstructor\n.", "copy_reg._reconstructor"),
    "numpy objects": (
        b"\x80\x02cnumpy\ndtype\nX\x02\x00\x00\x00O8\x89\x88\x87R.",
        "elements that are not plain numbers",
    ),
    "a type as a value": (b"cbuiltins\nint\n.", "builtins.int"),
    "a type's call": (b"cbuiltins\nlist\n(K\x05tR.", "calls list"),
    "a factory": (b"ccollections\ndefaultdict\n(cnumpy\nndarray\ntR.", "factory"),
    "a global as a global's name": (b"\x80\x04N" + text("x") + b"\x93.", "global without a name"),
    "an extension": (b"\x80\x02\x82\x07.", "extension 7"),
    "a wide extension": (b"\x80\x02\x84\xff\xff\xff\x7f.", "extension 2147483647"),
    "a persistent id": (b"Pname\n.", "outside itself"),
    "a binary persistent id": (b"K\x01Q.", "outside itself"),
    "a buffer": (b"\x80\x05\x97.", "buffer outside"),
    "state of a list": (b"]}b.", "sets the state"),
    "state with a method": (b"}(S'__setstate__'\nK\x01u]b.", "sets the state"),
    "call of a text": (b"S'x'\n)R.", "no known type"),
    "a huge memo index": (b"Nr\xff\xff\xff\xff.", "4294967295"),
    "a huge memo index in text": (b"Np99999999999999\n.", "99999999999999"),
    "a memo that was not noted": (b"Nr\x05\x00\x00\x00h\x02.", "not noted"),
    "a long integer": (b"\x8b\xff\xff\xff\x7f.", "integer of 2147483647 bytes"),
    "a negative length": (b"\x8b\xff\xff\xff\xff.", "integer of -1 bytes"),
    "protocol": (b"\x80\x63N.", "protocol 99"),
    "an unknown opcode": (b"\xfe.", "unknown opcode"),
    "an empty stack": (b"0.", "damaged"),
    "values left over": (b"NN.", "left over"),
    "an unhashable key": (b"}(]K\x01u.", "key"),
    "a key of arrays": (b"}((NtK\x01u(ttK\x01u.", "damaged"),
    "kwargs": (b"\x80\x04" + named("builtins", "set") + b"){" + b"\x92.", "unknown opcode"),
    "a list in itself": (b"]q\x00h\x00a.", "inside itself"),
    "nested lists": (b"](" * 2000 + b"e" * 2000 + b".", "nested"),
    "nested tuples": (b")" + b"\x85" * 200_000 + b".", "nested"),
    "nested tuples as a key": (b"})" + b"\x85" * 200_000 + b"Ns.", "nested"),
    "shared tuples as a key": (b"})" + b"2\x86" * 40 + b"Ns.", "nested too deep"),
    "a long tuple as a key": (b"}(" + b"K\x01" * 2000 + b"tNs.", "too many parts"),
    "an integer as text": (b"I" + b"9" * 5000 + b"\n.", "too long"),
    "a wide key": (b"}\x8a\x0a" + b"\1" * 10 + b"Ns.", "64 bits"),
}  # fmt: skip


@pytest.mark.parametrize("which", HOSTILE)
def test_hostile_pickles_are_refused(which):
    data, told = HOSTILE[which]
    with pytest.raises(UnusableInput, match=told):
        safe_pickle.loads(data, name="evil.pkl")


def test_exponential_sharing_is_counted_as_often_as_it_is_reached():
    value: list = []
    for _ in range(20):
        value = [value, value]
    data = pickle.dumps(value)
    got = safe_pickle.loads(data, name="x")
    assert safe_pickle.check_size(got, name="x") == 2**21 - 1
    for _ in range(10):
        value = [value, value]
    with pytest.raises(UnusableInput, match="unfolds"):
        safe_pickle.loads(pickle.dumps(value), name="x")


def test_colliding_keys_are_refused_and_ordinary_ones_are_not(monkeypatch):
    many = {(i, j): i for i in range(300) for j in range(100)}
    assert safe_pickle.loads(pickle.dumps([many, many.copy()]), name="x") == [many, many]
    monkeypatch.setattr("retime.ingest.pickles.machine.hash", lambda key: 1, raising=False)
    with pytest.raises(UnusableInput, match="made to collide"):
        safe_pickle.loads(pickle.dumps(many), name="x")


@pytest.mark.parametrize(
    "data",
    [
        b"X\xff\xff\xff\xff",
        b"\x8d" + struct.pack("<Q", 2**63) + b"x",
        b"\x8e" + struct.pack("<Q", 2**64 - 1),
        b"\x96" + struct.pack("<Q", 4 << 30),
        b"\x80\x04\x95" + struct.pack("<Q", 4 << 30) + b"N.",
        b"B\0\0\0\x80",
        b"]",
        b"cos\nsys",
        b"",
    ],
)
def test_lengths_beyond_the_data_are_a_cut(data):
    with pytest.raises(Damaged, match="cut"):
        safe_pickle.loads(data, name="x")


def test_every_cut_and_every_flipped_byte_ends_in_a_value_or_a_refusal():
    data = pickle.dumps([PLAIN, ARRAYS], 4)
    for n in range(len(data)):
        with pytest.raises(Damaged):
            safe_pickle.loads(data[:n], name="x")
    refused = 0
    for n in range(len(data)):
        for flip in (0x01, 0x40, 0xFF):
            bad = data[:n] + bytes([data[n] ^ flip]) + data[n + 1 :]
            try:
                safe_pickle.loads(bad, name="x")
            except UnusableInput:
                refused += 1
    assert refused > len(data) // 2


def test_text_that_is_not_utf8_is_replaced():
    assert safe_pickle.loads(b"X\x02\x00\x00\x00a\xff.", name="x") == "a�"


def test_bytes_behind_the_end_are_left_where_they_are():
    data = pickle.dumps(1) + pickle.dumps(2)
    first, end = safe_pickle.loads_at(data, 0, name="x")
    assert (first, safe_pickle.loads_at(data, end, name="x")) == (1, (2, len(data)))


# Files of torch.save, made as its writer makes them: stored members NAME/data.pkl, byteorder,
# data/KEY, version; a tensor is a call of torch._utils._rebuild_tensor_v2 with a persistent id.


def number(n: int) -> bytes:
    return b"\x8a\x08" + struct.pack("<q", n)


def tensor(key="0", n=6, size=(2, 3), stride=(3, 1), offset=0, kind="FloatStorage") -> bytes:
    shape = b"(" + b"".join(map(number, size)) + b"t"
    steps = b"(" + b"".join(map(number, stride)) + b"t"
    pid = b"(" + text("storage") + f"ctorch\n{kind}\n".encode() + text(key) + text("cpu")
    pid += number(n) + b"tQ"
    return (
        b"ctorch._utils\n_rebuild_tensor_v2\n(" + pid + number(offset) + shape + steps
        + b"\x89ccollections\nOrderedDict\n)RtR"
    )  # fmt: skip


SIX = np.arange(6, dtype="<f4").tobytes()


def torch_zip(path: Path, pkl: bytes, members=(("data/0", SIX),), **how) -> Source:
    with zipfile.ZipFile(path, "w", **how) as z:
        z.writestr("it/data.pkl", b"\x80\x02" + pkl + b".")
        z.writestr("it/byteorder", "little")
        for name, data in members:
            z.writestr(f"it/{name}", data)
        z.writestr("it/version", "3\n")
    return Source(str(path), path.stat().st_size, LocalFile(str(path)), path)


def test_a_tensor_is_a_read_only_view_of_its_storage(tmp_path):
    got = torchfile.load(torch_zip(tmp_path / "a.pt", tensor()))
    assert got.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert got.dtype == np.float32
    assert not got.flags.writeable
    turned = tensor(size=(3, 1), stride=(1, 3), offset=3)
    assert torchfile.load(torch_zip(tmp_path / "b.pt", turned)).tolist() == [[3], [4], [5]]


@pytest.mark.parametrize(
    ("kwargs", "told"),
    [
        ({"n": 7}, "holds fewer"),
        ({"n": 1 << 62}, "holds fewer"),
        ({"offset": 1}, "larger than its storage"),
        ({"offset": -1}, "impossible shape"),
        ({"stride": (4, 1)}, "larger than its storage"),
        ({"stride": (-3, 1)}, "impossible shape"),
        ({"size": (1 << 30, 1 << 30), "stride": (0, 0)}, "larger than its storage"),
        ({"size": (2, 3), "stride": (1,)}, "impossible shape"),
        ({"key": "../0"}, "no member"),
        ({"kind": "QInt8Storage"}, r"torch\.QInt8Storage"),
    ],
)
def test_a_tensor_outside_its_storage_is_refused(tmp_path, kwargs, told):
    with pytest.raises(UnusableInput, match=told):
        torchfile.load(torch_zip(tmp_path / "a.pt", tensor(**kwargs)))


def test_a_poisoned_member_does_not_run(tmp_path):
    mark = tmp_path / "ran"
    poison = pickle.dumps([1, Calls(__import__("os").system, f"touch {mark}")], 2)[2:-1]
    source = torch_zip(tmp_path / "a.pt", poison)
    with pytest.raises(UnusableInput, match=r"(posix|nt)\.system, which is not read"):
        torchfile.load(source)
    assert not mark.exists()


def test_compressed_doubled_and_damaged_members_are_refused(tmp_path):
    bomb = torch_zip(tmp_path / "a.pt", tensor(n=1 << 20), [("data/0", bytes(4 << 20))],
                     compression=zipfile.ZIP_DEFLATED)  # fmt: skip
    with pytest.raises(UnusableInput, match="larger than itself"):
        torchfile.load(bomb)
    with pytest.warns(UserWarning, match="Duplicate"):
        twice = torch_zip(tmp_path / "b.pt", tensor(), [("data/0", SIX), ("data/0", SIX)])
    with pytest.raises(UnusableInput, match="two members of one name"):
        torchfile.load(twice)
    path = tmp_path / "c.pt"
    torch_zip(path, tensor())
    path.write_bytes(path.read_bytes().replace(SIX, SIX[::-1]))
    with pytest.raises(Damaged, match="checksum"):
        torchfile.load(Source(str(path), path.stat().st_size, LocalFile(str(path)), path))


def test_every_flipped_byte_of_a_torch_file_ends_in_a_value_or_a_refusal(tmp_path):
    good = tmp_path / "a.pt"
    torch_zip(good, tensor())
    data = good.read_bytes()
    bad = tmp_path / "b.pt"
    source = Source(str(bad), len(data), LocalFile(str(bad)), bad)
    refused = 0
    for n in range(len(data)):
        bad.write_bytes(data[:n] + bytes([data[n] ^ 0xFF]) + data[n + 1 :])
        try:
            torchfile.load(source)
        except UnusableInput:
            refused += 1
    assert refused > len(data) // 4


def test_what_torch_saves_comes_back(tmp_path):
    torch = pytest.importorskip("torch")
    kinds = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16,
             torch.float16, torch.float32, torch.float64, torch.bool, torch.complex64)  # fmt: skip
    matrix = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    tensors = {str(k): torch.tensor([1, 0, 2]).to(k) for k in kinds}
    tensors |= {"turned": matrix.T[1:], "one": torch.tensor(5), "none": torch.zeros(0, 3)}
    told = {"dtype": torch.int32, "device": torch.device("cuda:1"), "size": matrix.shape}
    brain = torch.tensor([1.0, -2.5, 2.0**100], dtype=torch.bfloat16)
    path = tmp_path / "a.pt"
    torch.save({**tensors, **told, "bf": brain, "p": torch.nn.Parameter(matrix)}, path)
    got = torchfile.load(Source(str(path), path.stat().st_size, LocalFile(str(path)), path))
    for name, want in tensors.items():
        assert got[name].dtype == want.numpy().dtype
        assert got[name].shape == want.numpy().shape
        assert (got[name] == want.numpy()).all()
    assert (got["bf"].dtype, got["bf"].tolist()) == (np.float32, [1.0, -2.5, 2.0**100])
    assert got["p"].tolist() == matrix.tolist()
    assert [got[k] for k in told] == ["torch.int32", "cuda:1", (3, 4)]
    old = io.BytesIO()
    torch.save([1], old, _use_new_zipfile_serialization=False)
    path.write_bytes(old.getvalue())
    with pytest.raises(UnusableInput, match=r"save it again"):
        torchfile.load(Source(str(path), path.stat().st_size, LocalFile(str(path)), path))


def test_a_torch_file_is_one_source_and_another_zip_is_opened(tmp_path):
    torch_zip(tmp_path / "a.pt", tensor())
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as z:
        z.writestr("run/data.pkl", "x")
        z.writestr("run2/version", "3")
        z.write(tmp_path / "a.pt", "inner.pt")
    told = []
    found = find_sources([str(tmp_path)], lambda name, problem: told.append(problem.code))
    names = [s.name.removeprefix(f"{tmp_path}/") for s in found]
    assert names == ["a.pt", "b.zip!inner.pt", "b.zip!run/data.pkl", "b.zip!run2/version"]
    assert told == []
