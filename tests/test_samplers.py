"""The systems of Table 1: what each keeps, and that fit shares all else among them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
from click.testing import CliRunner
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.cluster import KMeans

import squeak_dist
from squeak_dist.cli.commands import main
from squeak_dist.dictionary import Dictionary
from squeak_dist.errors import (
    CheckpointError,
    CheckpointMismatchError,
    EmptyDataError,
    InsufficientMemoryError,
    InvalidParameterError,
    LengthMismatchError,
)
from squeak_dist.kernels import RBF, Linear
from squeak_dist.leverage import effective_dimension, exact_rls
from squeak_dist.nystrom import distinct_rows, projected_map
from squeak_dist.parameter_table import SAMPLER_NAMES
from squeak_dist.samplers import SAMPLERS, SIZED, choose_rows, disqueak, sampler_name
from squeak_dist.samplers.columns import _scores_on
from squeak_dist.samplers.incremental import _judged
from squeak_dist.samplers.protocol import kept_rows
from squeak_dist.squeak import SqueakParameters
from squeak_dist.stages import FitParameters

KERNEL, GAMMA = RBF(1.0), 3.0
# By the sum of its weights each of these stands for all rows, in the mean.
UNBIASED = ("uniform", "rls-sampling", "recursive-rls", "bless", "squeak")
each_sampler = pytest.mark.parametrize("name", SAMPLERS)


def parameters(limit: int | None = 120, qbar: int = 8) -> SqueakParameters:
    return SqueakParameters(GAMMA, qbar=qbar, max_dictionary=limit)


def chosen(name, X, limit=120, seed=0, weights=None, **options):
    rng = np.random.default_rng(seed)
    return choose_rows(name, X, KERNEL, parameters(limit, **options), rng, weights)


def unexplained(D: Dictionary, X: np.ndarray) -> float:
    nystrom = projected_map(KERNEL, D.points[distinct_rows(D.points)].astype(np.float64))
    return float(nystrom.residual(X).mean())


# --- each of them -------------------------------------------------------------------------


@each_sampler
def test_a_dictionary_of_weighted_rows_in_the_budget(name, uneven_rows):
    X = uneven_rows(300)
    D = chosen(name, X)
    assert len(D) == 300 if name == "exact" else 20 < len(D) <= 120
    assert len(np.unique(D.indices)) == len(D)
    if name != "k-means":
        assert_array_equal(D.points, X[D.indices])
    assert ((D.probabilities > 0) & (D.probabilities <= 1)).all()
    assert ((D.multiplicities >= 1) & (D.multiplicities <= D.qbar)).all()
    # 120 of these 300 rows explain 95 % at least, whoever chooses them; 10 of them do not.
    assert unexplained(D, X) < 0.05 < unexplained(D.take(np.arange(10)), X)


@each_sampler
def test_the_generator_alone_decides(name, uneven_rows):
    X = uneven_rows(200)
    first, again = chosen(name, X), chosen(name, X)
    for column in ("points", "indices", "probabilities", "multiplicities"):
        assert_array_equal(getattr(first, column), getattr(again, column))
    if name not in ("exact", "greedy-cholesky"):
        other = chosen(name, X, seed=1)
        assert len(other) != len(first) or (other.points != first.points).any()


@each_sampler
def test_rows_of_weight_zero_are_never_kept_and_heavy_ones_are(name, uneven_rows):
    X = uneven_rows(200)
    v = np.random.default_rng(0).choice([0.0, 1.0, 50.0], p=[0.3, 0.6, 0.1], size=200)
    D = chosen(name, X, weights=v)
    assert (v[D.indices] > 0).all()
    if name != "k-means":
        assert_array_equal(D.row_weights, v[D.indices])
    if name not in ("uniform", "k-means"):
        share = np.mean(np.isin(np.flatnonzero(v == 50), D.indices))
        assert share >= np.mean(np.isin(np.flatnonzero(v == 1), D.indices))


@pytest.mark.parametrize("name", UNBIASED)
def test_the_weights_stand_for_all_rows(name, uneven_rows):
    """E Σ s_i² τ_i = d_eff, within 4 standard errors of the mean."""
    X = uneven_rows(150)
    v = np.random.default_rng(1).choice([0.5, 2.0], size=150)
    tau = exact_rls(np.sqrt(v)[:, None] * KERNEL(X) * np.sqrt(v), GAMMA)
    sums = []
    for seed in range(60):
        D = chosen(name, X, None if name not in SIZED else 60, seed, v, qbar=16)
        sums.append(D.selection_weights**2 @ tau[D.indices])
    error = np.std(sums) / np.sqrt(len(sums))
    # SQUEAK's weights are a martingale before its thinning: no bias either.
    assert abs(np.mean(sums) - tau.sum()) < 4 * error
    assert error < 0.05 * tau.sum()


@each_sampler
@pytest.mark.parametrize("rows", [1, 2, 7])
def test_few_rows(name, rows, uneven_rows):
    X = uneven_rows(rows)
    D = chosen(name, X, limit=rows)
    assert len(D) <= rows
    assert set(D.indices) <= set(range(rows))


@each_sampler
def test_equal_rows(name):
    D = chosen(name, np.ones((60, 2)), limit=10)
    assert 1 <= len(D) <= 60
    assert (D.points == 1).all()


# --- what is particular to one ------------------------------------------------------------


def test_scores_on_all_rows_are_the_exact_ones(uneven_rows):
    X = uneven_rows(120)
    v = np.random.default_rng(0).uniform(0.5, 2, size=120)
    tau = exact_rls(np.sqrt(v)[:, None] * KERNEL(X) * np.sqrt(v), GAMMA)
    assert_allclose(_scores_on(projected_map(KERNEL, X), X, v, GAMMA), tau, rtol=1e-6)
    below = _scores_on(projected_map(KERNEL, X[:30]), X, v, GAMMA)
    assert (below <= tau + 1e-9).all()


def test_the_running_effective_dimension_of_ink_estimate(uneven_rows):
    """What a row adds is exact for a dictionary of all rows before it."""
    X, ones = uneven_rows(60), np.ones(60)
    v = np.random.default_rng(2).uniform(0.5, 2, size=60)
    for weights in (ones, v):
        K = np.sqrt(weights)[:, None] * KERNEL(X) * np.sqrt(weights)
        for t in (0, 1, 30, 59):
            before = kept_rows(X, np.arange(t), GAMMA, weights)
            tau, gain = _judged(X[t : t + 1], KERNEL, before, 0.3, weights[t : t + 1])
            grown = effective_dimension(K[: t + 1, : t + 1], GAMMA)
            known = effective_dimension(K[:t, :t], GAMMA) if t else 0.0
            assert_allclose(gain, grown - known, rtol=1e-7)
            assert_allclose(tau, 0.7 * exact_rls(K[: t + 1, : t + 1], GAMMA)[t], rtol=1e-7)


def test_ink_estimate_shares_its_budget_out(uneven_rows):
    X = uneven_rows(600)
    tau = exact_rls(KERNEL(X), GAMMA)
    copies = [chosen("ink-estimate", X, 200, seed).multiplicities.sum() for seed in range(5)]
    # b Σ τ̃/d̃, τ̃ of about (1 − ε)τ: 0.7 b where the running d̃ is right.
    assert 0.5 * 200 < np.mean(copies) < 200
    D = chosen("ink-estimate", X, 200)
    assert np.mean(tau[D.indices]) > 1.5 * tau.mean()


def test_greedy_cholesky_is_that_of_the_whole_matrix(uneven_rows):
    X = uneven_rows(80)
    v = np.random.default_rng(3).uniform(0.5, 2, size=80)
    left, pivots = np.sqrt(v)[:, None] * KERNEL(X) * np.sqrt(v), []
    for _ in range(30):
        i = int(np.argmax(np.diagonal(left)))
        pivots.append(i)
        left = left - np.outer(left[:, i], left[i]) / left[i, i]
    assert_array_equal(chosen("greedy-cholesky", X, 30, weights=v).indices, pivots)


def test_pivoted_cholesky_ends_where_nothing_is_left():
    X = np.random.default_rng(0).normal(size=(50, 3))
    for name in ("greedy-cholesky", "random-cholesky"):
        rng = np.random.default_rng(0)
        D = choose_rows(name, X, Linear(), SqueakParameters(1.0, max_dictionary=20), rng)
        assert len(D) == 3


def test_the_first_random_pivot_follows_the_diagonal(uneven_rows):
    X = uneven_rows(5)
    v = np.array([1.0, 2.0, 3.0, 0.0, 4.0])
    first = [chosen("random-cholesky", X, 1, seed, v).indices[0] for seed in range(1000)]
    assert_allclose(np.bincount(first, minlength=5) / 1000, v / 10, atol=4 * 0.5 / np.sqrt(1000))


def test_k_means_has_the_centres_of_scikit_learn(uneven_rows):
    X = uneven_rows(300)
    v = np.random.default_rng(4).uniform(0.5, 2, size=300)
    D = chosen("k-means", X, 25, weights=v)
    seed = int(np.random.default_rng(0).integers(2**31 - 1))
    model = KMeans(25, n_init=1, random_state=seed).fit(X, sample_weight=v)
    assert_allclose(D.points, model.cluster_centers_, rtol=1e-10, atol=1e-12)
    assert_array_equal(model.predict(X[D.indices]), np.arange(25))
    nearest = [
        np.argmin(np.where(model.labels_ == j, np.linalg.norm(X - c, axis=1), np.inf))
        for j, c in enumerate(model.cluster_centers_)
    ]
    assert_array_equal(D.indices, nearest)
    assert_allclose((D.selection_weights**2).sum(), 300)
    assert_allclose((D.column_weights**2).sum(), v.sum())


@pytest.mark.parametrize("tree", ["balanced", "left-deep", "random"])
@pytest.mark.parametrize("fan_in", [2, 3, 8])
def test_trees_of_any_shape_keep_the_size(tree, fan_in, uneven_rows):
    X, rng = uneven_rows(800), np.random.default_rng(0)
    one = chosen("squeak", X, None)
    D = disqueak(X, KERNEL, parameters(None), rng, tree=tree, pieces=9, fan_in=fan_in)
    assert 0.6 * len(one) < len(D) < 1.6 * len(one)
    assert (np.diff(np.histogram(D.indices, 4, (0, 800))[0]) < len(D) / 2).all()


# --- bad input ----------------------------------------------------------------------------


@each_sampler
def test_budgets_above_the_rows_are_refused(name, uneven_rows):
    with pytest.raises(InvalidParameterError, match=r"max_dictionary=51 is more than the 50 rows"):
        chosen(name, uneven_rows(50), limit=51)


@each_sampler
@pytest.mark.parametrize("gamma", [0.0, -1.0, np.nan, "auto"])
def test_gamma_must_be_positive(name, gamma, uneven_rows):
    with pytest.raises(InvalidParameterError, match="gamma must be a number > 0"):
        SAMPLERS[name](
            uneven_rows(20),
            KERNEL,
            replace(parameters(10), gamma=gamma),
            np.random.default_rng(0),
        )


@pytest.mark.parametrize("name", ["exact", "rls-sampling"])
def test_a_matrix_that_does_not_fit_is_refused_with_its_bytes(name):
    rows = np.zeros((1_000_000, 1), np.float32)
    with pytest.raises(MemoryError, match="32,000,000,000,000 bytes"):
        chosen(name, rows, limit=10)
    X = np.arange(400_000.0)
    with pytest.raises(InsufficientMemoryError, match=r"all 400,000 rows.*5,120,028,800,000"):
        squeak_dist.fit(X[:, None], X, sampler=name, max_dictionary=100)


@pytest.mark.parametrize("name", ["greedy-cholesky", "random-cholesky"])
def test_a_factor_that_does_not_fit_is_refused_with_its_bytes(name):
    rows = np.zeros((4_000_000, 1), np.float32)
    with pytest.raises(InsufficientMemoryError, match="128,000,000,000,000 bytes"):
        chosen(name, rows, limit=4_000_000)


@pytest.mark.parametrize("name", sorted(SIZED))
def test_a_size_that_is_missing(name, uneven_rows):
    with pytest.raises(InvalidParameterError, match="size in advance; give max_dictionary"):
        chosen(name, uneven_rows(20), limit=None)
    with pytest.raises(InvalidParameterError, match="size in advance; give max_dictionary"):
        FitParameters(sampler=name, max_dictionary=None)


@each_sampler
def test_no_rows_or_weights_that_are_none(name, uneven_rows):
    X = uneven_rows(20)
    with pytest.raises(EmptyDataError, match="no rows"):
        chosen(name, X[:0], limit=None)
    with pytest.raises(EmptyDataError, match="weight 0"):
        chosen(name, X, 10, weights=np.zeros(20))
    with pytest.raises(LengthMismatchError, match=r"shape \(19,\) for 20 rows"):
        chosen(name, X, 10, weights=np.ones(19))
    with pytest.raises(InvalidParameterError, match="at least 0"):
        chosen(name, X, 10, weights=-np.ones(20))


def test_the_names_are_those_of_the_table_of_parameters():
    assert tuple(SAMPLERS) == SAMPLER_NAMES


def test_parameters_that_do_not_go_together():
    with pytest.raises(InvalidParameterError, match=r"'squeak', 'squeak-by-row'.*got 'squeek'"):
        FitParameters(sampler="squeek")
    with pytest.raises(InvalidParameterError, match="got 3"):
        FitParameters(sampler=3)
    with pytest.raises(InvalidParameterError, match='on_overrun="stop"'):
        FitParameters(sampler="bless", on_overrun="stop")
    with pytest.raises(InvalidParameterError, match="did you mean 'sampler'"):
        squeak_dist.fit(np.ones((5, 1)), np.ones(5), method="uniform")
    X = np.random.default_rng(0).normal(size=(50, 2))
    with pytest.raises(InvalidParameterError, match="partial_fit goes on with a dictionary"):
        squeak_dist.SqueakRegressor(sampler="uniform").partial_fit(X, X[:, 0])


@pytest.mark.parametrize(
    "returned",
    [
        [0.5],
        [-1],
        [50],
        [1, 1],
        [[1]],
        "rows",
        None,
        kept_rows(np.ones((60, 2)), np.array([55]), 1.0, np.ones(60)),
        np.arange(41),
    ],
)
def test_what_a_sampler_of_the_users_may_not_return(returned):
    with pytest.raises(InvalidParameterError, match=r"must return a Dictionary, or positions"):
        chosen(lambda *given: returned, np.ones((50, 2)), 40)
    with pytest.raises(InvalidParameterError, match="points of 3 columns"):
        chosen(lambda X, *given: kept_rows(np.ones((9, 3)), np.arange(5), 1.0, np.ones(9)),
               np.ones((50, 2)), 40)  # fmt: skip


# --- in a fit -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table(uneven_rows):
    X = uneven_rows(700)
    return X, np.sin(2 * X[:, 0]) + 0.3 * X[:, 1]


def fitted(X, y, **options):
    given = {"kernel": RBF(1.0), "gamma": 2.0, "max_dictionary": 150, "qbar": 4, "mu": 0.01}
    return squeak_dist.fit(X, y, **given | options)


@each_sampler
@pytest.mark.filterwarnings("ignore::squeak_dist.errors.GammaRaised")
def test_every_sampler_in_a_fit_with_one_map_solver_and_store(name, table, tmp_path):
    X, y = table
    model = fitted(X, y, sampler=name)
    assert model.report_["sampler"] == name
    assert len(model.dictionary_) == 700 if name == "exact" else len(model.dictionary_) <= 150
    assert model.score(X, y) > 0.93
    model.save(tmp_path / "model.zarr")
    again = squeak_dist.load(tmp_path / "model.zarr")
    assert again.get_params()["sampler"] == name
    assert_array_equal(again.predict(X), model.predict(X))
    assert_array_equal(again.component_indices_, model.component_indices_)


@pytest.mark.parametrize("name", sorted({*SAMPLERS} - {"squeak", "disqueak-random", "disqueak",
                                                       "disqueak-left-deep"}))  # fmt: skip
@pytest.mark.filterwarnings("ignore::squeak_dist.errors.GammaRaised")
def test_partitions_do_not_matter_where_all_rows_are_judged_at_once(name, table):
    X, y = (value[:300] for value in table)
    whole = fitted(X, y, sampler=name)
    parts = fitted(da.from_array(X, (110, 3)), da.from_array(y, 110), sampler=name)
    assert_array_equal(parts.component_indices_, whole.component_indices_)
    assert_array_equal(parts.components_, whole.components_)
    assert_array_equal(parts.dictionary_.probabilities, whole.dictionary_.probabilities)
    assert_allclose(parts.predict(X), whole.predict(X), rtol=1e-3, atol=1e-3)


def test_the_shape_of_the_tree_is_in_the_report(table):
    X, y = table
    levels = {}
    for name in ("disqueak", "disqueak-left-deep", "disqueak-random"):
        model = fitted(da.from_array(X, (100, 3)), da.from_array(y, 100), sampler=name)
        assert model.report_["chains"] == 7
        levels[name] = max(node["level"] for node in model.report_["merges"])
    assert levels["disqueak"] == 3
    assert levels["disqueak-left-deep"] == 6
    assert 3 <= levels["disqueak-random"] <= 6


@pytest.mark.parametrize("solver", ["direct", "cg"])
@pytest.mark.parametrize("name", ["uniform", "k-means", "two-pass-rls", "bless"])
def test_both_solvers_take_any_dictionary(name, solver, table):
    X, y = table
    direct = fitted(X, y, sampler=name, solver="direct").predict(X)
    found = fitted(X, y, sampler=name, solver=solver)
    assert np.std(found.predict(X) - direct) < 0.01 * np.std(y)


def test_the_rows_of_a_uniform_choice_are_uniform(table):
    X, y = table
    counts = np.zeros(700)
    frames = da.from_array(X, (100, 3)), da.from_array(y, 100)
    for seed in range(20):
        model = fitted(*frames, sampler="uniform", max_dictionary=70, random_state=seed)
        counts[model.component_indices_] += 1
    assert counts.sum() == 20 * 70
    by_partition = counts.reshape(7, 100).sum(axis=1)
    assert (abs(by_partition - 200) < 4 * np.sqrt(200)).all()


@pytest.mark.parametrize(
    "estimator",
    [squeak_dist.SqueakTransformer, squeak_dist.SqueakPCA, squeak_dist.SqueakClassifier],
)
def test_the_other_estimators_take_samplers_too(estimator, table):
    X, y = table
    model = estimator(sampler="greedy-cholesky", max_dictionary=40).fit(X, y > 0)
    assert model.report_["sampler"] == "greedy-cholesky"
    assert len(model.dictionary_) == 40


def first_rows(X, kernel, parameters, rng, row_weights=None):
    return np.arange(parameters.max_dictionary)


@dataclass(frozen=True)
class EveryTenth:
    """A sampler of a user's, with a parameter of its own."""

    start: int = 0

    def __call__(self, X, kernel, parameters, rng, row_weights=None):
        rows = np.arange(self.start, len(X), 10)
        weights = np.ones(len(X)) if row_weights is None else row_weights
        p = np.full(len(rows), 0.1)
        return kept_rows(X, rows, parameters.gamma, weights, probabilities=p)


