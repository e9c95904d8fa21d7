from __future__ import annotations

import os
import subprocess
import sys
from textwrap import dedent, indent

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import linalg as reference
from threadpoolctl import threadpool_info

from squeak_dist.errors import NumericalError, SqueakError
from squeak_dist.linalg import (
    add_gram,
    cholesky,
    cholesky_jittered,
    forward_substitution,
    inverse_diagonal,
    solve_lower,
    solve_lower_transposed,
    subtract_product,
    symmetrize,
    triangular_gram,
    triangular_inverse,
)

# Around the panels of 128 columns and the strips of 512.
SIZES = [1, 5, 127, 128, 129, 300, 513, 645]
each_size = pytest.mark.parametrize("m", SIZES)


def positive_definite(m, seed=0):
    rng = np.random.default_rng([seed, m])
    R = rng.normal(size=(m, m))
    return R @ R.T / m + np.diag(rng.uniform(0.1, 1.0, m))


def factor(m):
    return reference.cholesky(positive_definite(m), lower=True)


# --- factorizations ---------------------------------------------------------------------


@each_size
def test_cholesky_is_that_of_scipy(m):
    A = positive_definite(m)
    before = A.copy()
    L = cholesky(A)
    assert_allclose(L, reference.cholesky(A, lower=True), rtol=0, atol=1e-12)
    assert_array_equal(np.triu(L, 1), np.zeros((m, m)))
    assert_array_equal(A, before)


@each_size
def test_cholesky_reads_the_lower_triangle_only_and_may_reuse_the_memory(m):
    A = positive_definite(m)
    expected = cholesky(A)
    spoiled = A.copy()
    spoiled[np.triu_indices(m, 1)] = np.nan
    L = cholesky(spoiled, overwrite=True)
    assert L is spoiled
    assert_array_equal(L, expected)


def test_cholesky_of_an_empty_matrix_is_empty():
    assert cholesky(np.empty((0, 0))).shape == (0, 0)
    assert cholesky_jittered(np.empty((0, 0)), 1e-12).shape == (0, 0)
    assert inverse_diagonal(np.empty((0, 0))).shape == (0,)


@pytest.mark.parametrize("m", [5, 129, 300])
def test_cholesky_refuses_an_indefinite_matrix_in_any_panel(m):
    for position in (0, m // 2, m - 1):
        A = positive_definite(m)
        A[position, position] = -1.0
        with pytest.raises(np.linalg.LinAlgError):
            cholesky(A)


@each_size
def test_triangular_inverse_and_inverse_diagonal(m):
    L = factor(m)
    inverse = reference.solve_triangular(L, np.eye(m), lower=True)
    W = triangular_inverse(L)
    assert_allclose(W, inverse, rtol=0, atol=1e-11)
    assert_array_equal(np.triu(W, 1), np.zeros((m, m)))
    expected = np.diagonal(np.linalg.inv(positive_definite(m)))
    assert_allclose(inverse_diagonal(L), expected, rtol=1e-10)


# --- solves -----------------------------------------------------------------------------


@each_size
@pytest.mark.parametrize("k", [1, 3])
def test_triangular_solves_are_those_of_scipy(m, k):
    L = factor(m)
    b = np.random.default_rng(m).normal(size=(m, k))
    before = b.copy()
    assert_allclose(
        solve_lower(L, b), reference.solve_triangular(L, b, lower=True), rtol=0, atol=1e-10
    )
    assert_allclose(
        solve_lower_transposed(L, b),
        reference.solve_triangular(L, b, lower=True, trans="T"),
        rtol=0,
        atol=1e-10,
    )
    assert_array_equal(b, before)


@each_size
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-11), (np.float32, 2e-4)])
def test_forward_substitution_replaces_rows_in_place(m, dtype, tolerance):
    L = factor(m)
    rows = np.random.default_rng(m).normal(size=(17, m)).astype(dtype)
    expected = reference.solve_triangular(L, rows.astype(np.float64).T, lower=True).T
    forward = forward_substitution(L, np.dtype(dtype))
    assert forward.solve_rows(rows) is rows
    assert rows.dtype == dtype
    assert_allclose(rows, expected, rtol=0, atol=tolerance * np.abs(expected).max())


