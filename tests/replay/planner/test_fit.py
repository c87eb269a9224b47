"""The planner against measured iteration times, and the statistics it is judged by."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import retime
from retime.replay.planner import agreement, fit, fitted, platform, step

DATA = Path(__file__).parent / "data"


def of(name: str, folder: Path) -> pl.DataFrame:
    """The table `configurations` of one of vTrain's files."""
    warehouse = retime.open(str(folder))
    warehouse.ingest(str(DATA / f"ground_truth_{name}.csv"), job=name)
    return warehouse.job(name).sql("FROM configurations")


@pytest.fixture(scope="module")
def single(tmp_path_factory) -> list[fit.Case]:
    return fit.cases(of("single", tmp_path_factory.mktemp("s")), vocab=50257, recompute="none")


@pytest.fixture(scope="module")
def multi(tmp_path_factory) -> list[fit.Case]:
    return fit.cases(of("multi", tmp_path_factory.mktemp("m")), vocab=fitted.VOCAB)


def test_fitted_on_a_tenth_it_is_right_on_the_rest(single):
    # The goal is a median error under 8 %; 2.3 to 2.6 % over five seeds were seen.
    assert len(single) == 1440
    train, test = fit.tenth(len(single), 0)
    assert (len(train), len(test)) == (144, 1296)
    assert not set(train) & set(test)
    machine = platform.named("A100")
    eff = fit.fit([single[i] for i in train], machine)
    rest = [single[i] for i in test]
    found = agreement.score(fit.predict(rest, machine, eff), np.array([c.step_ns for c in rest]))
    assert found.rows == 1296
    assert found.median_error < 0.035
    assert found.p90_error < 0.2
    assert found.kendall > 0.9
    assert found.spearman > 0.98
    picked = agreement.picks(rest, fit.predict(rest, machine, eff))
    assert picked.best > 0.5 * picked.groups
    assert picked.mean_loss < 0.07
    # Without the fit it is worse: the parameters are worth something.
    plain = fit.predict(rest, machine, step.Efficiencies())
    assert np.median(np.abs(plain / [c.step_ns for c in rest] - 1)) > 2 * found.median_error


def test_all_reduce_curves_say_what_collectives_cost(single, retime_traces, tmp_path):
    # vTrain's measured all-reduces on 2, 4 and 8 A100: 53 us and 0.89 of the links. With these kept
    # the rest is fitted as well as with all free (2.8 to 3.0 % over three seeds), and products of
    # matrices at a more likely share of the peak.
    files = [str(f) for f in (retime_traces / "planner" / "vTrain").glob("AR_GPU*.csv")]
    warehouse = retime.open(str(tmp_path))
    warehouse.ingest(files, job="curves")
    rows = warehouse.job("curves").sql(
        "SELECT n_ranks, bytes, time_ns FROM cost_curves WHERE in_place"
    )
    assert len(rows) == 3 * 1024
    machine = platform.named("A100")
    fixed, link = fit.collectives([(n, float(s), float(t)) for n, s, t in rows.rows()], machine)
    assert fixed == pytest.approx(52_700, rel=0.05)
    assert link == pytest.approx(0.89, abs=0.01)
    train, test = fit.tenth(len(single), 0)
    start = step.Efficiencies(collective_ns=fixed, link=link)
    eff = fit.fit([single[i] for i in train], machine, start=start, keep=("collective_ns", "link"))
    rest = [single[i] for i in test]
    found = agreement.score(fit.predict(rest, machine, eff), np.array([c.step_ns for c in rest]))
    assert found.median_error < 0.04
    assert 0.75 < eff.gemm < 0.92


def test_a_line_is_found_again():
    machine = platform.named("A100")
    made = [
        (
            n,
            size,
            30_000 + 2 * platform.pass_ns(over._replace(bytes_per_s=0.8 * over.bytes_per_s), size),
        )
        for n in (2, 8)
        for size in (1e6, 1e8)
        for over in [platform.group(machine, n, 1)]
    ]
    assert fit.collectives(made, machine) == pytest.approx((30_000, 0.8))


def test_a_machine_of_64_to_512_gpus(multi):
    # 109 measured configurations; the efficiencies that plans take by default, and their interval.
    assert len(multi) == 109
    measured = np.array([c.step_ns for c in multi])
    cluster = fitted.a100_cluster()
    estimated = fit.predict(multi, cluster, fitted.A100)
    found = agreement.score(estimated, measured)
    assert found.median_error < 0.045
    assert found.p90_error < 0.2
    assert found.kendall > 0.84
    low, high = fitted.INTERVAL
    ratio = measured / estimated
    assert 0.86 < np.mean((ratio > low) & (ratio < high)) < 0.96


def test_a_model_of_another_size_is_foreseen(multi):
    # Fitted without the 175B model, tested on it; 5.1 to 9.3 % were seen by size left out.
    known = [c for c in multi if c.model.hidden != 12288][::2]
    left = [c for c in multi if c.model.hidden == 12288]
    eff = fit.fit(known, fitted.a100_cluster())
    found = agreement.score(
        fit.predict(left, fitted.a100_cluster(), eff), np.array([c.step_ns for c in left])
    )
    assert found.rows == 21
    assert found.median_error < 0.1


def test_the_fit_finds_what_made_the_numbers(multi):
    machine = fitted.a100_cluster()
    true = step.Efficiencies(
        gemm=0.6, memory=0.7, small_ns=2e5, launch_ns=1.5e6, collective_ns=1e5, link=0.8
    )
    made = fit.predict(multi, machine, true)
    cases = [c._replace(step_ns=t) for c, t in zip(multi, made, strict=True)]
    found = fit.fit(cases[::3], machine)
    off = np.abs(fit.predict(cases, machine, found) / made - 1)
    assert np.quantile(off, 0.9) < 0.03
    assert found.gemm == pytest.approx(true.gemm, rel=0.05)


def test_what_is_kept_stays(multi):
    start = step.Efficiencies()
    found = fit.fit(multi[::10], fitted.a100_cluster(), keep=("gemm", "link"))
    assert (found.gemm, found.link) == (start.gemm, start.link)
    assert found != start


def test_rows_without_a_degree_are_left_out(tmp_path):
    rows = of("multi", tmp_path).head(3).with_columns(tp=pl.Series([1, None, 2]))
    assert [c.split.tp for c in fit.cases(rows, vocab=51200)] == [1, 2]


def test_rank_correlations_by_hand():
    a = np.array([1.0, 2, 3, 4])
    # One pair of six the other way: tau = (5 - 1)/6. Spearman: 1 - 6 * 2 / (4 * 15) = 0.8.
    b = np.array([1.0, 3, 2, 4])
    assert agreement.kendall(a, b) == pytest.approx(4 / 6)
    assert agreement.spearman(a, b) == pytest.approx(0.8)
    assert agreement.kendall(a, -a) == -1
    # A tie in b: 5 pairs are left there of 6; tau-b = 5 / sqrt(6 * 5).
    assert agreement.kendall(a, np.array([1.0, 2, 2, 3])) == pytest.approx(5 / 30**0.5)


def test_picks_by_hand(multi):
    two = [multi[0]._replace(step_ns=100.0), multi[1]._replace(step_ns=110.0)]
    right = agreement.picks(two, np.array([1.0, 2.0]))
    wrong = agreement.picks(two, np.array([2.0, 1.0]))
    assert (right.groups, right.best, right.mean_loss) == (1, 1, 0.0)
    assert (wrong.groups, wrong.best, wrong.within) == (1, 0, 0)
    assert wrong.mean_loss == pytest.approx(0.1)