def test_a_sampler_of_the_users(table, tmp_path):
    X, y = table
    model = fitted(X, y, sampler=first_rows)
    assert_array_equal(model.component_indices_, np.arange(150))
    assert model.report_["sampler"] == "first_rows"
    tenth = fitted(da.from_array(X, (90, 3)), da.from_array(y, 90), sampler=EveryTenth(3))
    assert_array_equal(tenth.component_indices_, np.arange(3, 700, 10))
    assert tenth.report_["sampler"] == sampler_name(EveryTenth()) == "EveryTenth"
    tenth.save(tmp_path / "model.zarr")
    assert squeak_dist.load(tmp_path / "model.zarr").get_params()["sampler"] == "squeak"


def test_a_checkpoint_knows_the_sampler(table, tmp_path):
    X, y = table
    model = fitted(X, y, sampler=EveryTenth(3), checkpoint=tmp_path)
    again = fitted(X, y, sampler=EveryTenth(3), checkpoint=tmp_path)
    assert_array_equal(again.dual_coef_, model.dual_coef_)
    for other in (EveryTenth(4), "uniform"):
        with pytest.raises(CheckpointMismatchError, match="sampler"):
            fitted(X, y, sampler=other, checkpoint=tmp_path)
    with pytest.raises(CheckpointError, match="sampler is a function"):
        fitted(X, y, sampler=first_rows, checkpoint=tmp_path / "other")


def test_on_the_command_line(table, tmp_path):
    import pandas as pd

    X, y = table
    pd.DataFrame(X, columns=list("abc")).assign(y=y).to_parquet(tmp_path / "t.parquet")
    out = str(tmp_path / "m.zarr")
    arguments = ["fit", str(tmp_path / "t.parquet"), "--target", "y", "--model", out,
                 "--workers", "0", "--sampler"]  # fmt: skip
    done = CliRunner().invoke(main, [*arguments, "random-cholesky", "--max-dictionary", "60"])
    assert done.exit_code == 0, done.output
    assert "random-cholesky" in done.stderr
    assert squeak_dist.load(out).get_params()["sampler"] == "random-cholesky"
    assert CliRunner().invoke(main, [*arguments, "best"]).exit_code == 2


def test_the_page_of_samplers_names_them_all():
    page = (Path(__file__).parents[1] / "docs" / "samplers.md").read_text(encoding="utf-8")
    named = {n for line in page.splitlines() if line.startswith("| `")
             for n in re.findall(r"`([a-z-]+)`", line.split("|")[1])}  # fmt: skip
    assert named == set(SAMPLERS)
