"""The catalogue: every policy is found, and what is typed becomes its parameters."""

from __future__ import annotations

import pytest
from retime.replay import policies
from retime.replay.policy import BadParam, Stage


def test_every_policy_is_documented():
    assert {"align-arrivals", "algorithm"} <= set(policies.REGISTRY)
    for name, policy in policies.REGISTRY.items():
        assert policy.name == name
        assert policy.summary
        assert policy.source
        assert policy.assumptions
        names = [p.name for p in policy.params]
        assert len(set(names)) == len(names)
        for param in policy.params:
            assert param.meaning
            assert not param.choices or param.default in param.choices


STAGES = {
    Stage.PLACEMENT: {"parallelism", "replicate-experts", "place-experts", "reshard"},
    Stage.VOLUME: {"batch-a2a", "compress"},
    Stage.ALGORITHM: {
        "algorithm", "hierarchical", "rail-balance", "wave-schedule", "select",
        "congestion-aware", "optical", "on-package", "host-staged",
    },
    Stage.LINKS: {"scale-fabric", "datapath", "launch-path", "isolate-storage"},
    Stage.SCHEDULE: {"sm-budget", "tile-overlap", "megakernel", "overlap"},
    Stage.ARRIVALS: {"align-arrivals"},
    Stage.RUN: {"checkpoint"},
}  # fmt: skip


def test_the_catalogue_is_whole_and_every_policy_at_its_stage():
    assert sum(map(len, STAGES.values())) == 25
    for stage, names in STAGES.items():
        assert {p.name for p in policies.REGISTRY.values() if p.stage == stage} == names
    for policy in policies.REGISTRY.values():
        assert policy.needs, policy.name
        assert policy.valid, policy.name
        assert policy.checked, policy.name


def test_parameters_take_units():
    policy, values = policies.resolve("algorithm:algo=ring,alpha=0.822us,bandwidth=450GB/s")
    assert policy.name == "algorithm"
    given = {k: values[k] for k in ("op", "algo", "from", "alpha", "bandwidth")}
    assert given == {
        "op": ("all_reduce",),
        "algo": "ring",
        "from": "auto",
        "alpha": 822.0,
        "bandwidth": 450e9,
    }


def test_parameters_from_python():
    _, values = policies.resolve(("algorithm", {"algo": "ring", "alpha": 5.0}))
    assert (values["algo"], values["alpha"]) == ("ring", 5.0)


def test_lists_from_python_are_as_typed_ones():
    _, values = policies.resolve(("align-arrivals", {"ranks": [0, 1], "op": ["all_reduce"]}))
    assert (values["ranks"], values["op"]) == ((0, 1), ("all_reduce",))


@pytest.mark.parametrize(
    ("spec", "error", "says"),
    [
        ("algoritm", policies.UnknownPolicy, "no policy 'algoritm': did you mean algorithm?"),
        ("qqq", policies.UnknownPolicy, "there are algorithm, align-arrivals"),
        ("algorithm:speed=3", BadParam, "algorithm has no parameter 'speed'; it takes op, algo"),
        ("algorithm:algo=star", BadParam, "algo='star', expected one of ring, tree"),
        ("algorithm:algo", BadParam, "'algo' is not of the form parameter=value"),
        ("algorithm:algo=ring,algo=tree", BadParam, "'algo' is given twice"),
        ("algorithm:alpha=3 parsecs", BadParam, "unknown unit of time 'parsecs'"),
        ("algorithm:bandwidth=fast", BadParam, "expected a number with its unit"),
        ("align-arrivals:factor=much", BadParam, "factor='much'"),
        (("algorithm", "tree"), BadParam, "parameters are a mapping"),
        (7, BadParam, "a policy is a name"),
        (
            "align-arrivals:factor=1+2+4",
            BadParam,
            "factor='1+2+4': expected a number; a sweep has "
            "commas between its values: --sweep factor=1,2,4",
        ),
        ("batch-a2a:batches=two", BadParam, "batches='two': expected a whole number"),
        ("align-arrivals:factor=inf", BadParam, "factor=inf: expected a finite number"),
        (("datapath", {"alpha": float("nan")}), BadParam, "alpha=nan: expected a finite number"),
        ("optical:switches=9223372036854775807", BadParam, "beyond anything that is counted"),
        ("datapath:beta=1e308", BadParam, "beyond anything that is counted"),
        ("datapath:beta=1e-308", BadParam, "beyond anything that is counted"),
        (("batch-a2a", {"batches": 2.5}), BadParam, "batches=2.5: expected a whole number"),
        (("batch-a2a", {"batches": None}), BadParam, "batches=None: expected a value"),
        (("checkpoint", {"save": {}}), BadParam, "save={}: expected a number"),
        (("align-arrivals", {"ranks": {}}), BadParam, "ranks={}: expected a list"),
        ("parallelism:best=" + "x" * 10**5, BadParam, "best='xxxxx"),
    ],
)
def test_what_is_wrong_gets_one_sentence(spec, error, says):
    with pytest.raises(error) as caught:
        policies.resolve(spec)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert caught.value.exit_code == 2
