"""The link from scores to probabilities."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression

from squeak_dist.calibration import SHARE_FLOOR, Link, fit_link, left_out_scores


def drawn(link, n=20_000, seed=0, K=3):
    """Scores, and classes drawn with the probabilities that a link gives them."""
    rng = np.random.default_rng(seed)
    scores = rng.uniform(-1.1, 1.1, size=(n, K))
    if K == 2:
        scores[:, 0] = -scores[:, 1]
    shares = softmax(link.log_odds(scores), axis=1)
    codes = (rng.random(n)[:, None] > shares.cumsum(axis=1)).sum(axis=1)
    return scores, codes, shares


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize(("slope", "power"), [(3.0, 0.0), (0.01, 1.0), (1.5, 0.8)])
def test_the_link_that_made_the_labels_is_found(slope, power, K):
    link = Link(slope, power, (0.5, -0.5, 0.0)[:K])
    scores, codes, shares = drawn(link, K=K)
    found = fit_link(scores, codes, np.ones(len(codes)))
    # slope and power pull the same way, so it is the probabilities that are determined
    np.testing.assert_allclose(softmax(found.log_odds(scores), axis=1), shares, atol=0.03)


def test_the_fit_is_a_minimum():
    """The loss is worse at every neighbour: the gradient handed to L-BFGS is the true one."""
    link = Link(2.0, 0.7, (0.3, 0.0, -0.3))
    scores, codes, _ = drawn(link, n=60)  # few rows, so that the prior counts
    weights = np.random.default_rng(1).uniform(0.5, 2, size=len(codes))
    best = fit_link(scores, codes, weights)

    def loss(slope, power, offsets):
        scaled = weights * len(weights) / weights.sum()
        odds = Link(slope, power, tuple(offsets)).log_odds(scores)
        logs = odds - np.log(np.exp(odds).sum(axis=1, keepdims=True))
        counts = np.bincount(codes, scaled)
        wanted = np.repeat(1 / (counts[codes] + 2)[:, None] / 2, 3, axis=1)
        wanted[np.arange(len(codes)), codes] = 1 - 1 / (counts[codes] + 2)
        return np.sum(np.square(offsets)) / 2 - np.sum(scaled[:, None] * wanted * logs)

    least = loss(best.slope, best.power, best.offsets)
    for j in range(5):
        for step in (-0.01, 0.01):
            t = np.array([best.slope, best.power, *best.offsets])
            t[j] += step
            if t[1] >= 0 and t[0] >= 0.01:
                assert loss(t[0], t[1], t[2:]) > least


def test_weights_are_numbers_of_rows():
    scores, codes, _ = drawn(Link(2.0, 0.2, (0.0, 0.0, 0.0)), n=500)
    repeats = np.arange(500) % 3
    weighted = fit_link(scores, codes, repeats.astype(float))
    repeated = fit_link(
        np.repeat(scores, repeats, axis=0), np.repeat(codes, repeats), np.ones(repeats.sum())
    )
    np.testing.assert_allclose(
        weighted.log_odds(scores), repeated.log_odds(scores), atol=0.02
    )  # but for rounding and the prior's part: rows in all are 500 against 499


def test_separable_classes_get_finite_numbers():
    scores = np.array([[0.9, -0.9], [-0.9, 0.9]] * 50)
    link = fit_link(scores, np.array([0, 1] * 50), np.ones(100))
    assert np.isfinite([link.slope, link.power, *link.offsets]).all()
    shares = softmax(link.log_odds(scores), axis=1)
    assert 0.95 < shares[0, 0] < 0.999


def test_probabilities_rise_with_the_score():
    link = fit_link(*drawn(Link(0.01, 1.0, (0.0, 0.0)), K=2)[:2], np.ones(20_000))
    f = np.linspace(-3, 3, 1001)
    odds = link.log_odds(np.column_stack([-f, f]))
    assert (np.diff(odds[:, 1] - odds[:, 0]) > 0).all()


def test_the_plain_rule_is_a_link():
    f = np.linspace(-0.9, 0.9, 50)
    odds = Link(0.0, 1.0, (0.0, 0.0)).log_odds(np.column_stack([-f, f]))
    assert SHARE_FLOOR < 0.05
    np.testing.assert_allclose(softmax(odds, axis=1)[:, 1], (1 + f) / 2)


def test_left_out_scores_are_those_of_fits_without_the_row():
    rng = np.random.default_rng(0)
    Phi, mu = rng.normal(size=(30, 5)), 0.7
    v = rng.uniform(0.5, 2, size=30)
    y = np.where(rng.random((30, 2)) < 0.5, 1.0, -1.0)

    def fitted(rows):
        A = (Phi[rows].T * v[rows]) @ Phi[rows] + mu * np.eye(5)
        return A, np.linalg.solve(A, (Phi[rows].T * v[rows]) @ y[rows])

    A, theta = fitted(np.arange(30))
    h = v * np.einsum("ij,ij->i", Phi, np.linalg.solve(A, Phi.T).T)
    ours = left_out_scores(Phi @ theta, y, h)
    for i in range(30):
        _, without = fitted(np.delete(np.arange(30), i))
        np.testing.assert_allclose(ours[i], Phi[i] @ without)


def test_of_two_classes_it_is_close_to_logistic_regression_on_the_score():
    scores, codes, _ = drawn(Link(2.0, 0.0, (0.4, -0.4)), n=5000, K=2)
    link = fit_link(scores, codes, np.ones(5000))
    platt = LogisticRegression(C=np.inf).fit(scores[:, 1:], codes)
    ours = softmax(link.log_odds(scores), axis=1)
    np.testing.assert_allclose(ours, platt.predict_proba(scores[:, 1:]), atol=0.03)
