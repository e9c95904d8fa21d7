"""SQUEAK and its merge: what is exact, and what holds in the mean.

Statistical checks compare the mean of independent runs with its expectation. Counts
must agree within four standard errors (6e-5 to fail by chance), sums of weights within
five (6e-7 if they were normal, about 1e-4 with their skewness of 3 over 400 runs). Seeds
are fixed, so a test that passed once passes always on the same numpy.
"""

from __future__ import annotations

import pickle
from dataclasses import fields, replace
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import chi2

from squeak_dist import squeak as module
from squeak_dist.dictionary import Dictionary, empty_dictionary
from squeak_dist.errors import InvalidParameterError
from squeak_dist.kernels import RBF, Laplacian, Linear, Matern
from squeak_dist.leverage import effective_dimension, exact_rls, rls_of_new_rows
from squeak_dist.nystrom import regularized_map
from squeak_dist.squeak import (
    SqueakParameters,
    dictionary_effective_dimension,
    finish,
    merge,
    overrun_step,
    shrink,
    squeak,
    squeak_by_row,
    start_state,
    thin,
)

KERNEL = RBF(1.0)


def run(X, parameters, seed, kernel=KERNEL, **options):
    rng = np.random.default_rng(seed)
    return finish(kernel, squeak(kernel, X, parameters, rng, **options), parameters, rng)


def assert_valid(D, X, parameters, first=0):
    """A dictionary of rows of X, which are numbered from ``first``."""
    assert len(set(D.indices.tolist())) == len(D)
    assert_array_equal(D.points, X[D.indices - first])
    assert D.points.dtype == X.dtype
    assert D.probabilities.dtype == np.float64
    assert np.all((D.probabilities > 0) & (D.probabilities <= 1))
    assert D.multiplicities.dtype == D.indices.dtype == np.int64
    assert np.all((D.multiplicities >= 1) & (D.multiplicities <= parameters.qbar))
    assert np.all(np.isfinite(D.selection_weights))
    assert D.qbar == parameters.qbar


def assert_same_bits(left, right):
    for field in fields(Dictionary):
        assert_array_equal(getattr(left, field.name), getattr(right, field.name))


def assert_mean(samples, expected, standard_errors=5.0):
    samples = np.asarray(samples)
    error = samples.std(axis=0, ddof=1) / np.sqrt(len(samples))
    z = (samples.mean(axis=0) - expected) / error
    assert np.abs(z).max() < standard_errors, (samples.mean(axis=0), error, expected)


@pytest.fixture
def small_steps(monkeypatch):
    """Shrink every few rows and filter from the smallest dictionaries on."""
    monkeypatch.setattr(module, "MIN_ROWS", 8)
    monkeypatch.setattr(module, "COARSE_FROM", 8)


# --- a stream -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("prefilter", [True, False])
def test_a_stream_gives_a_valid_dictionary(dtype, prefilter, uneven_rows):
    X = uneven_rows(4000, dtype=dtype)
    parameters = SqueakParameters(gamma=0.5, prefilter=prefilter)
    state = run(X, parameters, 0)
    assert_valid(state.dictionary, X, parameters)
    assert state.rows_seen == state.rows_mapped == 4000
    assert state.mapped == len(state.dictionary)
    assert not state.stopped
    assert 100 < len(state.dictionary) < 3000
    assert state.dictionary.gamma == 0.5


def test_the_seed_decides_every_bit(uneven_rows):
    X = uneven_rows(2500, dtype=np.float32)
    parameters = SqueakParameters(gamma=1.0)
    assert_same_bits(run(X, parameters, 3).dictionary, run(X, parameters, 3).dictionary)
    other = run(X, parameters, 4).dictionary
    assert set(other.indices) != set(run(X, parameters, 3).dictionary.indices)


def test_no_rows_leave_the_state_as_it_is(uneven_rows):
    parameters = SqueakParameters(gamma=1.0)
    empty = run(np.empty((0, 3)), parameters, 0)
    assert (len(empty.dictionary), empty.rows_seen) == (0, 0)
    state = run(uneven_rows(100), parameters, 0)
    again = squeak(KERNEL, np.empty((0, 3)), parameters, np.random.default_rng(1), start=state)
    assert_same_bits(again.dictionary, state.dictionary)


