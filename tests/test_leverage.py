from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import linalg as reference

from squeak_dist.dictionary import Dictionary
from squeak_dist.kernels import RBF, Matern
from squeak_dist.leverage import (
    accuracy_ratio,
    effective_dimension,
    estimated_effective_dimension,
    exact_rls,
    merge_gamma,
    rls_of_dictionary,
    rls_of_new_rows,
    theory_qbar,
)
from squeak_dist.linalg import inverse_diagonal
from squeak_dist.nystrom import regularized_factor, regularized_map


def weighted_dictionary(X, seed=0, gamma=2.0, qbar=8, row_weights=None):
    rng = np.random.default_rng(seed)
    return Dictionary(
        points=X,
        indices=np.arange(len(X)),
        probabilities=rng.uniform(0.2, 1.0, len(X)),
        multiplicities=rng.integers(1, qbar + 1, len(X)),
        row_weights=np.ones(len(X)) if row_weights is None else row_weights,
        gamma=gamma,
        qbar=qbar,
    )


# --- exact ------------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [1e-3, 1.0, 50.0])
def test_exact_rls_are_the_diagonal_of_the_smoother(uneven_rows, gamma):
    K = Matern(1.0)(uneven_rows(150))
    smoother = K @ np.linalg.inv(K + gamma * np.eye(150))
    tau = exact_rls(K, gamma)
    assert_allclose(tau, np.diagonal(smoother), rtol=1e-9, atol=1e-12)
    assert effective_dimension(K, gamma) == pytest.approx(np.trace(smoother), rel=1e-10)
    values = reference.eigvalsh(K)
    assert effective_dimension(K, gamma) == pytest.approx(np.sum(values / (values + gamma)))


def test_exact_rls_lie_between_0_and_1_and_fall_in_gamma(uneven_rows):
    K = RBF(1.0)(uneven_rows(120))
    scores = [exact_rls(K, gamma) for gamma in (0.01, 0.1, 1.0, 10.0)]
    for lower, higher in zip(scores[1:], scores, strict=False):
        assert np.all(lower < higher)
        assert np.all(higher < 1)
        assert np.all(lower > 0)


def test_exact_rls_fall_as_rows_arrive(uneven_rows):
    K = RBF(1.0)(uneven_rows(120))
    before = exact_rls(K[:60, :60], 1.0)
    after = exact_rls(K, 1.0)[:60]
    assert np.all(after <= before + 1e-12)


def test_equal_rows_share_their_leverage():
    K = np.ones((40, 40))
    assert_allclose(exact_rls(K, 2.0), np.full(40, 1 / 42))


def test_an_integer_weight_is_a_repeated_row(uneven_rows):
    """v copies of a row have v times the leverage of one of them."""
    X = uneven_rows(60)
    v = np.random.default_rng(0).integers(1, 5, 60)
    repeated = np.repeat(X, v, axis=0)
    of_repeated = exact_rls(RBF(1.0)(repeated), 1.0)
    weighted = np.sqrt(v)[:, None] * RBF(1.0)(X) * np.sqrt(v)
    sums = np.add.reduceat(of_repeated, np.concatenate([[0], np.cumsum(v)[:-1]]))
    assert_allclose(exact_rls(weighted, 1.0), sums, rtol=1e-9)


# --- constants --------------------------------------------------------------------------


def test_accuracy_ratio_and_merge_gamma_are_those_of_the_paper():
    assert accuracy_ratio(0.3) == pytest.approx(1.3 / 0.7)
    assert accuracy_ratio(0.3, 2) == pytest.approx(1.9 / 0.7)
    assert accuracy_ratio(0.3, 4) == pytest.approx(3.1 / 0.7)
    assert merge_gamma(5.0, 0.3, 1) == 5.0
    assert merge_gamma(5.0, 0.3, 2) == pytest.approx(6.5)
    assert merge_gamma(5.0, 0.2, 4) == pytest.approx(8.0)


def test_theory_qbar_is_that_of_theorem_1():
    alpha = (1 + 0.5) / (1 - 0.5)
    expected = math.ceil(39 * alpha * math.log(2 * 1000 / 0.1) / 0.25)
    assert theory_qbar(1000, 0.5, 0.1) == expected == 4635
    assert isinstance(theory_qbar(1000, 0.5, 0.1), int)
    assert theory_qbar(10**6, 0.3, 0.1) > 10_000


