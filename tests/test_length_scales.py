"""Kernel and length scales from a sample: likelihood, candidates, the choice between them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import approx_fprime
from scipy.special import softmax
from sklearn import metrics
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as gaussian

import squeak_dist
from squeak_dist.calibration import fit_link
from squeak_dist.errors import InvalidParameterError, TuningFellBack
from squeak_dist.kernels import RBF, Matern
from squeak_dist.nystrom import projected_map
from squeak_dist.stages.tuning import _warn_of_median
from squeak_dist.tuning import (
    Candidate,
    LeftOut,
    TuningRows,
    choose_kernel,
    leave_one_out,
    likely_kernel,
    log_loss,
    median_length_scale,
    negative_log_likelihood,
    squared_loss,
)

FAMILIES = [RBF(), Matern(nu=0.5), Matern(nu=1.5), Matern(nu=2.5)]


def rows_of(n=60, d=3, seed=0, noise=0.1, weighted=False):
    """Rows whose target depends on the first two columns alone."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = np.sin(2 * X[:, 0]) + np.cos(X[:, 1]) + noise * rng.normal(size=n)
    y = (y - y.mean()) / y.std()
    return TuningRows(X, y[:, None], rng.random(n) + 0.2 if weighted else None)


# --- likelihood -------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("logarithms", [np.log([1.0, 2.0, 3.0, 0.1]), np.log([1.3, 0.2])])
def test_the_gradient(family, weighted, logarithms):
    rows = rows_of(weighted=weighted)
    rows = TuningRows(rows.X, np.hstack([rows.targets, rows.X[:, :1] ** 2]), rows.weights)
    _, gradient = negative_log_likelihood(family, logarithms, rows)
    numeric = approx_fprime(
        logarithms, lambda x: negative_log_likelihood(family, x, rows)[0], 1e-6
    )
    np.testing.assert_allclose(gradient, numeric, atol=5e-6)


@pytest.mark.parametrize(
    ("family", "radial"),
    [(RBF(), gaussian.RBF([1.0, 2.0, 3.0])), (Matern(nu=1.5), gaussian.Matern([1.0, 2.0, 3.0]))],
)
def test_it_is_the_likelihood_of_a_gaussian_process(family, radial):
    """Up to a constant, at the best scale of the target."""
    rows = rows_of()
    mu, s = 0.05, len(rows)
    value, _ = negative_log_likelihood(family, np.log([1.0, 2.0, 3.0, mu]), rows)
    A = np.asarray(type(family)((1.0, 2.0, 3.0), *([1.5] if family != RBF() else []))(rows.X))
    A = A + mu * np.eye(s)
    scale = float(rows.targets[:, 0] @ np.linalg.solve(A, rows.targets[:, 0])) / s
    process = gaussian.ConstantKernel(scale) * radial + gaussian.WhiteKernel(scale * mu)
    expected = GaussianProcessRegressor(process, optimizer=None, alpha=0).fit(
        rows.X, rows.targets[:, 0]
    )
    constant = 0.5 + 0.5 * np.log(2 * np.pi)
    assert value + constant == pytest.approx(-expected.log_marginal_likelihood_value_ / s)


def test_a_weight_of_two_halves_the_noise():
    rows = rows_of(n=30)
    doubled = TuningRows(rows.X, rows.targets, np.full(30, 2.0))
    at = np.log([1.0, 0.1])
    half = np.log([1.0, 0.05])
    assert negative_log_likelihood(RBF(), at, doubled)[0] == pytest.approx(
        negative_log_likelihood(RBF(), half, rows)[0]
    )


# --- maximum likelihood -----------------------------------------------------------------------


@pytest.mark.parametrize("family", [RBF(), Matern(nu=1.5)])
def test_columns_without_a_say_get_long_scales(family):
    rows = rows_of(n=1200, d=8)
    found = likely_kernel(family, rows, separate=True)
    scales = np.array(found.kernel.length_scale)
    assert scales[2:].min() > 2.5 * scales[:2].max()
    one = likely_kernel(family, rows, separate=False)
    assert isinstance(one.kernel.length_scale, float)
    assert found.value < one.value


def test_the_noise_is_found():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 6, (600, 1))
    y = np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=600)
    found = likely_kernel(RBF(), TuningRows(X, y[:, None]), separate=True)
    K = RBF(found.kernel.length_scale)(X[:150]) + found.mu * np.eye(150)
    scale = float(y[:150] @ np.linalg.solve(K, y[:150])) / 150
    assert np.sqrt(scale * found.mu) == pytest.approx(0.3, rel=0.2)