def test_indices_count_on_or_are_those_given(uneven_rows):
    X, parameters = uneven_rows(300), SqueakParameters(gamma=0.1)
    rng = np.random.default_rng(0)
    state = squeak(KERNEL, X[:100], parameters, rng)
    state = squeak(KERNEL, X[100:], parameters, rng, start=state)
    assert_valid(state.dictionary, X, parameters)
    named = squeak(KERNEL, X[:100], parameters, rng, indices=np.arange(5000, 5100))
    assert_valid(named.dictionary, X, parameters, first=5000)


def test_finish_shrinks_what_came_since_the_last_shrink_once(uneven_rows):
    X, parameters = uneven_rows(600), SqueakParameters(gamma=1.0)
    rng = np.random.default_rng(0)
    state = squeak(KERNEL, X, parameters, rng)
    assert state.rows_mapped < state.rows_seen == 600
    done = finish(KERNEL, state, parameters, rng)
    assert len(done.dictionary) < len(state.dictionary)
    assert finish(KERNEL, done, parameters, rng) is done


def test_a_state_survives_a_pickle_bit_by_bit(uneven_rows):
    """Pieces p1, p2 with their own generators: wherever the state was in between."""
    X, parameters = uneven_rows(3000, dtype=np.float32), SqueakParameters(gamma=0.5)

    def second_half(state):
        rng = np.random.default_rng(2)
        state = squeak(KERNEL, X[1700:], parameters, rng, start=state)
        return finish(KERNEL, state, parameters, rng)

    state = squeak(KERNEL, X[:1700], parameters, np.random.default_rng(1))
    before = pickle.dumps(state)
    direct = second_half(state)
    thawed = second_half(pickle.loads(before))
    assert_same_bits(direct.dictionary, thawed.dictionary)
    assert (direct.rows_seen, direct.mapped) == (thawed.rows_seen, thawed.mapped)
    # Nothing was changed in place.
    assert pickle.dumps(state) == before


@pytest.mark.parametrize("pieces", [1, 2, 7, 60])
def test_pieces_give_valid_states_of_the_same_size(pieces, uneven_rows):
    X, parameters = uneven_rows(3000), SqueakParameters(gamma=1.0)
    rng = np.random.default_rng(0)
    state = start_state(3, X.dtype, parameters)
    for piece in np.array_split(X, pieces):
        state = squeak(KERNEL, piece, parameters, rng, start=state)
        assert_valid(state.dictionary, X, parameters)
    state = finish(KERNEL, state, parameters, rng)
    assert state.rows_seen == 3000
    whole = len(run(X, parameters, 1).dictionary)
    # Counts of that size have a standard deviation below its root: 4σ of a difference.
    assert abs(len(state.dictionary) - whole) < 4 * np.sqrt(2 * whole)


# --- Alg. 1 word for word --------------------------------------------------------------------


def literal_algorithm_1(kernel, X, gamma, epsilon, qbar, rng):
    """The paper's Alg. 1 in loops; yields [(row, p, Q), ...] after each row."""
    members = []
    alpha = (1 + epsilon) / (1 - epsilon)
    for t in range(len(X)):
        members.append((t, 1.0, qbar))
        m = len(members)
        rows = X[[t for t, _, _ in members]]
        K = kernel(rows, rows)
        S = np.diag([np.sqrt(Q / (qbar * p)) for _, p, Q in members])
        inverse = np.linalg.inv(S @ K @ S + gamma * np.eye(m))
        survivors = []
        for i, (row, p, Q) in enumerate(members):
            k_S = S @ K[:, i]
            tau = (1 + epsilon) / (alpha * gamma) * (K[i, i] - k_S @ inverse @ k_S)
            p_new = max(min(tau, p), p / 2)
            Q_new = int(rng.binomial(Q, p_new / p))
            if Q_new > 0:
                survivors.append((row, p_new, Q_new))
        members = survivors
        yield list(members)