# --- estimates --------------------------------------------------------------------------


def test_the_estimate_without_a_dictionary_is_that_of_one_row_alone():
    assert_allclose(
        rls_of_new_rows(np.array([1.0, 3.0]), 2.0, 0.3, np.array([1.0, 2.0])),
        [0.7 * 1 / 3, 0.7 * 6 / 8],
    )
    assert rls_of_new_rows(np.array([1.0]), 2.0, 0.3, np.array([0.0]))[0] == 0.0


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_new_rows_are_judged_as_if_they_were_in_with_weight_one(uneven_rows, dtype):
    """(1 − ε) r/(r + γ) is eq. (rls-estimator) of the dictionary with the row appended."""
    X = uneven_rows(80, dtype=dtype)
    D, new = weighted_dictionary(X[:50]), X[50:]
    kernel, eps = Matern(1.0), 0.25
    v = np.random.default_rng(1).uniform(0.2, 3.0, len(new))
    got = rls_of_new_rows(regularized_map(kernel, D).residual(new), D.gamma, eps, v)
    for x, weight, tau in zip(new, v, got, strict=True):
        joined = Dictionary(
            points=np.vstack([D.points, x]),
            indices=np.arange(51),
            probabilities=np.append(D.probabilities, 1.0),
            multiplicities=np.append(D.multiplicities, D.qbar),
            row_weights=np.append(D.row_weights, weight),
            gamma=D.gamma,
            qbar=D.qbar,
        )
        diagonal = inverse_diagonal(regularized_factor(kernel, joined, D.gamma))
        expected = rls_of_dictionary(diagonal, joined.selection_weights, D.gamma, eps)[-1]
        assert tau == pytest.approx(expected, rel=1e-9 if dtype == np.float64 else 1e-4)


@pytest.mark.parametrize("inner", [2.0, 2.6])
def test_the_estimate_of_dictionary_rows_is_the_residual_over_gamma(uneven_rows, inner):
    """(1 − ε)(1 − γ[B⁻¹]_ii)/s² = (1 − ε) v r(x_i)/γ, with the γ inside B in front."""
    X = uneven_rows(60)
    v = np.random.default_rng(2).uniform(0.5, 2.0, 60)
    D = weighted_dictionary(X, row_weights=v)
    kernel, eps = RBF(1.0), 0.3
    diagonal = inverse_diagonal(regularized_factor(kernel, D, inner))
    got = rls_of_dictionary(diagonal, D.selection_weights, inner, eps)
    residual = regularized_map(kernel, D, inner).residual(X)
    assert_allclose(got, (1 - eps) * v * residual / inner, rtol=1e-8)
    # And the matrix form of the paper, written out.
    K, s = kernel(X), D.column_weights
    B = s[:, None] * K * s + inner * np.eye(60)
    explained = np.einsum("ij,jk,ki->i", K * s, np.linalg.inv(B), s[:, None] * K)
    assert_allclose(got, (1 - eps) * v * (np.diagonal(K) - explained) / inner, rtol=1e-7)


def test_with_all_rows_at_weight_one_the_estimate_is_exact_up_to_epsilon(uneven_rows):
    X = uneven_rows(70)
    D = Dictionary(X, np.arange(70), np.ones(70), np.full(70, 8), np.ones(70), 1.5, 8)
    diagonal = inverse_diagonal(regularized_factor(RBF(1.0), D, 1.5))
    tau = exact_rls(RBF(1.0)(X), 1.5)
    got = rls_of_dictionary(diagonal, D.selection_weights, 1.5, 0.2)
    assert_allclose(got, 0.8 * tau, rtol=1e-8)
    assert estimated_effective_dimension(diagonal, 1.5) == pytest.approx(tau.sum())


def test_rounding_never_makes_an_estimate_negative():
    above = np.array([1 / 2.0 + 1e-17, 0.5 * (1 + 1e-15)])
    assert np.all(rls_of_dictionary(above, np.ones(2), 2.0, 0.3) >= 0)