# --- leave one out ----------------------------------------------------------------------------


def test_the_error_is_that_of_leaving_rows_out():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(80, 2))
    y = (np.sin(X[:, 0]) + 0.1 * rng.normal(size=80))[:, None]
    rows = TuningRows(X, y - y.mean())
    error = squared_loss(leave_one_out(RBF(1.0), rows, X, linear_part=False))
    Z = projected_map(RBF(1.0), X[:20]).transform(X)

    def left_out(mu):
        errors = []
        for i in range(20, 80):
            keep = np.arange(80) != i
            A = Z[keep].T @ Z[keep] + mu * np.eye(Z.shape[1])
            theta = np.linalg.solve(A, Z[keep].T @ rows.targets[keep])
            errors.append(float((rows.targets[i] - Z[i] @ theta)[0]))
        return np.sqrt(np.mean(np.square(errors))) / np.std(y)

    # μ is chosen inside by GCV: the error is one of those on the path of μ, near the least.
    path = np.array([left_out(mu) for mu in np.logspace(-6, 1, 120)])
    assert np.abs(path - error).min() < 0.005 * error
    assert error < 1.1 * path.min()


def test_one_outlying_row_does_not_decide():
    rows = rows_of(n=300)
    spoiled = rows.targets.copy()
    spoiled[200] += 50
    spoiled /= spoiled.std()
    wild = squared_loss(leave_one_out(RBF(1.0), TuningRows(rows.X, spoiled), rows.X))
    assert wild < 1.2


@pytest.mark.parametrize("K", [2, 4])
def test_classes_are_judged_by_their_probabilities(K):
    rng = np.random.default_rng(K)
    codes = rng.integers(K, size=400)
    ones = np.where(codes[:, None] == np.arange(K), 1.0, -1.0)[:, int(K == 2) :]
    scores = 0.6 * ones + 0.5 * rng.normal(size=ones.shape)
    weights = rng.uniform(0.5, 2, 400)
    all_scores = scores if K > 2 else np.hstack([-scores, scores])
    odds = fit_link(all_scores, codes, weights).log_odds(all_scores)
    expected = metrics.log_loss(codes, softmax(odds, axis=1), sample_weight=weights)
    mean, scale = ones.mean(axis=0), ones.std(axis=0)  # as the fit standardizes them
    left_out = LeftOut((ones - mean) / scale, (scores - mean) / scale, weights, scale)
    assert log_loss(left_out) == pytest.approx(expected, rel=1e-9)


def test_squares_may_prefer_another_kernel_than_labels():
    # Both err by as much, one of them on the side of the border that does no harm.
    y = np.repeat([-1.0, 1.0], 200)[:, None]
    errors = np.random.default_rng(0).normal(size=y.shape)
    harmless = LeftOut(y, y + 1.5 * np.abs(errors) * y, np.ones(400), np.ones(1))
    harmful = LeftOut(y, y - 1.2 * np.abs(errors) * y, np.ones(400), np.ones(1))
    assert squared_loss(harmless) > squared_loss(harmful)
    assert log_loss(harmless) < log_loss(harmful)


def test_a_classifier_says_what_its_kernel_was_judged_by():
    rows = rows_of(n=300)
    labels = rows.targets[:, 0] > 0
    model = squeak_dist.SqueakClassifier(max_dictionary=80).fit(rows.X, labels)
    assert model.report_["tuning"]["loss"] == "log loss"
    model = squeak_dist.SqueakRegressor(max_dictionary=80).fit(rows.X, rows.targets[:, 0])
    assert model.report_["tuning"]["loss"] == "error in standard deviations"


def test_rows_of_weight_zero_do_not_count():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 3))
    y = np.sin(2 * X[:, 0])
    v = np.r_[np.ones(300), np.zeros(200)]
    other = np.where(v > 0, y, rng.normal(size=500))
    scales = [
        squeak_dist.SqueakRegressor(max_dictionary=100).fit(X, t, sample_weight=v).kernel_
        for t in (y, other)
    ]
    assert scales[0] == scales[1]


# --- the choice -------------------------------------------------------------------------------


