"""Parameters from a sample: length scale, spectrum, gamma."""

from __future__ import annotations

import warnings

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import pdist
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import cross_val_score

import squeak_dist
from squeak_dist.kernels import RBF, Linear
from squeak_dist.leverage import effective_dimension, exact_rls
from squeak_dist.squeak import SqueakParameters, finish, merge, squeak
from squeak_dist.tuning import (
    SampleSpectrum,
    choose_gamma,
    median_length_scale,
    sample_spectrum,
)


def even(n, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 3))


def uneven(n, seed=0):
    rng = np.random.default_rng(seed)
    return rng.choice([0.1, 1, 4], size=(n, 1), p=[0.8, 0.17, 0.03]) * rng.normal(size=(n, 3))


def target(X, seed=0, noise=0.1):
    rng = np.random.default_rng(seed)
    return np.sin(X[:, 0]) + np.tanh(X[:, 1] * X[:, 2]) + noise * rng.normal(size=len(X))


# --- length scale -----------------------------------------------------------------------------


def test_the_median_distance():
    X = even(200)
    assert median_length_scale(X) == pytest.approx(np.median(pdist(X)), rel=1e-9)
    assert median_length_scale(X.astype(np.float32)) == pytest.approx(
        np.median(pdist(X)), rel=1e-5
    )
    assert median_length_scale(7 * X) == pytest.approx(7 * median_length_scale(X))


def test_the_median_over_different_rows():
    X = even(30)
    duplicated = np.vstack([X, np.repeat(X[:1], 300, axis=0)])
    scale = median_length_scale(duplicated)
    assert np.quantile(pdist(X), 0.05) < scale < np.quantile(pdist(X), 0.95)
    many = np.repeat(X, 30, axis=0)
    assert median_length_scale(many) == pytest.approx(median_length_scale(X), rel=1e-6)


@pytest.mark.parametrize(
    "X", [np.zeros((20, 3)), np.full((20, 3), 1e9), np.empty((0, 3)), np.ones((1, 3))]
)
def test_without_different_rows(X):
    assert median_length_scale(X) == 1.0


def test_a_column_that_hardly_varies():
    X = even(100)
    X[:, 1] = 1e-9 * X[:, 1]
    assert median_length_scale(X) == pytest.approx(np.median(pdist(X[:, [0, 2]])), rel=1e-6)


# --- spectrum ---------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [even, uneven])
@pytest.mark.parametrize(("length_scale", "gamma"), [(2.0, 3.0), (2.0, 30.0), (0.7, 0.3)])
def test_the_effective_dimension_of_all_rows(rows, length_scale, gamma):
    X = rows(2500)
    kernel = RBF(length_scale)
    exact = effective_dimension(kernel(X, X), gamma)
    sample = np.random.default_rng(1).choice(2500, 1000, replace=False)
    spectrum = sample_spectrum(kernel, X[sample], 2500)
    # Where it is large for the sample, what the sample says of the rows it holds is too
    # little by up to a third.
    assert spectrum.effective_dimension(gamma) == pytest.approx(exact, rel=0.15)


@pytest.mark.parametrize("rows", [even, uneven])
@pytest.mark.parametrize("gamma", [3.0, 0.1])
def test_the_size_of_a_dictionary_beyond_half_the_sample(rows, gamma):
    X, kernel = rows(8000), RBF(0.7)
    spectrum = sample_spectrum(kernel, X[::8], 8000)
    parameters, rng = SqueakParameters(gamma=gamma), np.random.default_rng(0)
    chains = [
        finish(kernel, squeak(kernel, part, parameters, rng), parameters, rng).dictionary
        for part in np.array_split(X, 4)
    ]
    pairs = [merge(kernel, chains[i : i + 2], parameters, rng) for i in (0, 2)]
    size = len(merge(kernel, pairs, parameters, rng))
    assert spectrum.dictionary_size(gamma, 0.3, 16) == pytest.approx(size, rel=0.15)


def test_of_a_sample_that_is_everything_it_is_exact():
    X, v = even(300), np.random.default_rng(0).uniform(0, 3, 300)
    kernel = RBF(1.5)
    spectrum = sample_spectrum(kernel, X, 300, v)
    K = np.sqrt(v) * np.sqrt(v)[:, None] * kernel(X, X)
    np.testing.assert_allclose(spectrum.rls(0.5), exact_rls(K, 0.5), atol=1e-9)
    assert spectrum.effective_dimension(0.5) == pytest.approx(effective_dimension(K, 0.5))


