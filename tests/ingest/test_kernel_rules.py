"""Rules that a user gives for kernels: their forms, what is wrong with them, what they move."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from retime.ingest import kernel_rules
from retime.ingest.errors import UsageError
from retime.ingest.schema import TABLES
from retime.ingest.settings import KernelRule


def test_the_last_equals_sign_parts_pattern_and_class():
    assert kernel_rules.parse(["my_.*mlp=gemm", "a=b=Normalisation", "^x$=conv"]) == [
        KernelRule("my_.*mlp", "gemm"),
        KernelRule("a=b", "norm"),
        KernelRule("^x$", "conv"),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mlp", "--set 'mlp' is not of the form PATTERN=CLASS"),
        ("=gemm", "--set '=gemm': a pattern has 1 to 1000 characters"),
        ("a=gem", "--set 'a=gem': no class 'gem'; there are gemm, attention, "),
        ("(=gemm", "--set '(=gemm': '(' is no regular expression: "),
        # Looking behind is what RE2 does without, for the sake of linear time.
        ("(?<=a)b=gemm", "--set '(?<=a)b=gemm': '(?<=a)b' is no regular expression: "),
    ],
)
def test_a_wrong_rule_is_told(text, message):
    with pytest.raises(UsageError) as told:
        kernel_rules.parse([text])
    assert str(told.value).startswith(message)


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_of_rules_is_toml_or_csv(tmp_path):
    rules = [KernelRule("my_mlp", "gemm"), KernelRule("a,b.c", "moe")]
    toml = write(tmp_path / "r.toml", '"my_mlp" = "gemm"\n"a,b.c" = "moe"\n')
    headed = write(tmp_path / "h.toml", '[patterns]\nmy_mlp = "gemm"\n"a,b.c" = "moe"\n')
    comma = write(tmp_path / "r.csv", '# ours\npattern,class\nmy_mlp, gemm\n\n"a,b.c",moe\n')
    assert [kernel_rules.read(p) for p in (toml, headed, comma)] == [rules] * 3


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("r.csv", "a,gemm\nb\n", ":2: 1 fields, not pattern,class"),
        ("r.csv", "a,gemm\nb,gem\n", ":2: no class 'gem'"),
        ("r.csv", "a,gemm\n(,gemm\n", ":2: '(' is no regular expression"),
        ("r.csv", "# nothing\n", ": no patterns in it"),
        ("r.toml", 'a = "gemm"\nb =\n', ": Invalid value (at line 2, column 4)"),
        ("r.toml", 'a = "gemm"\nb = 3\n', ":2: 'b' is not given a text"),
        ("r.toml", 'a = "gemm"\n"\\\\d(" = "gemm"\n', ":2: '\\\\d(' is no regular expression"),
    ],
)
def test_what_is_wrong_in_a_file_is_told_with_its_line(tmp_path, name, text, message):
    path = write(tmp_path / name, text)
    with pytest.raises(UsageError) as told:
        kernel_rules.read(path)
    assert str(told.value).startswith(f"{path}{message}")


def test_a_file_that_cannot_be_read_is_told(tmp_path):
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        kernel_rules.read(tmp_path / "none.csv")
    (tmp_path / "bytes.csv").write_bytes(b"a,gemm\n\xff,gemm\n")
    with pytest.raises(UsageError, match=r"bytes\.csv:2: not UTF-8"):
        kernel_rules.read(tmp_path / "bytes.csv")


def test_the_first_rule_that_finds_a_name_decides():
    rules = kernel_rules.parse(["^b=copy", "[ab]=gemm"])
    assert kernel_rules.of_names(["a1", "b1", "c1", "xb", "a1"], rules) == {
        "a1": "gemm",
        "b1": "copy",
        "xb": "gemm",
    }


def test_a_pattern_that_would_hang_a_backtracking_engine_does_not():
    rules = kernel_rules.parse(["(a*)*(a|b)*c$=gemm"])
    assert kernel_rules.of_names(["a" * 1000], rules) == {}


def test_only_kernels_whose_category_changes_are_named(tmp_path):
    rows = {
        "rank": [0] * 5,
        "event_id": [1, 2, 3, 4, 5],
        "kind": ["kernel", "kernel", "kernel", "host_op", "kernel"],
        "name": ["k1", "k2", "k1", "k3", None],
        "category": ["unknown", "gemm", "unknown", None, None],
        "start_ns": [0] * 5,
        "dur_ns": [1] * 5,
    }
    path = str(tmp_path / "e.parquet")
    pq.write_table(pa.Table.from_batches([TABLES["events"].batch(rows)]), path)
    rules = kernel_rules.parse(["k=gemm"])
    assert kernel_rules.categories({"events": [path]}, rules) == {"k1": "gemm"}
    assert kernel_rules.categories({"events": [path]}, []) == {}
    assert kernel_rules.categories({}, rules) == {}


def test_too_many_lines_are_refused_before_they_are_looked_for(tmp_path, monkeypatch):
    """Each pattern is looked for in each line, and each is made an expression."""
    monkeypatch.setattr(kernel_rules, "rule", None)
    for name, form in (("a.toml", '"k{}" = "gemm"'), ("a.csv", "k{},gemm")):
        path = tmp_path / name
        path.write_text("\n".join(form.format(n) for n in range(12_000)))
        with pytest.raises(UsageError, match="12000 patterns; 1000 are the most"):
            kernel_rules.read(path)
