from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from squeak_dist import nystrom as module
from squeak_dist.dictionary import Dictionary
from squeak_dist.kernels import RBF, Laplacian, Linear, Matern, Polynomial
from squeak_dist.nystrom import (
    approximation_error,
    projected_map,
    regularized_factor,
    regularized_map,
    row_slices,
)

KERNELS = [RBF(0.3), Matern(2.0, 2.5), Laplacian(3.0), Polynomial(3.0, degree=2)]
each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: type(k).__name__)


@pytest.fixture
def table(uneven_rows):
    return uneven_rows(200)


def sampled(X, m=40, gamma=1.3, qbar=8, weights=False):
    rng = np.random.default_rng(7)
    rows = rng.choice(len(X), m, replace=False)
    return Dictionary(
        points=X[rows],
        indices=rows,
        probabilities=rng.uniform(0.1, 1.0, m),
        multiplicities=rng.integers(1, qbar + 1, m),
        row_weights=rng.uniform(0.2, 2.0, m) if weights else np.ones(m),
        gamma=gamma,
        qbar=qbar,
    )


def dense_regularized(kernel, X, D, gamma):
    """K S (SᵀKS + γI)⁻¹ SᵀK by the book."""
    C = kernel(X, D.points) * D.column_weights
    B = D.column_weights[:, None] * kernel(D.points, D.points) * D.column_weights
    return C @ np.linalg.solve(B + gamma * np.eye(len(D)), C.T)


# --- K̃ = Z Zᵀ -----------------------------------------------------------------------------


@each_kernel
@pytest.mark.parametrize("gamma", [None, 5.0])
@pytest.mark.parametrize("weights", [False, True])
def test_the_regularized_map_gives_the_nystrom_matrix_of_the_paper(kernel, table, gamma, weights):
    D = sampled(table, weights=weights)
    Z = regularized_map(kernel, D, gamma).transform(table)
    assert Z.shape == (200, 40)
    expected = dense_regularized(kernel, table, D, D.gamma if gamma is None else gamma)
    assert_allclose(Z @ Z.T, expected, rtol=0, atol=1e-9 * np.abs(expected).max())


@each_kernel
def test_the_projected_map_is_the_projection(kernel, table):
    points = table[::10]
    Z = projected_map(kernel, points).transform(table)
    C = kernel(table, points)
    expected = C @ np.linalg.lstsq(kernel(points, points), C.T, rcond=1e-12)[0]
    scale = np.abs(expected).max()
    assert_allclose(Z @ Z.T, expected, rtol=0, atol=1e-5 * scale)
    # On the points themselves nothing is lost, up to the jitter.
    own = projected_map(kernel, points).transform(points)
    assert_allclose(own @ own.T, kernel(points, points), rtol=0, atol=1e-10 * scale)


@each_kernel
def test_splitting_a_column_into_its_copies_changes_nothing(kernel, table):
    """Q copies of weight 1/sqrt(q̄p) are one column of weight sqrt(Q/(q̄p))."""
    D = sampled(table, m=15)
    copies = np.repeat(np.arange(15), D.multiplicities)
    split = D.take(copies)
    split = Dictionary(
        split.points,
        np.arange(len(copies)),
        split.probabilities,
        np.ones(len(copies), np.int64),
        split.row_weights,
        D.gamma,
        D.qbar,
    )
    whole, parts = (regularized_map(kernel, d).transform(table) for d in (D, split))
    assert_allclose(parts @ parts.T, whole @ whole.T, rtol=0, atol=1e-9 * np.abs(whole).max() ** 2)


def test_regularized_factor_is_a_cholesky_factor(table):
    D = sampled(table, weights=True)
    L = regularized_factor(RBF(1.0), D, 0.7)
    s = D.column_weights
    B = s[:, None] * RBF(1.0)(D.points) * s + 0.7 * np.eye(40)
    assert_allclose(L @ L.T, B, rtol=0, atol=1e-12 * B.max())
    assert_array_equal(np.triu(L, 1), np.zeros((40, 40)))