@pytest.mark.parametrize("kernel", [RBF(1.0), Matern(1.0, 2.5), Laplacian(2.0)])
@pytest.mark.parametrize(("gamma", "epsilon", "qbar"), [(1.0, 0.3, 4), (0.2, 0.5, 16)])
def test_the_one_row_form_is_algorithm_1_step_by_step(kernel, gamma, epsilon, qbar, uneven_rows):
    X = uneven_rows(90, seed=2)
    parameters = SqueakParameters(gamma, epsilon, qbar)
    rng = np.random.default_rng(11)
    state = start_state(3, X.dtype, parameters)
    dropped = 0
    steps = literal_algorithm_1(kernel, X, gamma, epsilon, qbar, np.random.default_rng(11))
    for t, members in enumerate(steps):
        state = squeak_by_row(kernel, X[t : t + 1], parameters, rng, start=state)
        D = state.dictionary
        assert D.indices.tolist() == [row for row, _, _ in members]
        assert D.multiplicities.tolist() == [Q for _, _, Q in members]
        assert_allclose(D.probabilities, [p for _, p, _ in members], rtol=1e-10)
        dropped = t + 1 - len(D)
    assert dropped > 3
    assert state.rows_seen == 90
    whole = squeak_by_row(kernel, X, parameters, np.random.default_rng(11)).dictionary
    assert_same_bits(whole, D)


@pytest.mark.usefixtures("small_steps")
def test_blocks_keep_as_many_rows_as_one_row_at_a_time(uneven_rows, monkeypatch):
    """The mean size of the blocked forms is that of Alg. 1, whenever Shrink runs."""
    X, runs = uneven_rows(150, seed=4), 40
    by_row = [
        len(squeak_by_row(KERNEL, X, SqueakParameters(0.5), np.random.default_rng(s)).dictionary)
        for s in range(runs)
    ]
    for growth in (1.001, 1.2, 2.0):
        parameters = SqueakParameters(0.5, growth=growth)
        blocks = [len(run(X, parameters, [s, 1]).dictionary) for s in range(runs)]
        error = np.sqrt((np.var(by_row) + np.var(blocks)) / runs)
        # 4 standard errors of sampling, and 3 % for what the order of draws may change.
        assert abs(np.mean(by_row) - np.mean(blocks)) < 4 * error + 0.03 * np.mean(by_row), growth


# --- expected weights --------------------------------------------------------------------------


def weights_of(D, n):
    weights = np.zeros(n)
    weights[D.indices] = D.selection_weights**2
    return weights


def subsets(X, tau):
    """Fixed sets of rows as columns: all, halves, the dense, the far, and the leverage itself."""
    norms = np.linalg.norm(X, axis=1)
    first_half = np.arange(len(X)) < len(X) // 2
    far = norms >= np.quantile(norms, 0.95)
    return np.stack(
        [np.ones(len(X)), first_half, ~first_half, norms < 0.3, far, tau], axis=1
    ).astype(float)


PLAIN = SqueakParameters(gamma=1.0, qbar=4, growth=1.3)
STREAMS = {
    "prefilter": PLAIN,
    "no prefilter": replace(PLAIN, prefilter=False),
    "shrink after every row kept": replace(PLAIN, growth=1.0001),
    "gamma raised": replace(PLAIN, gamma=0.05, max_dictionary=25),
    "one copy": replace(PLAIN, qbar=1),
}


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("name", STREAMS)
def test_the_expected_weight_of_every_row_is_one(name, uneven_rows):
    """E[Q/(q̄p)] = 1 for each row, so any fixed sum is estimated without bias.

    Among them Σ s_i² τ_i with the exact τ, whose mean is d_eff.
    """
    n = 140
    X, parameters = uneven_rows(n, seed=1), STREAMS[name]
    columns = subsets(X, exact_rls(KERNEL(X), parameters.gamma))
    sums = [weights_of(run(X, parameters, s).dictionary, n) @ columns for s in range(400)]
    assert_mean(sums, columns.sum(axis=0))


