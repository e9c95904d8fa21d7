"""The eigendecomposition whose vectors stay a product, beside NumPy's."""

import threading
import time

import numpy as np
import pytest

from squeak_dist.eigen import eigen

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
def test_it_is_the_eigendecomposition(m, decay):
    check(gram(m, decay))


@pytest.mark.parametrize("name", MATRICES)
def test_it_is_that_of_special_matrices_too(name):
    check(MATRICES[name])


def check(A):
    values, vectors = eigen(A.copy())
    expected = np.linalg.eigvalsh(A)
    scale = np.abs(expected).max() or 1.0
    np.testing.assert_allclose(values / scale, expected / scale, atol=1e-13)
    V = vectors.combined(np.eye(len(A)))
    np.testing.assert_allclose(V.T @ V, np.eye(len(A)), atol=1e-12)
    np.testing.assert_allclose((V * values) @ V.T / scale, A / scale, atol=1e-12)
    B = np.random.default_rng(1).normal(size=(len(A), 3))
    np.testing.assert_allclose(vectors.coordinates(B), V.T @ B, atol=1e-12)


def test_of_no_rows_there_is_nothing():
    values, vectors = eigen(np.empty((0, 0)))
    assert values.shape == (0,)
    assert vectors.coordinates(np.empty((0, 2))).shape == (0, 2)
    assert vectors.combined(np.empty((0, 2))).shape == (0, 2)


def test_no_vectors_have_no_coordinates():
    _, vectors = eigen(gram(5, 0))
    assert vectors.coordinates(np.empty((5, 0))).shape == (5, 0)


def test_what_is_not_finite_is_an_error_or_not_finite():
    A = gram(5, 0)
    A[2, 3] = A[3, 2] = np.nan
    try:
        values, _ = eigen(A)
    except np.linalg.LinAlgError:
        return
    assert not np.isfinite(values).all()


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
    eigen(A)
    seconds = time.perf_counter() - began
    over.set()
    beside.join()
    # Held through each of its routines, the GIL would let it tick twice or three times.
    assert sum(began <= tick <= began + seconds for tick in ticks) >= 10