def test_equal_rows_in_a_dictionary_do_no_harm(table):
    points = np.repeat(table[:20], 3, axis=0)
    single = projected_map(Matern(1.0), table[:20]).transform(table)
    triple = projected_map(Matern(1.0), points).transform(table)
    assert np.all(np.isfinite(triple))
    assert_allclose(triple @ triple.T, single @ single.T, atol=1e-6)


# --- residuals ----------------------------------------------------------------------------


@each_kernel
def test_the_residual_is_what_the_map_leaves(kernel, table):
    nystrom = regularized_map(kernel, sampled(table))
    Z = nystrom.transform(table)
    expected = kernel.diag(table) - np.sum(Z**2, axis=1)
    residual = nystrom.residual(table)
    assert residual.dtype == np.float64
    assert_allclose(residual, np.maximum(expected, 0), atol=1e-9 * kernel.diag(table).max())
    assert approximation_error(nystrom, table) == pytest.approx(residual.mean())
    trace = np.trace(kernel(table) - Z @ Z.T) / 200
    assert approximation_error(nystrom, table) == pytest.approx(trace, rel=1e-6)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_residual_of_known_rows_is_a_rounding_not_zero_and_not_negative(table, dtype):
    points = table[:30].astype(dtype)
    residual = projected_map(RBF(1.0), points).residual(points)
    assert np.all(residual > 0)
    assert residual.max() < (1e-10 if dtype == np.float64 else 1e-4)


def test_more_columns_never_explain_less(table):
    D = sampled(table)
    all_columns = regularized_map(RBF(1.0), D).residual(table)
    some_columns = regularized_map(RBF(1.0), D.take(np.arange(0, 40, 4))).residual(table)
    assert np.all(all_columns <= some_columns + 1e-12)


def test_float32_rows_give_float32_features_close_to_double(table):
    X = table.astype(np.float32)
    D32, D64 = sampled(X), sampled(X.astype(np.float64))
    single = regularized_map(RBF(1.0), D32)
    Z = single.transform(X)
    assert Z.dtype == np.float32
    assert single.factor.dtype == np.float64
    assert_allclose(Z, regularized_map(RBF(1.0), D64).transform(X.astype(np.float64)), atol=2e-5)


# --- blocks and coefficients --------------------------------------------------------------


def test_blocks_are_the_transform_in_one_reused_buffer(table, monkeypatch):
    monkeypatch.setattr(module, "_BLOCK_ROWS", 64)
    nystrom = regularized_map(RBF(1.0), sampled(table))
    pieces, buffers = [], set()
    for rows, Z in nystrom.blocks(table):
        buffers.add(Z.__array_interface__["data"][0])
        pieces.append((rows, Z.copy()))
    assert [(r.start, r.stop) for r, _ in pieces] == [(0, 64), (64, 128), (128, 192), (192, 200)]
    assert len(buffers) == 1
    together = np.concatenate([Z for _, Z in pieces])
    assert_allclose(together, nystrom.transform(table), rtol=0, atol=1e-12)


def test_no_rows_give_no_features(table):
    nystrom = regularized_map(RBF(1.0), sampled(table))
    assert nystrom.transform(table[:0]).shape == (0, 40)
    assert nystrom.residual(table[:0]).shape == (0,)
    assert list(nystrom.blocks(table[:0])) == []
    assert len(nystrom) == 40


@pytest.mark.parametrize("make", [regularized_map, lambda k, D: projected_map(k, D.points)])
def test_coefficients_turn_features_into_kernel_columns(table, make):
    nystrom = make(Matern(2.0), sampled(table))
    theta = np.random.default_rng(0).normal(size=(40, 2))
    by_features = nystrom.transform(table) @ theta
    by_columns = Matern(2.0)(table, nystrom.points) @ nystrom.coefficients(theta)
    assert_allclose(by_columns, by_features, atol=1e-9)


def test_a_linear_kernel_needs_as_many_rows_as_features(table):
    nystrom = projected_map(Linear(), table[:3])
    assert nystrom.residual(table).max() < 1e-9 * Linear().diag(table).max()


def test_row_slices_cover_each_row_once():
    for n in (0, 1, 5, 6, 7):
        covered = [i for s in row_slices(n, 3) for i in range(n)[s]]
        assert covered == list(range(n))