def test_the_expected_weight_is_one_in_the_one_row_form(uneven_rows):
    n = 50
    X = uneven_rows(n, seed=1)
    columns = subsets(X, exact_rls(KERNEL(X), 1.0))
    sums = [
        weights_of(squeak_by_row(KERNEL, X, PLAIN, np.random.default_rng(s)).dictionary, n)
        @ columns
        for s in range(300)
    ]
    assert_mean(sums, columns.sum(axis=0))


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("k", [2, 3])
def test_the_expected_weight_is_one_after_merges(k, uneven_rows):
    n = 120
    X = uneven_rows(n, seed=1)
    columns = subsets(X, exact_rls(KERNEL(X), 1.0))
    sums = []
    for seed in range(300):
        parts = [
            run(X[piece], PLAIN, [seed, i], indices=piece).dictionary
            for i, piece in enumerate(np.array_split(np.arange(n), k))
        ]
        merged = merge(KERNEL, parts, PLAIN, np.random.default_rng([seed, k]))
        sums.append(weights_of(merged, n) @ columns)
    assert_mean(sums, columns.sum(axis=0))


@pytest.mark.usefixtures("small_steps")
def test_the_expected_weight_is_one_with_sample_weights(uneven_rows):
    n = 120
    X = uneven_rows(n, seed=1)
    v = np.random.default_rng(0).choice([0.0, 0.1, 1.0, 10.0], size=n)
    columns = np.stack([v == 0.1, v == 1.0, v == 10.0, v], axis=1).astype(float)
    sums = [
        weights_of(run(X, PLAIN, s, row_weights=v).dictionary, n) @ columns for s in range(400)
    ]
    assert_mean(sums, columns.sum(axis=0))


# --- the prefilter -----------------------------------------------------------------------------


class Judges:
    """Counts the maps that squeak makes, with and without a coarse one."""

    def __init__(self, monkeypatch):
        self.coarse = self.plain = 0
        make = module._make_judge

        def counted(*arguments):
            judge = make(*arguments)
            if judge.coarse is None:
                self.plain += 1
            else:
                assert len(judge.coarse) < len(judge.full) / 3
                self.coarse += 1
            return judge

        monkeypatch.setattr(module, "_make_judge", counted)


@pytest.mark.parametrize("prefilter", [True, False])
def test_one_block_is_sampled_by_the_full_map_with_or_without_prefilter(
    prefilter, uneven_rows, monkeypatch
):
    """Copies of 150 rows, judged again and again by the same state: Binomial(q̄, p) each.

    χ² of the copies per row at the 99.99 % quantile, and the mean of all within 4σ.
    """
    X = uneven_rows(1500)
    first = SqueakParameters(gamma=0.05, qbar=16)
    state = run(X, first, 0)
    assert len(state.dictionary) > module.COARSE_FROM
    new = uneven_rows(150, seed=8)
    residual = regularized_map(KERNEL, state.dictionary).residual(new)
    p = rls_of_new_rows(residual, 0.05, first.epsilon)
    judges = Judges(monkeypatch)
    runs, copies = 250, np.zeros(150)
    for seed in range(runs):
        rng = np.random.default_rng([seed, prefilter])
        parameters = replace(first, prefilter=prefilter)
        after = squeak(KERNEL, new, parameters, rng, start=state).dictionary
        arrived = after.indices[len(state.dictionary) :] - 1500
        assert_allclose(after.probabilities[len(state.dictionary) :], p[arrived], rtol=1e-9)
        copies[arrived] += after.multiplicities[len(state.dictionary) :]
    assert (judges.coarse, judges.plain) == ((runs, 0) if prefilter else (0, runs))
    mean, variance = runs * 16 * p, runs * 16 * p * (1 - p)
    frequent = mean > 5  # where the normal approximation of χ² holds
    assert frequent.sum() > 50
    statistic = np.sum((copies - mean)[frequent] ** 2 / variance[frequent])
    assert chi2.ppf(1e-4, frequent.sum()) < statistic < chi2.ppf(1 - 1e-4, frequent.sum())
    assert abs(copies.sum() - mean.sum()) < 4 * np.sqrt(variance.sum())


