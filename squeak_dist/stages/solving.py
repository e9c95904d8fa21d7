"""The direct solve: normal equations by tree reduction, then one factorization."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from squeak_dist._typing import Float64Array
from squeak_dist.dictionary import Dictionary
from squeak_dist.encoding import EncodedTable
from squeak_dist.errors import EmptyDataError
from squeak_dist.kernels import Kernel
from squeak_dist.linalg import single_blas_thread
from squeak_dist.nystrom import NystromMap, projected_map, regularized_map
from squeak_dist.solvers import (
    NormalEquations,
    add_normal_equations,
    linear_equations,
    mu_by_gcv,
    normal_equations,
    solve_direct,
)
from squeak_dist.squeak import dictionary_effective_dimension
from squeak_dist.stages.executors import Executor
from squeak_dist.stages.planning import Plan, sum_rows
from squeak_dist.stages.records import peak_memory


@dataclass(frozen=True, eq=False)
class Sums:
    """Normal equations of the kernel model and of its linear baseline."""

    kernel: NormalEquations
    linear: NormalEquations
    peak_bytes: int = 0


@dataclass(frozen=True, eq=False)
class Solution:
    """What the solve returns to the driver.

    Parameters
    ----------
    coefficients : ndarray of float64, shape (m, k)
        c.
    linear_coefficients : ndarray of float64, shape (d, k)
        Of the linear baseline.
    mu : float
        Ridge penalty, given or chosen.
    train_square : ndarray of float64, shape (k,)
        Weighted sum of squared errors on the rows fitted.
    effective_dimension : float
        d_eff(γ) by the dictionary.
    peak_bytes : int
        Largest memory of a worker so far.
    residuals : tuple of float
        Of conjugate gradients, one per iteration; none for the direct solve.
    """

    coefficients: Float64Array
    linear_coefficients: Float64Array
    mu: float
    train_square: Float64Array
    effective_dimension: float
    peak_bytes: int
    residuals: tuple[float, ...] = ()


def in_target_units(solution: Solution, scale: Float64Array) -> Solution:
    """Return the solution for targets ``scale`` times as large, one scale per output."""
    return replace(
        solution,
        coefficients=solution.coefficients * scale,
        linear_coefficients=solution.linear_coefficients * scale,
        train_square=solution.train_square * scale**2,
    )


def solve_directly(
    executor: Executor,
    encoded: Sequence[Any],
    nystrom: Any,
    kernel: Any,
    dictionary: Any,
    plan: Plan,
    mu: float | None,
) -> Solution:
    """Solve from the normal equations of all rows: one pass.

    Parameters
    ----------
    executor : Executor
        Where the work runs.
    encoded : sequence of handles on EncodedTable
        One per partition.
    nystrom, kernel, dictionary : handles
        The map, and what it was made of.
    plan : Plan
        The tree.
    mu : float, optional
        Ridge penalty; by GCV on all rows by default.
    """
    total = sum_rows(
        executor,
        encoded,
        plan,
        lambda sums, tables, step: (_sums_task, sums, tables, nystrom),
        _add_sums,
    )
    solution = executor.call(_solve_task, total, nystrom, kernel, dictionary, mu)
    return executor.gather("solve", solution)


def map_task(kernel: Kernel, dictionary: Dictionary, approximation: str) -> NystromMap:
    """Return the map that the regression lives on.

    Raises
    ------
    EmptyDataError
        If the dictionary is empty.
    """
    if not len(dictionary):
        raise EmptyDataError(
            f"the dictionary is empty: gamma={dictionary.gamma:g} is so large that no row was "
            f"kept, or k(x, x) or the sample weight is 0 on every row; lower gamma"
        )
    with single_blas_thread():
        if approximation == "regularized":
            return regularized_map(kernel, dictionary)
        return projected_map(kernel, dictionary.points)


def _sums_task(sums: Sums | None, tables: list[EncodedTable], nystrom: NystromMap) -> Sums:
    kernel, linear = (None, None) if sums is None else (sums.kernel, sums.linear)
    with single_blas_thread():
        for table in tables:
            kernel = normal_equations(nystrom, table.X, table.targets, table.weights, kernel)
            linear = linear_equations(table.X, table.targets, table.weights, linear)
    assert kernel is not None
    assert linear is not None
    return Sums(kernel, linear, peak_memory())


def _add_sums(parts: list[Sums]) -> Sums:
    return Sums(
        add_normal_equations(*(part.kernel for part in parts)),
        add_normal_equations(*(part.linear for part in parts)),
        max(peak_memory(), *(part.peak_bytes for part in parts)),
    )


def _solve_task(
    sums: Sums, nystrom: NystromMap, kernel: Kernel, dictionary: Dictionary, mu: float | None
) -> Solution:
    with single_blas_thread():
        chosen = mu_by_gcv(sums.kernel) if mu is None else mu
        theta = solve_direct(sums.kernel, chosen)
        linear = solve_direct(sums.linear, mu_by_gcv(sums.linear))
        return Solution(
            coefficients=nystrom.coefficients(theta),
            linear_coefficients=linear,
            mu=chosen,
            train_square=train_square(sums.kernel, theta),
            effective_dimension=dictionary_effective_dimension(kernel, dictionary),
            peak_bytes=max(peak_memory(), sums.peak_bytes),
        )


def train_square(equations: NormalEquations, theta: Float64Array) -> Float64Array:
    """Weighted sum of squared errors on the rows fitted, from the sums alone."""
    lower = np.tril(equations.gram, -1)
    product = lower @ theta + lower.T @ theta + np.diagonal(equations.gram)[:, None] * theta
    explained = np.einsum("ij,ij->j", theta, 2 * equations.moment - product)
    return np.maximum(equations.target_square - explained, 0)
