"""Nanoseconds an entry of the kernel blocks and of the products with them.

    python benchmarks/blocks.py [--quick] [--csv FILE]

float32, 18 columns, m = 2,000, blocks of 512 rows into one buffer, the best of five. In "1"
one thread works alone, in "2" two processes work at once, as workers do: both their entries
count. "block": k(X, D); "product": K v and Kᵀ u from the same entries, a pass of conjugate
gradients. "of RBF": beside RBF in the same column. "ARD": a length scale per column. "floor": a
product of (d + 2) columns and one exponential in place, by NumPy.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from multiprocessing import get_context

import numpy as np
from output import Rows, run

from squeak_dist.conjugate_gradients import kernel_product
from squeak_dist.kernels import RBF, Kernel, Laplacian, Matern, kernel_block
from squeak_dist.linalg import single_blas_thread
from squeak_dist.nystrom import projected_map

D, M, BLOCK = 18, 2000, 512
KERNELS: dict[str, Kernel] = {
    "RBF": RBF(4.0),
    "RBF, ARD": RBF(tuple(3.0 + j / 10 for j in range(D))),
    "Matérn 1/2": Matern(4.0, nu=0.5),
    "Matérn 3/2": Matern(4.0, nu=1.5),
    "Matérn 5/2": Matern(4.0, nu=2.5),
    "Laplacian": Laplacian(18.0),
}


def rows(count: int) -> np.ndarray:
    return np.random.default_rng(count).normal(size=(count, D)).astype(np.float32)


def best(work: Callable[[], object], entries: int) -> float:
    """Return nanoseconds an entry on the clock, the best of five."""
    times = []
    for _ in range(5):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return 1e9 * min(times) / entries


def floor(n: int) -> float:
    X, Y = np.pad(rows(n), ((0, 0), (0, 2))), np.pad(rows(M), ((0, 0), (0, 2)))
    X, Y = X / 20, np.ascontiguousarray(Y.T)
    K = np.empty((BLOCK, M), np.float32)

    def passes() -> None:
        for start in range(0, n, BLOCK):
            np.matmul(X[start : start + BLOCK], Y, out=K)
            np.exp(K, out=K)

    with single_blas_thread():
        return best(passes, n * M)


def block(name: str, n: int) -> float:
    X, points, K = rows(n), rows(M), np.empty((BLOCK, M), np.float32)

    def passes() -> None:
        for start in range(0, n, BLOCK):
            kernel_block(KERNELS[name], X[start : start + BLOCK], points, K)

    with single_blas_thread():
        return best(passes, n * M)


def product(name: str, n: int) -> float:
    with single_blas_thread():
        nystrom, X, v = projected_map(KERNELS[name], rows(M)), rows(n), np.ones((M, 1))
        return best(lambda: kernel_product(nystrom, X, v), n * M)


def measure(quick: bool) -> Rows:
    n = 32 * BLOCK if quick else 128 * BLOCK
    cases = [("floor", floor, (n,))]
    cases += [(f"block, {name}", block, (name, n)) for name in KERNELS]
    cases += [(f"product, {name}", product, (name, n)) for name in KERNELS]
    found: Rows = []
    with get_context("spawn").Pool(2) as pool:
        pool.starmap(block, [("RBF", BLOCK)] * 2, chunksize=1)  # imports
        for label, function, arguments in cases:
            alone = pool.apply(function, arguments)
            both = pool.starmap(function, [arguments] * 2, chunksize=1)
            found.append({"what": label, "1": round(alone, 2), "2": round(max(both) / 2, 2)})
    at = {row["what"]: row["2"] for row in found}
    for row in found:
        kind = row["what"].partition(",")[0]
        row["of RBF"] = round(row["2"] / at.get(f"{kind}, RBF", at["block, RBF"]), 2)
    return found


if __name__ == "__main__":
    run(__doc__.splitlines()[0], measure)