def test_streams_with_and_without_prefilter_keep_the_same(uneven_rows, monkeypatch):
    """Two samples of 25 runs: size, copies and parts of the rows differ within 4σ."""
    monkeypatch.setattr(module, "MIN_ROWS", 200)
    X = uneven_rows(1500)
    norms = np.linalg.norm(X, axis=1)
    groups = [norms < 0.2, (norms >= 0.2) & (norms < 1), norms >= 1, np.arange(1500) < 500]

    def statistics(prefilter):
        parameters = SqueakParameters(gamma=0.05, prefilter=prefilter)
        for seed in range(25):
            D = run(X, parameters, [seed, prefilter]).dictionary
            assert len(D) > module.COARSE_FROM
            counts = [group[D.indices].sum() for group in groups]
            yield [len(D), D.multiplicities.sum(), D.probabilities.sum(), *counts]

    judges = Judges(monkeypatch)
    with_it = np.array(list(statistics(True)))
    assert judges.coarse >= 15  # most runs shrink to more than 256 rows before their end
    judges.coarse = 0
    without = np.array(list(statistics(False)))
    assert judges.coarse == 0
    error = np.sqrt((with_it.var(axis=0, ddof=1) + without.var(axis=0, ddof=1)) / 25)
    assert np.abs((with_it.mean(axis=0) - without.mean(axis=0)) / error).max() < 4


# --- the limit ---------------------------------------------------------------------------------


class Shrinks:
    """Records the sizes of what goes into Shrink."""

    def __init__(self, monkeypatch):
        self.sizes = []

        def recorded(kernel, dictionary, *arguments, **options):
            self.sizes.append(len(dictionary))
            return shrink(kernel, dictionary, *arguments, **options)

        monkeypatch.setattr(module, "shrink", recorded)


@pytest.mark.parametrize("limit", [1, 40, 300, 700])
def test_the_limit_holds_and_gamma_pays_for_it(limit, uneven_rows, monkeypatch):
    X = uneven_rows(5000)
    parameters = SqueakParameters(gamma=1e-3, max_dictionary=limit)
    shrinks = Shrinks(monkeypatch)
    rng = np.random.default_rng(0)
    state = start_state(3, X.dtype, parameters)
    for piece in np.array_split(X, 10):
        state = squeak(KERNEL, piece, parameters, rng, start=state)
        done = finish(KERNEL, state, parameters, np.random.default_rng(1))
        assert len(done.dictionary) <= limit
        assert state.mapped <= limit
    assert_valid(done.dictionary, X, parameters)
    assert done.rows_seen == 5000
    assert max(shrinks.sizes) <= np.ceil(parameters.growth * limit)
    assert done.dictionary.gamma >= 2e-3
    # The limit is used, not undercut: no more than needed is paid.
    assert len(done.dictionary) >= 0.5 * limit or limit == 1


def test_the_limit_changes_nothing_where_it_is_wide(uneven_rows):
    X = uneven_rows(3000)
    free = run(X, SqueakParameters(gamma=2.0), 0)
    assert len(free.dictionary) < 512
    limited = run(X, SqueakParameters(gamma=2.0, max_dictionary=600), 0)
    assert_same_bits(free.dictionary, limited.dictionary)


def test_at_the_raised_gamma_the_dictionary_is_as_good_as_any(uneven_rows):
    """What remains weighs d_eff of the raised γ, and the approximation obeys its bound."""
    X = uneven_rows(1200)
    parameters = SqueakParameters(gamma=0.01, qbar=64, max_dictionary=300)
    D = run(X, parameters, 0).dictionary
    assert D.gamma > 1
    K, tau = KERNEL(X), exact_rls(KERNEL(X), D.gamma)
    assert D.selection_weights**2 @ tau[D.indices] == pytest.approx(tau.sum(), rel=0.3)
    Z = regularized_map(KERNEL, D).transform(X)
    bound = D.gamma / (1 - 0.3) * K @ np.linalg.inv(K + D.gamma * np.eye(1200))
    assert np.linalg.eigvalsh(bound + bound.T - 2 * (K - Z @ Z.T))[0] > -1e-9


