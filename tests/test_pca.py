"""SqueakPCA: against KernelPCA and dense algebra; variances, signs, weights, lazy scores."""

from __future__ import annotations

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from sklearn.decomposition import PCA, KernelPCA
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import laplacian_kernel, rbf_kernel
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from squeak_dist import Laplacian, Linear, SqueakPCA, SqueakTransformer
from squeak_dist.errors import InvalidParameterError
from squeak_dist.kernels import RBF
from squeak_dist.nystrom import projected_map
from squeak_dist.principal import add_rows, add_scatters, principal_components

SCALE = 1.5
GAMMA = 1 / (2 * SCALE**2)
FULL = {"gamma": 1e-10, "max_dictionary": None, "dtype": "float64", "length_scale": SCALE}


@pytest.fixture(name="X", scope="module")
def rows():
    return np.random.default_rng(0).normal(size=(200, 3))


def assert_equal_up_to_sign(ours, theirs, atol):
    signs = np.sign(np.einsum("ij,ij->j", ours, theirs))
    np.testing.assert_allclose(ours * signs, theirs, rtol=0, atol=atol)


# --- against others ---------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_kernel_pca_with_a_full_dictionary(X, dtype):
    ours = SqueakPCA(8, **{**FULL, "dtype": dtype}).fit(X)
    theirs = KernelPCA(8, kernel="rbf", gamma=GAMMA).fit(X)
    tight = dtype == "float64"
    np.testing.assert_allclose(
        ours.eigenvalues_, theirs.eigenvalues_, rtol=1e-9 if tight else 1e-5
    )
    new = np.random.default_rng(1).normal(size=(50, 3))
    for table in (X, new):
        assert_equal_up_to_sign(
            ours.transform(table), theirs.transform(table), 1e-6 if tight else 1e-4
        )
    assert ours.transform(new).dtype == dtype


def test_kernel_pca_of_all_components(X):
    ours = SqueakPCA(**FULL).fit(X)
    theirs = KernelPCA(kernel="rbf", gamma=GAMMA).fit(X)
    assert ours.n_components_ == 199  # n − 1: the mean is taken off
    np.testing.assert_allclose(ours.eigenvalues_, theirs.eigenvalues_[:199], atol=1e-10)
    assert ours.explained_variance_ratio_.sum() == pytest.approx(1, abs=1e-9)


def test_another_kernel(X):
    ours = SqueakPCA(4, kernel=Laplacian(2.0), gamma=1e-10, max_dictionary=None, dtype="float64")
    theirs = KernelPCA(4, kernel="precomputed").fit_transform(laplacian_kernel(X, gamma=0.5))
    assert_equal_up_to_sign(ours.fit_transform(X), theirs, 1e-6)


def test_the_linear_kernel_is_pca(X):
    X = X * [3.0, 2.0, 1.0] + [10.0, -5.0, 0.0]
    ours = SqueakPCA(3, kernel=Linear(), dtype="float64", gamma=1e-6, max_dictionary=None).fit(X)
    theirs = PCA(3).fit(X)
    np.testing.assert_allclose(ours.explained_variance_, theirs.explained_variance_, rtol=1e-6)
    np.testing.assert_allclose(
        ours.explained_variance_ratio_, theirs.explained_variance_ratio_, rtol=1e-6
    )
    assert_equal_up_to_sign(ours.transform(X), theirs.transform(X), 1e-4)


@pytest.mark.parametrize("approximation", ["projected", "regularized"])
def test_a_small_dictionary_is_pca_of_its_features(X, approximation):
    given = {
        "length_scale": SCALE, "max_dictionary": 25, "dtype": "float64",
        "approximation": approximation,
    }  # fmt: skip
    Z = SqueakTransformer(**given).fit_transform(X)
    ours = SqueakPCA(6, **given).fit(X)
    theirs = PCA(6, svd_solver="full").fit(Z)
    assert len(ours.components_) == Z.shape[1] <= 25
    np.testing.assert_allclose(ours.explained_variance_, theirs.explained_variance_, rtol=1e-8)
    assert_equal_up_to_sign(ours.transform(X), theirs.transform(Z), 1e-8)
    kernel = rbf_kernel(X - X.mean(axis=0), gamma=GAMMA)
    unexplained = len(X) - np.trace(Z @ Z.T)
    total = np.square(Z - Z.mean(axis=0)).sum() + unexplained
    assert np.trace(kernel) == len(X)
    np.testing.assert_allclose(ours.explained_variance_ratio_, ours.eigenvalues_ / total)
    explained = SqueakPCA(**given).fit(X).explained_variance_ratio_.sum()
    assert explained == pytest.approx(1 - unexplained / total, abs=1e-6)
    assert 0.1 < explained < 1 - 1e-3


