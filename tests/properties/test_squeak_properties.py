"""Laws of dictionaries that hold for any rows, whatever the random numbers."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from squeak_dist.kernels import RBF, Laplacian, Linear, Matern
from squeak_dist.linalg import inverse_diagonal
from squeak_dist.nystrom import regularized_factor
from squeak_dist.squeak import (
    SqueakParameters,
    finish,
    merge,
    shrink,
    squeak,
    squeak_by_row,
    start_state,
)

few = settings(max_examples=150, deadline=None)


@pytest.fixture(autouse=True, scope="module")
def _many_shrinks():
    """Shrink and prefilter from a few rows on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("squeak_dist.squeak.MIN_ROWS", 8)
        patch.setattr("squeak_dist.squeak.COARSE_FROM", 8)
        yield


@st.composite
def tables(draw, max_rows=120):
    """Rows from spread out to all equal, in either precision."""
    n, d = draw(st.integers(1, max_rows)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    X = rng.normal(size=(n, d)) * draw(st.sampled_from([1e-6, 0.3, 3.0, 1e3]))
    if draw(st.booleans()):  # many equal rows
        X = X[rng.integers(0, max(1, n // 4), n)]
    return X.astype(draw(st.sampled_from([np.float32, np.float64])))


kernels = st.sampled_from([RBF(1.0), Matern(0.5, 2.5), Laplacian(2.0), Linear(10.0)])
seeds = st.integers(0, 2**32 - 1)
parameters_of_squeak = st.builds(
    SqueakParameters,
    gamma=st.sampled_from([1e-4, 0.1, 1.0, 100.0]),
    epsilon=st.sampled_from([0.1, 0.3, 0.7]),
    qbar=st.sampled_from([1, 2, 16, 200]),
    max_dictionary=st.sampled_from([None, 1, 12, 40]),
    on_overrun=st.sampled_from(["raise_gamma", "stop"]),
    growth=st.sampled_from([1.01, 1.5, 3.0]),
    prefilter=st.booleans(),
)


def assert_valid(D, X, parameters):
    assert len(set(D.indices.tolist())) == len(D)
    assert np.array_equal(D.points, X[D.indices])
    assert D.points.dtype == X.dtype
    assert np.all((D.probabilities > 0) & (D.probabilities <= 1))
    assert np.all((D.multiplicities >= 1) & (D.multiplicities <= parameters.qbar))
    assert np.all(np.diff(D.indices) > 0)  # in the order of arrival
    assert parameters.gamma <= D.gamma < np.inf


def by_row(D):
    columns = (D.indices, D.probabilities, D.multiplicities)
    return {i: (p, q) for i, p, q in zip(*columns, strict=True)}


def assert_only_falls(before, after):
    """What stays has no higher p and no more copies."""
    for row in before.keys() & after.keys():
        assert after[row][0] <= before[row][0]
        assert after[row][1] <= before[row][1]


@few
@given(tables(), kernels, parameters_of_squeak, seeds, st.integers(1, 12))
def test_along_a_stream_rows_only_fall(X, kernel, parameters, seed, pieces):
    rng = np.random.default_rng(seed)
    state = start_state(X.shape[1], X.dtype, parameters)
    limit = parameters.max_dictionary
    for piece in [*np.array_split(X, pieces), X[:0]]:
        before, seen = by_row(state.dictionary), state.rows_seen
        if len(piece):
            state = squeak(kernel, piece, parameters, rng, start=state)
        else:
            state = finish(kernel, state, parameters, rng)
        assert_valid(state.dictionary, X, parameters)
        after = by_row(state.dictionary)
        assert_only_falls(before, after)
        # A row that was dropped never comes back: what is new came with this piece.
        assert all(seen <= row < state.rows_seen for row in after.keys() - before.keys())
        assert limit is None or len(after) <= math.ceil(parameters.growth * limit)
    assert state.rows_seen == len(X) or state.stopped
    assert limit is None or len(state.dictionary) <= limit


@few
@given(tables(max_rows=25), kernels, parameters_of_squeak, seeds)
def test_the_one_row_form_halves_at_most(X, kernel, parameters, seed):
    parameters = replace(parameters, max_dictionary=None)  # a raised γ lowers p by more
    rng = np.random.default_rng(seed)
    state = start_state(X.shape[1], X.dtype, parameters)
    for t in range(len(X)):
        before = by_row(state.dictionary) | {t: (1.0, parameters.qbar)}
        state = squeak_by_row(kernel, X[t : t + 1], parameters, rng, start=state)
        after = by_row(state.dictionary)
        assert after.keys() <= before.keys()
        assert_only_falls(before, after)
        for row in after:
            assert after[row][0] >= before[row][0] / 2


@few
@given(tables(), kernels, parameters_of_squeak, seeds, st.integers(1, 5), st.randoms())
def test_merge_is_closed_in_any_order(X, kernel, parameters, seed, k, random):
    """A merge of dictionaries of disjoint rows, in any order, obeys the same laws."""
    pieces = np.array_split(np.arange(len(X)), k)
    random.shuffle(pieces)
    parts = []
    for piece in pieces:
        rng = np.random.default_rng([seed, len(parts)])
        state = squeak(kernel, X[piece], parameters, rng, indices=piece)
        parts.append(finish(kernel, state, parameters, rng).dictionary)
    merged = merge(kernel, parts, parameters, np.random.default_rng(seed))
    before = {row: value for D in parts for row, value in by_row(D).items()}
    after = by_row(merged)
    assert after.keys() <= before.keys()
    assert_only_falls(before, after)
    assert merged.gamma >= max(D.gamma for D in parts)
    assert_valid(merged.take(np.argsort(merged.indices)), X, parameters)
    if parameters.max_dictionary and parameters.on_overrun == "raise_gamma":
        assert len(merged) <= parameters.max_dictionary


@few
@given(tables(max_rows=60), kernels, st.sampled_from([0.1, 1.0, 10.0]), seeds)
def test_shrinking_again_and_again_ends_nowhere_but_lower(X, kernel, gamma, seed):
    parameters = SqueakParameters(gamma=gamma, qbar=16)
    rng = np.random.default_rng(seed)
    D = squeak(kernel, X, parameters, rng).dictionary
    for _ in range(4):
        thinner = shrink(kernel, D, parameters, rng)
        assert_only_falls(by_row(D), by_row(thinner))
        assert len(thinner) <= len(D)
        D = thinner
    assert_valid(D, X, parameters)


@few
@given(tables(max_rows=60), kernels, st.sampled_from([0.1, 1.0, 10.0]), seeds)
def test_a_larger_gamma_gives_smaller_scores(X, kernel, gamma, seed):
    """Why raising γ is sound: each 1 − γ[B⁻¹]_ii falls in γ."""
    rng = np.random.default_rng(seed)
    D = squeak(kernel, X, SqueakParameters(gamma=gamma), rng).dictionary
    lower, higher = (
        1 - g * inverse_diagonal(regularized_factor(kernel, D, g)) for g in (2 * gamma, gamma)
    )
    assert np.all(lower <= higher + 1e-12)
