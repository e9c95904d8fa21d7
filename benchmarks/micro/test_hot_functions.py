"""The functions that a fit spends its time in, for comparison of one change with another.

    pytest benchmarks/micro --benchmark-save=before     # and, after the change:
    pytest benchmarks/micro --benchmark-compare=0001

Needs pytest-benchmark. Processor seconds of one BLAS thread; 18 columns, m = 500.
"""

from __future__ import annotations

import time

import numpy as np
import pytest

from squeak_dist.conjugate_gradients import kernel_product
from squeak_dist.kernels import RBF, Laplacian, Matern, kernel_block
from squeak_dist.linalg import single_blas_thread
from squeak_dist.nystrom import projected_map
from squeak_dist.solvers import joint_equations
from squeak_dist.squeak import SqueakParameters, finish, merge, squeak, start_state

ROWS, COLUMNS, M = 8192, 18, 500

pytestmark = pytest.mark.benchmark(timer=time.thread_time, min_rounds=5, warmup=True)


@pytest.fixture(autouse=True)
def _one_thread():
    with single_blas_thread():
        yield


@pytest.fixture(scope="module", name="X")
def _rows() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(ROWS, COLUMNS)).astype(np.float32)


@pytest.fixture(scope="module")
def nystrom(X):
    with single_blas_thread():
        return projected_map(RBF(4.0), X[:M])


KERNELS = [RBF(4.0), Matern(4.0), Laplacian(4.0)]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: type(kernel).__name__)
def test_kernel_block(benchmark, X, kernel):
    out = np.empty((1024, M), np.float32)
    benchmark(lambda: kernel_block(kernel, X[:1024], X[:M], out))


def test_features(benchmark, X, nystrom):
    benchmark(lambda: nystrom.residual(X[:2048]))


def test_normal_equations(benchmark, X, nystrom):
    targets = np.ones((ROWS, 1))
    benchmark(lambda: joint_equations(nystrom, X, targets, None))


def test_kernel_product(benchmark, X, nystrom):
    direction = np.ones((M, 1))
    benchmark(lambda: kernel_product(nystrom, X, direction, None))


def _dictionary(X: np.ndarray, seed: int):
    settings = SqueakParameters(gamma=1.0, max_dictionary=300)
    rng = np.random.default_rng(seed)
    start = start_state(COLUMNS, X.dtype, settings)
    indices = np.arange(len(X)) + seed * len(X)
    state = squeak(RBF(4.0), X, settings, rng, start=start, indices=indices)
    return finish(RBF(4.0), state, settings, rng).dictionary


def test_chain(benchmark, X):
    benchmark(lambda: _dictionary(X, 0))


def test_merge(benchmark, X):
    settings = SqueakParameters(gamma=1.0, max_dictionary=300)
    parts = [_dictionary(X[:4096], 0), _dictionary(X[4096:], 1)]
    benchmark(lambda: merge(RBF(4.0), parts, settings, np.random.default_rng(0)))
