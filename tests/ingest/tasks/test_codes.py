"""Equal values numbered without a sort, against the sort."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from retime.ingest.tasks.codes import _slot, alike, distinct
from retime.replay.findings.ideal import median_of_like

FEW = st.integers(-3, 3)
ANY = st.integers(-(2**63), 2**63 - 1)
POWERS = st.integers(0, 62).map(lambda k: 1 << k)


@settings(deadline=None)
@given(arrays(np.int64, st.integers(0, 400), elements=st.one_of(FEW, ANY, POWERS)))
def test_distinct_is_unique_with_its_inverse(values):
    found, place = distinct(values)
    values_, places = np.unique(values, return_inverse=True)
    assert found.tolist() == values_.tolist()
    assert place.tolist() == places.reshape(-1).tolist()


def test_values_that_share_their_low_or_high_bits_stay_apart():
    for values in (np.arange(10_000) << 40, np.arange(10_000) * 64, -np.arange(10_000)):
        found, place = distinct(values)
        assert found[place].tolist() == values.tolist()
        assert len(found) == 10_000


def test_values_that_are_multiples_of_any_power_of_2_are_spread():
    # 4,096 at random in 16,384 slots would take 88 % as many: 1 - 1 / 8 or so meet another.
    for power in range(0, 52):
        taken = {int(_slot(np.int64(k) << power, 16_384)) for k in range(4_096)}
        assert len(taken) > 0.8 * 4_096, power


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-100, 100)), min_size=1))
def test_the_median_of_like_drops_halves(rows):
    code, values = np.array(rows).T
    got = median_of_like(code, values)
    for c, median in zip(code, got, strict=True):
        like = np.sort(values[code == c])
        assert median == (like[(len(like) - 1) // 2] + like[len(like) // 2]) // 2


@settings(deadline=None)
@given(st.lists(st.tuples(FEW, FEW, st.integers(0, 1))))
def test_rows_are_of_one_kind_where_all_their_columns_are_equal(rows):
    columns = np.array(rows, np.int64).reshape(-1, 3).T
    one, kind = alike(*columns)
    assert len(one) == len(set(rows))
    assert [rows[i] for i in one[kind]] == rows
    assert kind[one].tolist() == list(range(len(one)))