@pytest.mark.parametrize("limit", [300, 600])
def test_stop_keeps_the_limit_and_says_how_far_it_came(limit, uneven_rows, monkeypatch):
    X = uneven_rows(3000)
    parameters = SqueakParameters(
        gamma=0.5, qbar=200, max_dictionary=limit, on_overrun="stop", growth=1.2
    )
    shrinks = Shrinks(monkeypatch)
    rng = np.random.default_rng(0)
    state = squeak(KERNEL, X, parameters, rng)
    assert state.stopped
    assert max(shrinks.sizes) <= limit
    D = state.dictionary
    assert 0.9 * limit < len(D) <= limit
    assert D.gamma == 0.5
    n = state.rows_seen
    assert len(D) <= n < 3000
    assert_valid(D, X[:n], parameters)
    # γ-approximation of exactly the rows seen.
    K = KERNEL(X[:n])
    Z = regularized_map(KERNEL, D).transform(X[:n])
    bound = 0.5 / (1 - 0.3) * K @ np.linalg.inv(K + 0.5 * np.eye(n))
    assert np.linalg.eigvalsh(bound + bound.T - 2 * (K - Z @ Z.T))[0] > -1e-9
    # Nothing goes in any more.
    later = squeak(KERNEL, X, parameters, rng, start=state)
    assert later.rows_seen == n
    assert_same_bits(later.dictionary, D)
    assert_same_bits(finish(KERNEL, later, parameters, rng).dictionary, D)


def test_stop_does_not_stop_where_the_limit_suffices(uneven_rows):
    X = uneven_rows(3000)
    state = run(X, SqueakParameters(gamma=10.0, max_dictionary=400, on_overrun="stop"), 0)
    assert not state.stopped
    assert state.rows_seen == 3000
    assert 50 < len(state.dictionary) < 300


# --- uneven streams ----------------------------------------------------------------------------


def test_equal_rows_need_a_handful_of_copies():
    """d_eff of n equal rows is n/(n + γ) < 1: about (1−ε) q̄ copies, 11 ± 3 at q̄ = 16."""
    X = np.tile([[1.0, -2.0]], (5000, 1))
    parameters = SqueakParameters(gamma=1.0)
    D = run(X, parameters, 0).dictionary
    assert_valid(D, X, parameters)
    assert 0 < len(D) <= 25
    assert np.sum(D.selection_weights**2) == pytest.approx(5000, rel=1.0)
    residual = regularized_map(KERNEL, D).residual(X[:1])[0]
    assert 0 < residual < 1e-3  # γ/(1−ε)·τ, about 3e-4
    assert dictionary_effective_dimension(KERNEL, D) == pytest.approx(1, abs=1e-3)


def test_a_row_that_comes_a_thousand_times_does_not_crowd_out_the_others(uneven_rows):
    """d_eff hardly changes, so neither does the rest of the dictionary."""
    X = uneven_rows(600)
    mixed = np.insert(X, np.random.default_rng(0).integers(0, 600, 1000), X[0], axis=0)
    parameters = SqueakParameters(gamma=1.0)
    D = run(mixed, parameters, 0).dictionary
    repeated = np.all(mixed[D.indices] == X[0], axis=1)
    assert repeated.sum() <= 25
    alone = len(run(X, parameters, 0).dictionary)
    assert abs(np.sum(~repeated) - alone) < 4 * np.sqrt(2 * alone)


def test_the_dictionary_learns_what_a_sudden_change_brings(uneven_rows):
    X = np.vstack([uneven_rows(2000) * 0.1, uneven_rows(2000, seed=1) + 20.0])
    parameters = SqueakParameters(gamma=2.0)
    D = run(X, parameters, 0).dictionary
    tau = exact_rls(KERNEL(X[::2]), 1.0)  # half of the rows, half of γ
    share = tau[1000:].sum() / tau.sum()
    kept = D.selection_weights**2 * exact_rls(KERNEL(X), 2.0)[D.indices]
    assert kept[D.indices >= 2000].sum() / kept.sum() == pytest.approx(share, abs=0.1)