def test_more_rows_of_the_dictionary_explain_more(X):
    sums = [
        SqueakPCA(5, length_scale=SCALE, max_dictionary=m, dtype="float64").fit(X).eigenvalues_
        for m in (10, 40, 200)
    ]
    best = KernelPCA(5, kernel="rbf", gamma=GAMMA).fit(X).eigenvalues_
    assert np.all(sums[0] <= best + 1e-9)
    assert np.all(sums[1] <= best + 1e-9)
    assert sums[0].sum() < sums[1].sum() < sums[2].sum() + 1e-9
    np.testing.assert_allclose(sums[1], best, rtol=0.05)


# --- what the attributes say ------------------------------------------------------------------


def test_scores_have_mean_zero_and_the_variances_said(X):
    model = SqueakPCA(**{**FULL, "max_dictionary": 60, "gamma": "auto"}).fit(X)
    scores = model.transform(X)
    np.testing.assert_allclose(scores.mean(axis=0), 0, atol=1e-9)
    covariance = np.cov(scores.T)
    expected = np.diag(model.explained_variance_)
    np.testing.assert_allclose(covariance, expected, rtol=0, atol=1e-9)
    assert np.all(np.diff(model.eigenvalues_) <= 0)
    assert np.all(model.eigenvalues_ > 0)
    np.testing.assert_allclose(model.eigenvalues_, model.explained_variance_ * 199)


def test_a_score_is_what_the_attributes_say(X):
    model = SqueakPCA(3, max_dictionary=30, dtype="float64").fit(X)
    encoded, _ = model.model_.encoding.encode(X)
    by_hand = model.kernel_(encoded, model.components_) @ model.dual_coef_ + model.intercept_
    np.testing.assert_allclose(by_hand, model.transform(X), rtol=0, atol=1e-10)
    assert model.dual_coef_.shape == (len(model.components_), 3)
    assert model.get_feature_names_out().tolist() == ["squeakpca0", "squeakpca1", "squeakpca2"]
    assert model.report_["task"] == "components"
    assert model.report_["components"] == 3


