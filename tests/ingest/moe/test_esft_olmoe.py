"""ESFT's weight logs and OLMoE's pickled counts, the real files against independent readings."""

import json
import pickle
from collections import Counter

import pytest
from retime.ingest.errors import UnusableInput
from retime.ingest.moe import esft, olmoe


@pytest.fixture
def translation(retime_traces):
    return retime_traces / "moe" / "ESFT" / "translation"


@pytest.mark.parametrize("layer", [1, 13, 26])
def test_esft_counts_and_weights_are_those_of_the_file(translation, read, layer):
    path = translation / f"expert_weights_{layer}.txt"
    tokens, weights, passes = Counter(), Counter(), 0
    for line in path.read_text().splitlines():
        ids, values = line.split("\t\t")
        for e, w in zip(ids.split("\t"), values.split("\t"), strict=True):
            tokens[passes, int(e)] += 1
            weights[passes, int(e)] += float(w)
        passes += 1
    got = read(esft, path)
    rows = got.rows("step", "expert", "tokens", "weight_sum")
    assert {(s, e): n for s, e, n, _ in rows} == tokens
    assert {(s, e): w for s, e, _, w in rows} == pytest.approx(weights)
    assert (passes, sum(tokens.values())) == (40, 49506)
    assert set(got.rows("layer", "rank", "source")) == {(layer, None, "esft:translation")}
    assert set(got.problems()) == {"step_is_pass"}


@pytest.mark.parametrize("layer", [1, 13, 26])
def test_esft_counts_give_the_authors_own_averages(translation, read, layer):
    summary = json.loads((translation / "summary.json").read_text())
    rows = read(esft, translation / f"expert_weights_{layer}.txt").rows(
        "expert", "tokens", "weight_sum"
    )
    n, w = Counter(), Counter()
    for expert, tokens, weight in rows:
        n[expert] += tokens
        w[expert] += weight
    n_tokens = n.total() / 6  # the model's top-k
    for expert in range(64):
        # They are rounded to four digits; the gate score is the mean weight over all tokens.
        share = summary["token_scores"][str(layer)][str(expert)]
        assert n[expert] / n.total() == pytest.approx(share, abs=5.1e-5)
        gate = summary["gate_scores"][str(layer)][str(expert)]
        assert w[expert] / n_tokens == pytest.approx(gate, abs=5.1e-5)


def test_esft_summary_becomes_counters(translation, read, format_of):
    path = translation / "summary.json"
    got = read(esft, path)
    want = json.loads(path.read_text())
    flat = {
        (f"esft_{name}", f"layer {layer} expert {e}", v)
        for name, layers in want.items() for layer, experts in layers.items()
        for e, v in experts.items()
    }  # fmt: skip
    assert len(flat) == 2 * 26 * 64
    assert set(got.rows("name", "device", "value", table="counters")) == flat
    assert got.problems()["averages_only"] == ("info", 1)
    assert format_of(path) == "esft"


def test_esft_is_found_by_content_and_odd_lines_are_told(translation, tmp_path, read, format_of):
    whole = (translation / "expert_weights_1.txt").read_bytes()
    first = whole.split(b"\n")[0]
    path = tmp_path / "rank_2" / "notes.txt"
    path.parent.mkdir()
    path.write_bytes(b"3\t4\t\t0.5\t1e-04\n" + b"3\tx\t\t0.5\t0.5\n" + b"1\t2\t\tnan\t0.25\n"
                     + b"a" * 100 + b"\n" + first[:-1])  # fmt: skip
    assert format_of(path) == "esft"
    got = read(esft, path)
    assert got.rows("step", "expert", "tokens", "weight_sum")[:4] == [
        (0, 3, 1, 0.5), (0, 4, 1, 1e-4), (1, 1, 1, 0.0), (1, 2, 1, 0.25),
    ]  # fmt: skip
    problems = got.problems()
    assert problems["bad_record"] == ("lost", 2)
    assert problems["bad_weight"] == ("warning", 1)
    assert problems["layer_unknown"] == ("warning", 1)
    assert got.rows("rank", table="ranks") == [(2,)]
    # The last weight of the cut line has lost its last digit, and no more.
    assert "lengths_differ" not in problems
    path.write_bytes(first[:-8])
    assert read(esft, path).problems()["lengths_differ"] == ("lost", 1)


REAL = [
    ("mistral", "expert_counts", "c4", (0, 7, 15)),
    ("olmoe", "expert_counts", "c4", (0, 7, 15)),
    ("mistral", "expert_counts_top1", "arxiv", (0, 7, 15)),
    ("olmoe", "expert_counts_top1", "arxiv", (0, 7, 15)),
]


@pytest.mark.parametrize(("model", "kind", "data", "layers"), REAL)
def test_olmoe_counts_are_those_of_the_pickle(
    retime_traces, read, format_of, model, kind, data, layers
):
    path = retime_traces / "moe" / "OLMoE" / model / kind / f"{data}.pkl"
    with path.open("rb") as f:
        counters = pickle.load(f)
    got = read(olmoe, path)
    want = {(layer, int(e)): n for layer, c in zip(layers, counters, strict=True)
            for e, n in c.items()}  # fmt: skip
    assert {(layer, e): n for layer, e, n in got.rows("layer", "expert", "tokens")} == want
    assert set(got.rows("source", "token_class", "rank")) == {
        (f"olmoe:{model}/{kind}/{data}", "real", None)
    }
    assert format_of(path) == "olmoe"


@pytest.mark.parametrize("model", ["mistral", "olmoe"])
def test_olmoe_pairs_of_layers_are_summed_for_each_layer_once(retime_traces, read, model):
    path = retime_traces / "moe" / "OLMoE" / model / "expert_counts_crosslayer" / "github.pkl"
    with path.open("rb") as f:
        near, far = pickle.load(f)
    want = Counter()
    for (a, b), n in near.items():
        want[0, int(a)] += n
        want[7, int(b)] += n
    for (_, b), n in far.items():
        want[15, int(b)] += n
    got = read(olmoe, path)
    assert {(layer, e): n for layer, e, n in got.rows("layer", "expert", "tokens")} == want
    # Both pairs hold layer 7, and agree about it.
    assert set(got.problems()) == {"layers_by_place", "pairs_summed"}


def test_olmoe_of_all_layers_and_what_is_no_count(tmp_path, read):
    path = tmp_path / "expert_counts" / "x.pkl"
    path.parent.mkdir()
    path.write_bytes(pickle.dumps({2: Counter({5: 3, "x": 1, 6: 2.5}), 3: Counter({1: 4})}))
    got = read(olmoe, path)
    assert got.rows("layer", "expert", "tokens") == [(2, 5, 3), (3, 1, 4)]
    assert got.problems()["bad_record"] == ("lost", 2)
    path.write_bytes(pickle.dumps([Counter()]))
    with pytest.raises(UnusableInput, match="no Counters"):
        read(olmoe, path)
    path.write_bytes(pickle.dumps([Counter({"a": print})]))
    with pytest.raises(UnusableInput, match="print"):
        read(olmoe, path)