def test_rows_of_weight_zero_are_never_kept(uneven_rows):
    X, parameters = uneven_rows(2000), SqueakParameters(gamma=0.1)
    v = np.tile([0.0, 1.0], 1000)
    D = run(X, parameters, 0, row_weights=v).dictionary
    assert len(D) > 50
    assert np.all(D.indices % 2 == 1)
    assert_array_equal(D.row_weights, np.ones(len(D)))
    nothing = run(X, parameters, 0, row_weights=np.zeros(2000))
    assert (len(nothing.dictionary), nothing.rows_seen) == (0, 2000)


def test_a_huge_gamma_may_leave_nothing_and_the_stream_goes_on(uneven_rows):
    """d_eff far below 1: the empty dictionary is accurate, and judges by k(x, x) alone."""
    X = uneven_rows(2000)
    parameters = SqueakParameters(gamma=1e9, qbar=1)
    state = run(X, parameters, 0)
    assert state.rows_seen == 2000
    assert len(state.dictionary) <= 2
    empty = empty_dictionary(3, X.dtype, 1e9, 1)
    assert dictionary_effective_dimension(KERNEL, empty) == 0.0
    assert len(merge(KERNEL, [empty, empty], parameters, np.random.default_rng(0))) == 0


def test_zero_rows_of_a_linear_kernel_have_no_leverage(uneven_rows):
    X = uneven_rows(1000)
    X[::2] = 0
    D = run(X, SqueakParameters(gamma=0.1), 0, kernel=Linear()).dictionary
    assert len(D) > 0
    assert np.all(D.indices % 2 == 1)


def test_the_effective_dimension_is_estimated_from_the_dictionary(uneven_rows):
    X = uneven_rows(1500)
    D = run(X, SqueakParameters(gamma=5.0, qbar=64), 0).dictionary
    exact = effective_dimension(KERNEL(X), 5.0)
    assert dictionary_effective_dimension(KERNEL, D) == pytest.approx(exact, rel=0.1)


# --- thin and merge ----------------------------------------------------------------------------


def some_dictionary(X, p=0.8, copies=6, qbar=8, gamma=1.0, first=0):
    m = len(X)
    return Dictionary(
        X,
        np.arange(first, first + m),
        np.full(m, p),
        np.full(m, copies),
        np.ones(m),
        gamma,
        qbar,
    )


def test_thin_lowers_to_the_estimate_and_never_raises(uneven_rows):
    D = some_dictionary(uneven_rows(6))
    tau = np.array([0.0, 0.2, 0.7, 0.8, 0.9, 50.0])
    thinned = thin(D, tau, np.random.default_rng(0))
    assert set(thinned.indices) >= {3, 4, 5}
    assert 0 not in thinned.indices
    assert_array_equal(thinned.probabilities, np.minimum(tau, 0.8)[thinned.indices])
    # Where p stays, so do all copies.
    assert_array_equal(thinned.multiplicities[np.isin(thinned.indices, [3, 4, 5])], [6, 6, 6])
    halved = thin(D, tau, np.random.default_rng(0), halving=True)
    assert_array_equal(halved.probabilities, np.clip(tau, 0.4, 0.8)[halved.indices])


def test_thin_keeps_copies_by_a_binomial_of_those_that_are_left(uneven_rows):
    """Q⁺ ~ Binomial(Q, p⁺/p), Q = 3 of q̄ = 8: mean and variance within 4σ of 20,000 rows."""
    m = 20_000
    D = some_dictionary(np.zeros((m, 1)), p=0.5, copies=3)
    thinned = thin(D, np.full(m, 0.1), np.random.default_rng(0))
    copies = np.zeros(m)
    copies[thinned.indices] = thinned.multiplicities
    counts = np.bincount(copies.astype(int), minlength=4)
    expected = m * np.array([0.8**3, 3 * 0.2 * 0.8**2, 3 * 0.2**2 * 0.8, 0.2**3])
    assert np.sum((counts - expected) ** 2 / expected) < chi2.ppf(1 - 6e-5, 3)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("k", [2, 3, 5])