@each_size
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 1e-5)])
def test_add_gram_adds_to_what_is_there(m, dtype, tolerance):
    rows = np.random.default_rng(m).normal(size=(40, m)).astype(dtype)
    gram = np.eye(m)
    add_gram(rows, gram)
    add_gram(rows[:7], gram)
    doubled = rows.astype(np.float64)
    expected = np.eye(m) + doubled.T @ doubled + doubled[:7].T @ doubled[:7]
    full = symmetrize(gram)
    assert gram.dtype == np.float64
    assert_allclose(full, expected, rtol=0, atol=tolerance * 40)
    assert_array_equal(full, full.T)


@pytest.mark.parametrize("m", [1, 63, 64, 65, 128, 129, 400])
@pytest.mark.parametrize("n", [0, 1, 2, 300])
def test_forward_substitution_in_part_of_a_larger_array(m, n):
    L = factor(m)
    wide = np.random.default_rng(m).normal(size=(n + 2, m + 5))
    before = wide.copy()
    forward_substitution(L, np.dtype(np.float64)).solve_rows(wide[1 : n + 1, 2 : m + 2])
    expected = before.copy()
    solved = reference.solve_triangular(L, before[1 : n + 1, 2 : m + 2].T, lower=True).T
    expected[1 : n + 1, 2 : m + 2] = solved
    assert_allclose(wide, expected, rtol=0, atol=1e-11 * max(np.abs(solved).max(initial=0), 1))


def test_forward_substitution_of_no_rows():
    rows = np.empty((4, 0))
    assert forward_substitution(np.empty((0, 0)), np.dtype(float)).solve_rows(rows) is rows


@each_size
def test_triangular_gram(m):
    L = np.tril(np.random.default_rng(m).normal(size=(m, m)))
    found = triangular_gram(L.copy())
    assert_allclose(found, L.T @ L, rtol=0, atol=1e-13 * m)
    assert_array_equal(found, found.T)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("n", "k", "m"), [(1, 1, 1), (5, 3, 4), (1, 70, 9), (40, 200, 130)])
def test_a_product_is_subtracted_in_place(n, k, m, dtype):
    rng = np.random.default_rng(n)
    A, B, out = (rng.normal(size=shape).astype(dtype) for shape in ((n, k), (k, m), (n, m + 3)))
    expected = out.copy()
    expected[:, 2 : m + 2] -= A @ B
    subtract_product(A, B, out[:, 2 : m + 2])
    assert_allclose(out, expected, atol=(1e-12 if dtype == np.float64 else 1e-4))


def test_forward_substitution_may_round_tiny_solutions_to_zero():
    """Where right-hand sides are of size 1, values below 1e-17 mean nothing."""
    L = factor(300)
    rows = np.random.default_rng(0).normal(size=(9, 300)).astype(np.float32)
    rows[3:] *= np.float32(1e-25)
    plain = forward_substitution(L, np.dtype(np.float32)).solve_rows(rows.copy())
    flushed = forward_substitution(L, np.dtype(np.float32), flush=2.0**-30).solve_rows(rows.copy())
    assert_allclose(flushed[:3], plain[:3], rtol=0, atol=1e-5 * np.abs(plain).max())
    assert np.count_nonzero(plain[3:]) > 1000
    assert not flushed[3:].any()


# --- jitter -----------------------------------------------------------------------------


def test_a_definite_matrix_gets_the_first_jitter_only():
    A = positive_definite(200)
    L = cholesky_jittered(A, 1e-9)
    assert_allclose(L @ L.T - A, 1e-9 * A.diagonal().max() * np.eye(200), atol=1e-13)