def test_signs_do_not_depend_on_the_order_of_the_rows(X):
    shuffled = np.random.default_rng(2).permutation(len(X))
    one, other = (SqueakPCA(6, **FULL).fit(rows) for rows in (X, X[shuffled]))
    np.testing.assert_allclose(one.transform(X), other.transform(X), rtol=0, atol=1e-8)
    scores = one.transform(X)  # here every row is a point of the dictionary
    assert np.all(scores[np.argmax(np.abs(scores), axis=0), np.arange(6)] > 0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_equal_rows(X, dtype):
    doubled = np.concatenate([X[:60], X[:60]])
    ours = SqueakPCA(5, **{**FULL, "dtype": dtype}).fit(doubled)
    theirs = KernelPCA(5, kernel="rbf", gamma=GAMMA).fit(doubled)
    atol = 1e-6 if dtype == "float64" else 1e-4
    assert_equal_up_to_sign(ours.transform(X), theirs.transform(X), atol)
    assert ours.dual_coef_.shape == (60, 5)


def test_a_weight_is_a_number_of_repeated_rows(X):
    weights = np.arange(len(X)) % 3
    repeated = np.repeat(X, weights, axis=0)
    weighted = SqueakPCA(5, **FULL).fit(X, sample_weight=weights)
    again = SqueakPCA(5, **FULL).fit(repeated)
    np.testing.assert_allclose(weighted.eigenvalues_, again.eigenvalues_, rtol=1e-9)
    np.testing.assert_allclose(weighted.transform(X), again.transform(X), rtol=0, atol=1e-7)
    np.testing.assert_allclose(
        weighted.explained_variance_ratio_, again.explained_variance_ratio_, rtol=1e-9
    )
    doubled = SqueakPCA(5, **FULL).fit(X, sample_weight=np.full(len(X), 2.0))
    plain = SqueakPCA(5, **FULL).fit(X)
    np.testing.assert_allclose(doubled.explained_variance_, plain.explained_variance_, rtol=1e-9)
    np.testing.assert_allclose(doubled.eigenvalues_, 2 * plain.eigenvalues_, rtol=1e-9)


def test_a_mean_far_larger_than_the_spread(X):
    scale = 100.0
    ours = SqueakPCA(4, **{**FULL, "dtype": "float32", "length_scale": scale}).fit(X)
    theirs = KernelPCA(4, kernel="rbf", gamma=1 / (2 * scale**2)).fit(X)
    np.testing.assert_allclose(ours.eigenvalues_[:3], theirs.eigenvalues_[:3], rtol=1e-3)


@pytest.mark.parametrize("value", [0, -1, 2.0, 0.9, "mle", True])
def test_wrong_numbers_of_components(X, value):
    with pytest.raises(InvalidParameterError, match="n_components"):
        SqueakPCA(value).fit(X)


def test_more_components_than_there_are(X):
    model = SqueakPCA(10**6, length_scale=SCALE, max_dictionary=20).fit(X)
    assert model.n_components_ == len(model.components_) <= 20
    assert np.isfinite(model.transform(X)).all()
    assert SqueakPCA(np.int64(3), max_dictionary=20).fit(X).n_components_ == 3


def test_a_partition_of_rows_that_are_all_equal():
    X = np.array([[0.0, 1.0]] * 20 + [[1.0, 0.0]] * 20)
    model = SqueakPCA(dtype="float64").fit(X)
    assert model.n_components_ == 1
    assert model.explained_variance_ratio_[0] == pytest.approx(1)
    assert len(np.unique(model.transform(X).round(9))) == 2


# --- lazily, and in pipelines -----------------------------------------------------------------


def test_collections_give_the_same_components(X):
    frame = pd.DataFrame(X, columns=list("abc"))
    plain = SqueakPCA(4, max_dictionary=40, dtype="float64").fit(frame)
    for lazy in (dd.from_pandas(frame, npartitions=5), da.from_array(X, chunks=(40, 1))):
        model = SqueakPCA(4, max_dictionary=40, dtype="float64").fit(lazy)
        scores = model.transform(lazy)
        assert scores.shape[1] == 4
        assert len(model.report_["partition_rows"]) == 5
        # Another dictionary, as the partitions are others; nearly the same components.
        assert_equal_up_to_sign(np.asarray(scores.compute()), plain.transform(X), 0.1)


def test_in_a_grid_search(X):
    labels = np.hypot(X[:, 0], X[:, 1]) > 1.2  # no line tells them apart
    pipeline = make_pipeline(SqueakPCA(max_dictionary=60), LogisticRegression(C=100))
    search = GridSearchCV(pipeline, {"squeakpca__n_components": [1, 12]}, cv=3).fit(X, labels)
    assert search.best_params_ == {"squeakpca__n_components": 12}
    assert search.best_score_ > 0.85


# --- the mathematics --------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_sums_merge(X, weighted):
    """However the rows are cut, in chains or in a tree."""
    weights = np.random.default_rng(3).uniform(size=len(X)) if weighted else None
    nystrom = projected_map(RBF(SCALE), X[:30])

    def rows_of(start, stop, before=None):
        part = slice(start, stop)
        return add_rows(nystrom, X[part], None if weights is None else weights[part], before)

    whole = principal_components(nystrom, rows_of(0, 200), 5)
    pieces = add_scatters(rows_of(0, 70), rows_of(70, 71), rows_of(71, 71), rows_of(71, 200))
    chained = rows_of(120, 200, before=rows_of(0, 120))
    for sums in (pieces, chained):
        other = principal_components(nystrom, sums, 5)
        np.testing.assert_allclose(other.eigenvalues, whole.eigenvalues, rtol=1e-9)
        np.testing.assert_allclose(other.offsets, whole.offsets, atol=1e-7)
        assert other.total == pytest.approx(whole.total, rel=1e-9)
        assert other.divisor == pytest.approx(whole.divisor, rel=1e-12)
    v = np.ones(200) if weights is None else weights
    assert whole.divisor == pytest.approx(v.sum() * 199 / 200)
