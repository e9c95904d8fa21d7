"""What a row costs on the machines of a fit: measured on the sample, at one dictionary size."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from squeak_dist._typing import Float64Array, FloatArray
from squeak_dist.conjugate_gradients import kernel_product
from squeak_dist.dictionary import Dictionary
from squeak_dist.kernels import Kernel
from squeak_dist.linalg import single_blas_thread
from squeak_dist.nystrom import NystromMap, projected_map
from squeak_dist.ridge_path import ridge_path
from squeak_dist.solvers import joint_equations
from squeak_dist.squeak import SqueakParameters, SqueakState, shrink, squeak
from squeak_dist.stages.tuning import TuningSample

_ROWS = (512, 2048)  # rows whose difference in time is taken: what starting costs drops out
_SIZES = (0.5, 1.0)  # of the dictionary: two points of a line through 0 in m and m²
_CUBIC_SIZE = 768  # at which factorizations are timed


@dataclass(frozen=True)
class RowCost:
    """Seconds of a row in one pass: ``linear`` · m + ``square`` · m² for m centres."""

    linear: float
    square: float

    def __call__(self, m: float) -> float:
        """Return the seconds of one row."""
        return self.linear * m + self.square * m * m


@dataclass(frozen=True)
class Rates:
    """What the work of a fit costs on one thread, in seconds.

    Parameters
    ----------
    expand, sums, product : RowCost
        Of a row that is judged by the dictionary, added to the normal equations, or passed
        through an iteration of conjugate gradients.
    shrink, eigen : float
        Of Shrink, and of an eigendecomposition, divided by m³.
    """

    expand: RowCost
    sums: RowCost
    product: RowCost
    shrink: float
    eigen: float


def measure_rates(
    sample: TuningSample, kernel: Kernel, squeak_parameters: SqueakParameters, size: int
) -> Rates:
    """Time the functions of a fit on the sample.

    Parameters
    ----------
    sample : TuningSample
        Some thousand rows.
    kernel : Kernel
        With its length scales.
    squeak_parameters : SqueakParameters
        γ for all rows.
    size : int
        m at which to measure; at most half of the sample is used.

    Notes
    -----
    Costs a few seconds: n m² multiply-adds for some thousand rows.
    """
    sizes = [max(int(share * min(size, len(sample.X) // 2)), 1) for share in _SIZES]
    rng = np.random.default_rng(0)
    with single_blas_thread():
        dictionaries = [_uniform_dictionary(sample, squeak_parameters, m) for m in sizes]
        maps = [projected_map(kernel, d.points) for d in dictionaries]
        cubic = _uniform_dictionary(sample, squeak_parameters, min(sizes[-1], _CUBIC_SIZE))
        lasting = replace(squeak_parameters, max_dictionary=None)

        def expand(dictionary: Dictionary, X: FloatArray, targets: Float64Array) -> Any:
            state = SqueakState(dictionary, len(dictionary))
            return squeak(kernel, X, replace(lasting, growth=1e9), rng, start=state)

        def sums(nystrom: NystromMap, X: FloatArray, targets: Float64Array) -> Any:
            return joint_equations(nystrom, X, targets)

        def product(nystrom: NystromMap, X: FloatArray, targets: Float64Array) -> Any:
            return kernel_product(nystrom, X, np.ones((len(nystrom), targets.shape[1])))

        gram = maps[-1].factor[: len(cubic), : len(cubic)]
        gram = gram @ gram.T
        moment, square = np.ones((len(cubic), 1)), np.ones(1)
        return Rates(
            expand=_row_cost(expand, dictionaries, sizes, sample),
            sums=_row_cost(sums, maps, sizes, sample),
            product=_row_cost(product, maps, sizes, sample),
            shrink=_seconds(shrink, kernel, cubic, lasting, rng) / len(cubic) ** 3,
            eigen=_seconds(ridge_path, gram, moment, square, 10) / len(cubic) ** 3,
        )


def _uniform_dictionary(sample: TuningSample, parameters: SqueakParameters, m: int) -> Dictionary:
    """Return m rows that stand for all of them: as large as the one to come, chosen at once."""
    return Dictionary(
        points=sample.X[:m],
        indices=np.arange(m, dtype=np.int64),
        probabilities=np.full(m, min(1.0, m / sample.rows)),
        multiplicities=np.full(m, parameters.qbar),
        row_weights=np.ones(m),
        gamma=parameters.gamma,
        qbar=parameters.qbar,
    )


def _row_cost(
    work: Callable[[Any, FloatArray, Float64Array], Any],
    of_sizes: list[Any],
    sizes: list[int],
    sample: TuningSample,
) -> RowCost:
    """Fit linear · m + square · m² to the seconds of a row at two sizes."""
    few, many = (min(rows, len(sample.X)) for rows in _ROWS)
    X, targets = sample.X[-many:], sample.targets[-many:]
    seconds = []
    for value in of_sizes:
        short = _seconds(work, value, X[:few], targets[:few])
        long = _seconds(work, value, X, targets)
        seconds.append(max(long - short, 1e-9) / max(many - few, 1))
    (small, large), (a, b) = sizes, seconds
    if small == large:
        return RowCost(b / large, 0.0)
    square = (b / large - a / small) / (large - small)
    square = min(max(square, 0.0), b / large**2)
    return RowCost(b / large - square * large, square)


def _seconds(work: Callable[..., Any], *args: Any) -> float:
    """Return the processor time of a call: other work on the machine does not count."""
    work(*args)
    began = time.thread_time()
    work(*args)
    return time.thread_time() - began
