"""The tridiagonal form, beside NumPy's eigendecomposition and solves."""

import threading
import time

import numpy as np
import pytest

from squeak_dist.tridiagonal import Tridiagonal, diagonal_form, tridiagonal_form

LEVELS = np.eye(60)[np.random.default_rng(0).integers(60, size=400)]
MATRICES = {
    "columns of 0 and 1": LEVELS.T @ LEVELS,
    "many equal eigenvalues": np.kron(np.eye(40), np.ones((2, 2))) + 1e-9,
    "one row": np.array([[3.0]]),
    "zero": np.zeros((5, 5)),
    "identity": np.eye(70),
    "rank one": np.outer(np.arange(1.0, 80), np.arange(1.0, 80)),
    "tiny": np.diag([1e-200, 2e-200, 3e-200]),
    "huge": np.diag([1e150, 2e150, 3e150]) + 1e149,
}


def gram(m, decay, seed=0):
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(m, m)) * np.logspace(0, decay, m)
    return Z @ Z.T


@pytest.mark.parametrize("decay", [0, -4, -30])
@pytest.mark.parametrize("m", [2, 3, 64, 65, 300])
def test_it_is_the_same_matrix(m, decay):
    check(gram(m, decay))


@pytest.mark.parametrize("name", MATRICES)
def test_of_special_matrices_too(name):
    check(MATRICES[name])


def check(A):
    form, rotation = tridiagonal_form(A.copy())
    expected = np.linalg.eigvalsh(A)
    scale = np.abs(expected).max() or 1.0
    np.testing.assert_allclose(form.values / scale, expected / scale, atol=1e-13)
    assert (form.values >= 0).all()
    assert (np.diff(form.values) >= 0).all()
    Q = rotation.combined(np.eye(len(A)))
    np.testing.assert_allclose(Q.T @ Q, np.eye(len(A)), atol=1e-12)
    T = np.diag(form.diagonal) + np.diag(form.beside, 1) + np.diag(form.beside, -1)
    np.testing.assert_allclose(Q @ T @ Q.T / scale, A / scale, atol=1e-12)
    B = np.random.default_rng(1).normal(size=(len(A), 3))
    np.testing.assert_allclose(rotation.coordinates(B), Q.T @ B, atol=1e-12)
    mus = scale * np.logspace(-6, 0, 5)
    solutions, definite = form.solved(mus, rotation.coordinates(B))
    assert definite.all()
    for mu, solution in zip(mus, solutions, strict=True):
        found = scale * rotation.combined(solution)
        wanted = np.linalg.solve((A + mu * np.eye(len(A))) / scale, B)
        np.testing.assert_allclose(found, wanted, rtol=1e-7, atol=1e-8 * np.abs(wanted).max())


def test_of_no_rows_there_is_nothing():
    form, rotation = tridiagonal_form(np.empty((0, 0)))
    assert form.values.shape == (0,)
    assert rotation.coordinates(np.empty((0, 2))).shape == (0, 2)
    assert rotation.combined(np.empty((0, 2))).shape == (0, 2)
    solutions, definite = form.solved(np.ones(3), np.empty((0, 2)))
    assert solutions.shape == (3, 0, 2)
    assert definite.all()


def test_no_columns_have_no_coordinates():
    form, rotation = tridiagonal_form(gram(5, 0))
    none = rotation.coordinates(np.empty((5, 0)))
    assert none.shape == (5, 0)
    assert form.solved(np.ones(2), none)[0].shape == (2, 5, 0)


def test_negative_eigenvalues_are_raised_to_zero():
    """Sums in float32 have such as are far below those of rounding in float64."""
    form, rotation = tridiagonal_form(np.diag([1.0, 0.0, -1e-3]))
    np.testing.assert_allclose(form.values, [0, 1e-3, 1.001], atol=1e-15)
    B = rotation.coordinates(np.ones((3, 1)))
    solutions, definite = form.solved(np.array([1e-4]), B)
    assert definite.all()
    np.testing.assert_allclose(
        rotation.combined(solutions[0]), 1 / np.array([[1.0011], [0.0011], [0.0001]])
    )


def test_a_penalty_that_rounding_outweighs_is_told():
    form = Tridiagonal(np.array([1.0, 1.0]), np.array([1.0]), np.array([0.0, 2.0]))
    solutions, definite = form.solved(np.array([1e-20, 1e-2]), np.ones((2, 1)))
    assert definite.tolist() == [False, True]
    assert not solutions[0].any()
    np.testing.assert_allclose(solutions[1], 1 / 2.01)


def test_a_diagonal_form_divides():
    values = np.array([0.0, 1.0, 3.0])
    solutions, definite = diagonal_form(values).solved(np.array([1.0, 2.0]), np.ones((3, 2)))
    assert definite.all()
    np.testing.assert_allclose(solutions[:, :, 0], 1 / (values + np.array([[1.0], [2.0]])))
    np.testing.assert_array_equal(solutions[:, :, 0], solutions[:, :, 1])


def test_what_is_not_finite_is_an_error_or_not_finite():
    A = gram(5, 0)
    A[2, 3] = A[3, 2] = np.nan
    try:
        form, _ = tridiagonal_form(A)
    except np.linalg.LinAlgError:
        return
    assert not np.isfinite(form.values).all()


def test_other_threads_go_on_meanwhile():
    """A worker answers its scheduler: nothing here holds the GIL for the whole of it."""
    A, ticks, over = gram(1200, -4), [], threading.Event()

    def count():
        while not over.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    beside = threading.Thread(target=count)
    beside.start()
    began = time.perf_counter()
    tridiagonal_form(A)
    seconds = time.perf_counter() - began
    over.set()
    beside.join()
    # Held through each of its routines, the GIL would let it tick twice or three times.
    assert sum(began <= tick <= began + seconds for tick in ticks) >= 10
