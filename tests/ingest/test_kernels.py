"""What kernels do by their names: real names with their classes, and the table's own order."""

import re
from pathlib import Path

import pytest
from retime.ingest import kernels
from retime.ingest.kernel_names import words

NAMES = Path(__file__).with_name("kernel_names.tsv")


def test_real_names_have_their_classes():
    rows = [line.split("\t") for line in NAMES.read_text(encoding="utf-8").splitlines()[1:]]
    found = [
        (name, kernels.class_of_category()[category], category)
        for name, category in ((row[0], kernels.category_of_kernel(row[0])) for row in rows)
    ]
    wrong = [(got, want[1:]) for got, want in zip(found, rows, strict=True) if list(got) != want]
    assert wrong == []
    assert len(rows) > 400


def test_each_row_decides_its_own_example():
    rows = list(kernels.rows())
    assert [r for r in rows if kernels.row_of_kernel(r.example) != r] == []
    # A name told as communication never comes to the table.
    assert [r for r in rows if kernels.category_of_kernel(r.example) != r.category] == []


def test_every_category_has_one_of_the_public_classes():
    assert kernels.classes() == (
        "gemm", "attention", "elementwise", "reduction", "normalisation", "embedding",
        "optimizer", "communication", "copy", "other", "unknown",
    )  # fmt: skip
    assert {r.category for r in kernels.rows()} <= set(kernels.class_of_category())


@pytest.mark.parametrize(
    ("word", "category"),
    [
        ("gemm", "gemm"),
        ("conv", "conv"),
        ("normalisation", "norm"),
        ("communication", "comm"),
        ("reduction", "reduction"),
        ("other", "other"),
        ("unknown", "unknown"),
        ("gem", None),
    ],
)
def test_a_users_word_is_a_class_or_a_category(word, category):
    assert kernels.category_of_word(word) == category


@pytest.mark.parametrize(
    ("name", "function", "inside", "leaf"),
    [
        (
            "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, A<3> >(B<float>*)",
            "at::native::cat_array_batched_copy", "float, a<3>", "cat_array_batched_copy",
        ),
        # A comparison within a template argument pairs with no angle bracket.
        (
            "std::enable_if<(((8)>(0)))&&T<x>::is, void>::type v::fused_rms_norm_kernel<y>(z)",
            "v::fused_rms_norm_kernel", "y", "rms_norm",
        ),
        ("void n::<unnamed>::f<(int)2, void g<h>(A &)::[lambda() (instance 1)]>(T3)",
         "n::f", "(int)2, void g<h>(a &)::[lambda() (instance 1)]", "f"),
        ("_ZN5aiter32fmha_fwd_hd192_hd128_bf16_causalE.kd",
         "aiter::fmha_fwd_hd192_hd128_bf16_causal", "", "fmha_hd192_hd128_bf16_causal"),
        ("_ZN2ck12_GLOBAL__N_115kernel_moe_gemmINS_8GridwiseELi128ELi16EEEvPf",
         "ck::kernel_moe_gemm", "gridwise", "moe_gemm"),
        ("saxpy(double *, double)", "saxpy", "", "saxpy"),
        ("FusedAddRMSNormKernel", "fused_add_rms_norm_kernel", "", "add_rms_norm"),
        ("Im2d2Col", "im2d2_col", "", "im2d2_col"),
        # Cut off, or no name at all.
        ("void f<A<int", "f", "a<int", "f"),
        ("", "", "", ""),
        ("((((", "", "(((", ""),
        ("a)>b", "a)>b", "", "a_b"),
        ("_Z999999x", "x", "", "x"),
    ],
)  # fmt: skip
def test_names_are_taken_apart(name, function, inside, leaf):
    parts = words(name)
    assert (parts.function, parts.inside.strip(), parts.leaf) == (function, inside, leaf)


def _repeats(tree, within=False):
    """Whether an unbounded repeat lies within another."""
    for op, argument in tree:
        unbounded, inner = False, []
        match str(op):
            case "MAX_REPEAT" | "MIN_REPEAT":
                unbounded, inner = argument[1] > 1000, [argument[2]]
            case "BRANCH":
                inner = argument[1]
            case "SUBPATTERN":
                inner = [argument[-1]]
        if (within and unbounded) or any(_repeats(i, within or unbounded) for i in inner):
            return True
    return False


def test_no_pattern_can_take_long():
    """No repeat within a repeat, none where a search may begin, and no reference back: the time is
    bounded by the length of what is looked at, times itself."""
    for row in kernels.rows():
        bare = row.pattern.strip("/<>")
        for part in kernels.alternatives(bare):
            assert not _repeats(re._parser.parse(part.lstrip("="))), row  # pyright: ignore
            # After `=` a pattern has one place to begin.
            starts = re.match(r"\(*(\?:)?(\[[^\]]*\]|\\w|\.)[*+]", part)
            assert starts is None, row
        assert not re.search(r"\\[1-9]|\.[*+]", row.pattern), row
    assert kernels.category_of_kernel("a_" * 500_000) == "unknown"
    assert kernels.category_of_kernel("chunk_" * 10_000 + "<" * 10_000) is not None


def test_the_words_looked_for_first_lose_no_match():
    names = [line.split("\t")[0] for line in NAMES.read_text(encoding="utf-8").splitlines()]
    for row in kernels.rows():
        with_words, without = kernels._Matcher(row.pattern), kernels._Matcher(row.pattern)
        without._needs = None
        for name in (row.example, *names):
            assert with_words.matches(name) == without.matches(name), (row, name)
