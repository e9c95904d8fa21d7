"""How far each stage of a fit is from its floor: a kernel pass and the BLAS it can't do without.

    python benchmarks/floor.py [--quick] [--csv FILE]

Seconds of processor time in one thread, fits and floors in the same run. The floors, each
measured on this machine at the size of the fit: a *kernel pass* is n × m entries in blocks of
2,048 rows by one product and one exponential in place, in float32. The dictionary: one kernel
pass. The direct solve: a kernel pass, the features (half of n × m by m × m: a triangle), their
sums (syrk) and one eigendecomposition of m × m in float64, for GCV. Conjugate gradients: seven
kernel passes, each with two products by a vector: five iterations, the sums of a start, the
residual.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from growth import seconds
from output import Rows, run
from scipy.linalg import blas, eigh

from squeak_dist.linalg import single_blas_thread

BLOCK = 2048
ITERATIONS = 5
SIZES = ((100_000, 18, 500), (100_000, 18, 1000), (100_000, 18, 2000), (300_000, 18, 1000))
QUICK = ((50_000, 18, 200), (50_000, 18, 400))


def timed(work: Callable[[], object]) -> float:
    """Return the least of three timings, seconds of processor time."""
    found = []
    for _ in range(3):
        began = time.thread_time()
        work()
        found.append(time.thread_time() - began)
    return min(found)


def floors(n: int, d: int, m: int) -> dict[str, float]:
    """Return the floor of each stage."""
    rng = np.random.default_rng(0)
    X, D = rng.normal(size=(BLOCK, d + 2)), rng.normal(size=(d + 2, m))
    X, D, blocks = X.astype(np.float32), D.astype(np.float32) / 10, n / BLOCK
    K, square = np.empty((BLOCK, m), np.float32), np.empty((m, m), np.float32)
    Z, sums = np.asfortranarray(K), np.zeros((m, m), np.float32, order="F")
    u, v = np.ones(m, np.float32), np.ones(BLOCK, np.float32)
    whole = rng.normal(size=(m, m))
    whole += whole.T

    def kernel_pass() -> None:
        np.matmul(X, D, out=K)
        np.minimum(K, 0, out=K)
        np.exp(K, out=K)

    def sums_of_block() -> None:
        blas.ssyrk(1.0, Z, beta=1.0, c=sums, trans=1, overwrite_c=True)

    block = blocks * timed(kernel_pass)
    square[:] = 0.0
    features = blocks * timed(lambda: np.matmul(K, square)) / 2
    added = blocks * timed(sums_of_block)
    decomposed = timed(lambda: eigh(whole))
    vectors = blocks * timed(lambda: (K @ u, v @ K))
    return {
        "dictionary": block,
        "direct": block + features + added + decomposed,
        "cg": (ITERATIONS + 2) * (block + vectors),
    }


def measure(quick: bool) -> Rows:
    rows: Rows = []
    for n, d, size in QUICK if quick else SIZES:
        for solver in ("direct", "cg"):
            taken, m = seconds(n, d, size, solver)
            with single_blas_thread():
                floor = floors(n, d, m)
            for stage, name in (("dictionary", "dictionary"), ("solve", solver)):
                rows.append(
                    {
                        "n": n, "d": d, "m": m, "stage": f"{stage}, {solver}",
                        "floor_s": round(floor[name], 2), "fit_s": round(taken[stage], 2),
                        "ratio": round(taken[stage] / floor[name], 2),
                    }
                )  # fmt: skip
    return rows


if __name__ == "__main__":
    run(__doc__.splitlines()[0], measure)