@pytest.mark.parametrize("m", [20, 300])
def test_the_ladder_factorizes_a_singular_matrix_with_little_jitter(m):
    v = np.random.default_rng(0).normal(size=(m, 3))
    A = v @ v.T  # rank 3
    L = cholesky_jittered(A, 1e-16)
    scale = A.diagonal().max()
    assert np.abs(L @ L.T - A).max() < 1e-11 * scale
    added = np.diagonal(L @ L.T - A) / scale
    assert added.min() > -1e-14


def test_the_ladder_climbs_to_what_is_needed():
    A = np.diag([1.0, 1.0, -0.5e-3])
    L = cholesky_jittered(A, 1e-9)
    assert_allclose(np.diagonal(L @ L.T - A), 1e-3, rtol=1e-5)


def test_the_ladder_refuses_an_indefinite_matrix():
    A = np.diag([1.0, 1.0, -0.1])
    with pytest.raises(NumericalError, match=r"3 × 3 .*not positive definite even with 1e-2"):
        cholesky_jittered(A, 1e-14)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("where", [(2, 2), (2, 1)])
def test_the_ladder_refuses_values_that_are_not_finite(bad, where):
    A = np.eye(4)
    A[where] = bad
    with pytest.raises(NumericalError):
        cholesky_jittered(A, 1e-14)


def test_a_zero_matrix_is_regularized_as_if_its_scale_were_one():
    L = cholesky_jittered(np.zeros((3, 3)), 1e-6)
    assert_allclose(L, 1e-3 * np.eye(3))


def test_numerical_errors_are_arithmetic_errors():
    assert issubclass(NumericalError, ArithmeticError)
    assert issubclass(NumericalError, SqueakError)


# --- threads ----------------------------------------------------------------------------

# In a process of its own: the session of the tests holds the limit itself.
THREADS = """
import threading
from concurrent.futures import ThreadPoolExecutor
import numpy, scipy.linalg
from threadpoolctl import threadpool_info
from squeak_dist.linalg import single_blas_thread

def threads():
    return {p["num_threads"] for p in threadpool_info() if p["user_api"] == "blas"}

def inside():
    with single_blas_thread():
        return threads()

free = threads()
first, second = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
first.submit(int).result(), second.submit(int).result()  # both alive from here on
"""

THREAD_CASES = {
    "limits and restores": """
        assert inside() == {1}
        assert threads() == free
    """,
    "nests": """
        with single_blas_thread():
            assert inside() == {1}
            assert threads() == {1}
        assert threads() == free
    """,
    "restores after an exception": """
        try:
            with single_blas_thread(), single_blas_thread():
                raise KeyError
        except KeyError:
            pass
        assert threads() == free
    """,
    "works in every thread in turn": """
        for run in (first.submit, second.submit, first.submit):
            assert run(inside).result() == {1}
            assert run(threads).result() == free
        assert inside() == {1}
        assert threads() == free
    """,
    "is held until the last thread leaves": """
        entered, leave = threading.Event(), threading.Event()

        def hold():
            with single_blas_thread():
                entered.set()
                leave.wait(10)

        with single_blas_thread():
            held = first.submit(hold)
            assert entered.wait(10)
        assert threads() == second.submit(threads).result() == {1}  # ours is left, not theirs
        leave.set()
        held.result()
        assert threads() == second.submit(threads).result() == free
        assert second.submit(inside).result() == {1}
        assert threads() == free
    """,
}


@pytest.mark.parametrize("case", THREAD_CASES)
def test_single_blas_thread(case):
    script = f"{THREADS}\nif free != {{1}}:\n{indent(dedent(THREAD_CASES[case]), '    ')}"
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_session_of_the_tests_runs_on_one_blas_thread():
    assert {p["num_threads"] for p in threadpool_info() if p["user_api"] == "blas"} == {1}