def test_merge_is_closed(k, dtype, uneven_rows):
    X, parameters = uneven_rows(2400, dtype=dtype), SqueakParameters(gamma=1.0)
    parts = [
        run(X[piece], parameters, piece[0], indices=piece).dictionary
        for piece in np.array_split(np.arange(2400), k)
    ]
    merged = merge(KERNEL, parts, parameters, np.random.default_rng(0))
    assert_valid(merged, X, parameters)
    assert merged.gamma == 1.0
    united = np.concatenate([D.indices for D in parts])
    assert set(merged.indices) < set(united)
    # Rows keep their order, and neither p nor Q rises.
    position = {row: i for i, row in enumerate(united)}
    places = np.array([position[row] for row in merged.indices])
    assert all(a < b for a, b in pairwise(places))
    for column in ("probabilities", "multiplicities"):
        before = np.concatenate([getattr(D, column) for D in parts])
        assert np.all(getattr(merged, column) <= before[places])
    single = len(run(X, parameters, 0).dictionary)
    assert abs(len(merged) - single) < 0.3 * single


def test_merge_of_one_returns_it(uneven_rows):
    D = run(uneven_rows(100), SqueakParameters(gamma=1.0), 0).dictionary
    assert merge(KERNEL, [D], SqueakParameters(gamma=1.0), np.random.default_rng(0)) is D


def test_merge_of_unequal_gammas_is_at_the_larger(uneven_rows):
    X = uneven_rows(600)
    parts = [
        run(X[:300], SqueakParameters(gamma=0.1), 0).dictionary,
        run(X[300:], SqueakParameters(gamma=4.0), 0, indices=np.arange(300, 600)).dictionary,
    ]
    parameters = SqueakParameters(gamma=0.1)
    merged = merge(KERNEL, parts, parameters, np.random.default_rng(0))
    assert merged.gamma == 4.0
    at_large_gamma = run(X, SqueakParameters(gamma=4.0), 0).dictionary
    assert abs(len(merged) - len(at_large_gamma)) < 4 * np.sqrt(2 * len(at_large_gamma))


def test_merge_refuses_unequal_copies(uneven_rows):
    parts = [
        some_dictionary(uneven_rows(5)),
        some_dictionary(uneven_rows(5), qbar=16, first=5),
    ]
    with pytest.raises(InvalidParameterError, match="different qbar"):
        merge(KERNEL, parts, SqueakParameters(gamma=1.0, qbar=8), np.random.default_rng(0))


def test_merge_with_an_empty_dictionary_is_a_shrink_of_the_other(uneven_rows):
    X, parameters = uneven_rows(500), SqueakParameters(gamma=1.0)
    D = run(X, parameters, 0).dictionary
    empty = empty_dictionary(3, X.dtype, 1.0, 16)
    merged = merge(KERNEL, [empty, D], parameters, np.random.default_rng(0))
    assert_valid(merged, X, parameters)
    # The empty one stands for rows too, so k = 2.
    same = shrink(KERNEL, D, parameters, np.random.default_rng(0), merged=2)
    assert_same_bits(merged, same)


def test_merge_holds_the_limit(uneven_rows):
    X = uneven_rows(2000)
    loose = SqueakParameters(gamma=0.05)
    parts = [
        run(X[piece], loose, piece[0], indices=piece).dictionary
        for piece in np.array_split(np.arange(2000), 3)
    ]
    tight = replace(loose, max_dictionary=100)
    merged = merge(KERNEL, parts, tight, np.random.default_rng(0))
    assert 50 <= len(merged) <= 100
    assert merged.gamma > 0.05


@pytest.mark.parametrize(
    ("size", "factor"), [(101, 1.0201), (100, 1.02), (150, 2.25), (1000, 4.0)]
)
def test_the_step_of_an_overrun(size, factor):
    assert overrun_step(size, 100) == pytest.approx(factor)