def test_the_effective_dimension_falls_with_gamma():
    spectrum = sample_spectrum(RBF(1.0), even(200), 10_000)
    values = [spectrum.effective_dimension(gamma) for gamma in (1e-6, 1e-2, 1.0, 1e2, 1e6)]
    assert values == sorted(values, reverse=True)
    assert values[0] <= 10_000
    sizes = [spectrum.dictionary_size(gamma, 0.3, 16) for gamma in (1e-6, 1e-2, 1.0, 1e2, 1e6)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] <= 10_000


def test_a_sample_larger_than_the_table_counts_as_the_table():
    X = even(50)
    assert sample_spectrum(RBF(1.0), X, 10).rows == 50
    assert isinstance(sample_spectrum(Linear(), X, 50), SampleSpectrum)


def test_mu_of_the_sample_is_a_good_penalty():
    X = even(400)
    y = target(X, noise=0.3)
    mu = sample_spectrum(RBF(1.5), X, 400).mu(y[:, None])

    def error(alpha):
        ridge = KernelRidge(alpha=alpha, kernel="rbf", gamma=0.5 / 1.5**2)
        return -cross_val_score(ridge, X, y, scoring="neg_mean_squared_error").mean()

    assert error(mu) < 1.1 * min(error(alpha) for alpha in np.logspace(-4, 2, 13))
    shifted = sample_spectrum(RBF(1.5), X, 400).mu(y[:, None] + 100)
    assert shifted == pytest.approx(mu, rel=1e-3)


# --- gamma ------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [even, uneven])
@pytest.mark.parametrize("budget", [100, 300])
@pytest.mark.parametrize("parts", [1, 4])
def test_the_dictionary_fills_its_budget(rows, budget, parts):
    X = rows(4000)
    frame = pd.DataFrame(X, columns=list("abc")).assign(y=target(X))
    model = squeak_dist.fit(dd.from_pandas(frame, npartitions=parts), target="y",
                            max_dictionary=budget)  # fmt: skip
    assert 0.75 * budget <= len(model.dictionary_) <= budget
    assert model.gamma_ < 3 * model.report_["gamma_requested"]


def choose(spectrum, y, **changes):
    settings = {
        "mu": None, "epsilon": 0.3, "qbar": 16, "max_dictionary": 100, "resolution": 1e-12,
    }  # fmt: skip
    return choose_gamma(spectrum, y[:, None], **(settings | changes))


def test_gamma_is_mu_where_the_budget_allows():
    X = even(500)
    spectrum, y = sample_spectrum(RBF(2.0), X, 500), target(X)
    assert choose(spectrum, y, max_dictionary=None) == pytest.approx(spectrum.mu(y[:, None]))
    assert choose(spectrum, y, max_dictionary=None, mu=0.5) == 0.5
    assert choose(spectrum, y, max_dictionary=10**6, mu=0.5) == 0.5
    tight = choose(spectrum, y, max_dictionary=20, mu=0.5)
    assert tight > 0.5
    assert spectrum.dictionary_size(tight, 0.3, 16) == pytest.approx(0.95 * 20, rel=0.01)


def test_gamma_is_never_below_what_rounding_can_tell():
    X = even(500)
    spectrum, y = sample_spectrum(RBF(2.0), X, 500), target(X, noise=0)
    fine = choose(spectrum, y, mu=1e-15, max_dictionary=None)
    coarse = choose(spectrum, y, mu=1e-15, max_dictionary=None, resolution=1e-3)
    assert coarse > fine > 1e-15


def test_a_large_mu_does_not_choose_a_gamma_that_keeps_nothing():
    X = even(500)
    spectrum = sample_spectrum(RBF(2.0), X, 500)
    gamma = choose(spectrum, target(X), mu=1e9)
    assert spectrum.dictionary_size(gamma, 0.3, 16) >= 5


@pytest.mark.parametrize("n", [2, 3, 5, 12])
@pytest.mark.parametrize("weighted", [False, True])
def test_very_small_tables(n, weighted):
    X = even(n)
    weights = np.linspace(0.5, 2, n) if weighted else None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = squeak_dist.fit(X, target(X), sample_weight=weights)
    assert np.isfinite(model.predict(X)).all()
    assert model.gamma_ > 0
    assert model.mu_ > 0


def test_weights_change_what_is_kept():
    X = uneven(3000)
    y = target(X)
    weights = np.where(X[:, 0] > 0, 100.0, 1.0)
    model = squeak_dist.fit(X, y, sample_weight=weights, max_dictionary=150)
    plain = squeak_dist.fit(X, y, max_dictionary=150)
    assert 0.7 * 150 <= len(model.dictionary_) <= 150
    share = [np.mean(X[m.component_indices_, 0] > 0) for m in (model, plain)]
    assert share[0] > share[1] + 0.2
