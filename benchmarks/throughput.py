"""Predictions a second, beside what memory bandwidth and the kernel block allow.

    python benchmarks/throughput.py [--quick] [--csv FILE]

One thread, processor seconds, encoded rows in memory. "copy": rows a second of a plain copy of
the same rows, the bound of memory; "block": of the kernel block and its product alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from growth import made
from output import Rows, run

import squeak_dist
from squeak_dist.kernels import kernel_block
from squeak_dist.linalg import single_blas_thread

BLOCK = 512


def rate(rows: int, function: Callable[[], object]) -> float:
    """Rows a second, the best of three."""
    times = []
    for _ in range(3):
        began = time.thread_time()
        function()
        times.append(time.thread_time() - began)
    return rows / min(times)


def measure(quick: bool) -> Rows:
    n = 50_000 if quick else 500_000
    found: Rows = []
    for m in (100, 400) if quick else (100, 500, 2000):
        model = squeak_dist.fit(
            made(max(10_000, 10 * m), 18), target="y", max_dictionary=m, kernel="rbf",
            length_scale="median", mu=0.1,
        ).model_  # fmt: skip
        X = np.random.default_rng(0).normal(size=(n, 18)).astype(np.float32)
        points = model.dictionary.points
        K = np.empty((BLOCK, len(points)), np.float32)
        weights = model.coefficients.astype(np.float32)

        def blocks(X=X, points=points, K=K, weights=weights, kernel=model.kernel) -> None:
            for start in range(0, len(X) - BLOCK + 1, BLOCK):
                kernel_block(kernel, X[start : start + BLOCK], points, K)
                K @ weights

        with single_blas_thread():
            copy = rate(n, X.copy)
            block = rate(n, blocks)
            predicted = rate(n, lambda model=model, X=X: model.predict_encoded(X))
        found.append({
            "m": len(points), "rows_a_second": f"{predicted:.3g}", "block": f"{block:.3g}",
            "copy": f"{copy:.3g}", "of_block": round(predicted / block, 2),
            "ns_an_entry": round(1e9 / predicted / len(points), 2),
        })  # fmt: skip
    return found


if __name__ == "__main__":
    run(__doc__ or "", measure)