def test_a_tie_goes_to_the_simpler():
    median, ard = Candidate("median", RBF(1.0), 0.5), Candidate("ARD", RBF((1.0, 2.0)), 0.498)
    assert choose_kernel([median, ard], "error").chosen is median
    better = Candidate("ARD", RBF((1.0, 2.0)), 0.4)
    assert choose_kernel([median, better], "error").chosen is better
    unusable = [Candidate("median", RBF(1.0)), Candidate("ARD", RBF(2.0))]
    assert choose_kernel(unusable, "error").chosen is unusable[0]


def test_a_worse_likelihood_is_said():
    median, ard = Candidate("median", RBF(1.0), 0.5), Candidate("ARD", RBF((1.0, 2.0)), 0.6)
    with pytest.warns(TuningFellBack, match=r"0\.6, .* median distance 0\.5"):
        _warn_of_median(choose_kernel([median, ard], "error"))
    with pytest.warns(TuningFellBack, match="failed"):
        _warn_of_median(choose_kernel([median, Candidate("ARD", RBF((1.0, 2.0)))], "error"))


def fitted(X, y, **settings):
    return squeak_dist.SqueakRegressor(max_dictionary=300, **settings).fit(X, y)


def test_relevant_columns_are_found_by_a_fit():
    rows = rows_of(n=3000, d=10)
    X, y = rows.X, rows.targets[:, 0]
    new = rows_of(n=500, d=10, seed=5)
    error = {
        how: np.sqrt(
            np.mean((fitted(X, y, length_scale=how).predict(new.X) - new.targets[:, 0]) ** 2)
        )
        for how in ("auto", "isotropic", "median")
    }
    assert error["auto"] < 0.5 * error["isotropic"]
    assert error["isotropic"] < 1.05 * error["median"]
    report = fitted(X, y).report_["tuning"]
    assert report["chosen"] == "ARD"
    competed = [candidate["length_scale"] for candidate in report["candidates"]]
    assert competed == ["median", "median", "ARD", "ARD", "directions"]


def test_rough_and_smooth_functions_get_their_kernel():
    X = np.random.default_rng(0).uniform(0, 8, (2000, 1))
    rough = np.abs(np.mod(X[:, 0], 1.0) - 0.5)
    assert isinstance(fitted(X, rough).kernel_, Matern)
    assert isinstance(fitted(X, np.sin(3 * X[:, 0])).kernel_, RBF)
    assert isinstance(fitted(X, rough, kernel="rbf").kernel_, RBF)
    both = fitted(X, rough, length_scale=0.3)
    assert both.kernel_.length_scale == 0.3
    assert isinstance(both.kernel_, Matern)


@pytest.mark.parametrize("n", [2, 5, 39, 41])
def test_few_rows(n):
    rows = rows_of(n=n)
    model = fitted(rows.X, rows.targets[:, 0])
    assert np.isfinite(model.predict(rows.X)).all()


@pytest.mark.filterwarnings("ignore::squeak_dist.errors.ColumnsDropped")
@pytest.mark.parametrize("case", ["constant", "duplicates", "noise", "wide", "two values"])
def test_awkward_tables(case):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(200, 3))
    y = rng.normal(size=200)
    if case == "constant":
        X[:, 1:] = 7.0
    elif case == "duplicates":
        X = np.repeat(X[:4], 50, axis=0)
    elif case == "wide":
        X = rng.normal(size=(60, 150))
        y = X[:, 0]
    elif case == "two values":
        X = np.sign(X)
    model = fitted(X, y[: len(X)])
    predicted = model.predict(X)
    assert np.isfinite(predicted).all()
    assert predicted.std() < 1.5 * y.std()


def test_a_wrong_word():
    with pytest.raises(InvalidParameterError, match="'auto', 'ARD', 'isotropic', 'median'"):
        fitted(np.eye(3), np.arange(3.0), length_scale="ard")
    with pytest.raises(InvalidParameterError, match=r"isotropic.*got 'linear'"):
        fitted(np.eye(3), np.arange(3.0), kernel="linear", length_scale="isotropic")


def test_without_a_target_the_median_distance():
    X = np.random.default_rng(0).normal(size=(300, 3))
    model = squeak_dist.SqueakTransformer(max_dictionary=50).fit(
        pd.DataFrame(X, columns=list("abc"))
    )
    standardized = (X - X.mean(axis=0)) / X.std(axis=0)
    assert model.kernel_.length_scale == pytest.approx(median_length_scale(standardized), rel=0.02)
