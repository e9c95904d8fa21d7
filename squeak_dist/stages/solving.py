"""The direct solve: normal equations by tree reduction, then one factorization."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from squeak_dist._typing import Float64Array
from squeak_dist.dictionary import Dictionary
from squeak_dist.encoding import EncodedTable
from squeak_dist.errors import EmptyDataError
from squeak_dist.kernels import Kernel
from squeak_dist.linalg import (
    single_blas_thread,
    solve_lower,
    solve_lower_transposed,
    triangular_inverse,
)
from squeak_dist.nystrom import NystromMap, on_dictionary, solution_map
from squeak_dist.ridge_path import choose_penalty
from squeak_dist.solvers import (
    JointEquations,
    NormalEquations,
    add_joint_equations,
    joint_equations,
    mu_by_gcv,
    ridge_factor,
    solve_direct,
)
from squeak_dist.squeak import dictionary_effective_dimension
from squeak_dist.stages.executors import Executor
from squeak_dist.stages.parameters import Penalty
from squeak_dist.stages.planning import Encoded, Plan, sum_rows
from squeak_dist.stages.records import peak_memory


@dataclass(frozen=True, eq=False)
class Sums:
    """Normal equations of the kernel model, its linear part and the linear baseline."""

    equations: JointEquations
    peak_bytes: int = 0


@dataclass(frozen=True, eq=False)
class Solution:
    """What the solve returns to the driver.

    Parameters
    ----------
    coefficients : ndarray of float64, shape (m, k)
        c.
    slopes : ndarray of float64, shape (d + 1, k), (1, k) or (0, k)
        Of the linear part beside the kernel, its constant last; the constant alone; none.
    column_range : ndarray of float64, shape (2, d)
        Smallest and largest values of the encoded columns.
    baseline : ndarray of float64, shape (d + 1, k)
        Coefficients of plain ridge regression; the constant last.
    mu : float
        Ridge penalty, given or chosen.
    train_square : ndarray of float64, shape (k,)
        Weighted sum of squared errors on the rows fitted.
    freedom : float
        Degrees of freedom, tr(A (A + μI)⁻¹).
    noise_variance : ndarray of float64, shape (k,)
        Σ v e² / (n − 1 − freedom).
    posterior : ndarray of float64, shape (m, m) or (m + d + 1, m + d + 1)
        Cholesky factor of A = Σ v φ φᵀ + μI, φ = z or [z, x, 1].
    effective_dimension : float
        d_eff(γ) by the dictionary.
    peak_bytes : int
        Largest memory of a worker so far.
    residuals : tuple of float
        Of conjugate gradients, at the start and after each iteration; none for the direct solve.
    seconds : tuple of float
        From the start of the solve to each of these.
    train_squares : tuple of ndarray of float64, shape (k,)
        ``train_square`` at each of these.
    baseline_mu : float
        Ridge penalty of ``baseline``.
    preconditioner : {"", "sample", "sketch"}
        What that of conjugate gradients was made of, at the end.
    """

    coefficients: Float64Array
    slopes: Float64Array
    column_range: Float64Array
    baseline: Float64Array
    mu: float
    train_square: Float64Array
    freedom: float
    noise_variance: Float64Array
    posterior: Float64Array
    effective_dimension: float
    peak_bytes: int
    residuals: tuple[float, ...] = ()
    seconds: tuple[float, ...] = ()
    train_squares: tuple[Float64Array, ...] = ()
    baseline_mu: float = 0.0
    preconditioner: str = ""


def in_target_units(solution: Solution, scale: Float64Array) -> Solution:
    """Return the solution for targets ``scale`` times as large, one scale per output."""
    return replace(
        solution,
        coefficients=solution.coefficients * scale,
        slopes=solution.slopes * scale,
        baseline=solution.baseline * scale,
        train_square=solution.train_square * scale**2,
        train_squares=tuple(square * scale**2 for square in solution.train_squares),
        noise_variance=solution.noise_variance * scale**2,
    )


def solve_directly(
    executor: Executor,
    encoded: Encoded,
    nystrom: Any,
    kernel: Any,
    dictionary: Any,
    plan: Plan,
    penalty: Penalty,
) -> Solution:
    """Solve from the normal equations of all rows: one pass.

    Parameters
    ----------
    executor : Executor
        Where the work runs.
    encoded : Encoded
        All partitions.
    nystrom, kernel, dictionary : handles
        The map, and what it was made of.
    plan : Plan
        The tree.
    penalty : Penalty
        What is given of μ and the linear part; the rest by GCV on all rows.
    """
    total = sum_rows(
        executor,
        encoded,
        plan,
        lambda sums, tables, step: (_sums_task, sums, tables, nystrom),
        _add_sums,
    )
    solution = executor.call(_solve_task, total, nystrom, kernel, dictionary, penalty)
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
        return solution_map(kernel, dictionary, approximation)


def _sums_task(sums: Sums | None, tables: list[EncodedTable], nystrom: NystromMap) -> Sums:
    equations = None if sums is None else sums.equations
    with single_blas_thread():
        for table in tables:
            equations = joint_equations(nystrom, table.X, table.targets, table.weights, equations)
    assert equations is not None
    return Sums(equations, peak_memory())


def _add_sums(parts: list[Sums]) -> Sums:
    return Sums(
        add_joint_equations(*(part.equations for part in parts)),
        max(peak_memory(), *(part.peak_bytes for part in parts)),
    )


def _solve_task(
    sums: Sums, nystrom: NystromMap, kernel: Kernel, dictionary: Dictionary, penalty: Penalty
) -> Solution:
    solution = solution_of(sums.equations, nystrom, kernel, dictionary, penalty)
    return replace(solution, peak_bytes=max(peak_memory(), sums.peak_bytes))


def solution_of(
    joint: JointEquations,
    nystrom: NystromMap,
    kernel: Kernel,
    dictionary: Dictionary,
    penalty: Penalty,
) -> Solution:
    """Solve normal equations: μ and the linear part by GCV where they are not given.

    Parameters
    ----------
    joint : JointEquations
        Sums over all rows.
    nystrom, kernel, dictionary
        The map, and what it was made of.
    penalty : Penalty
        What is given.

    Notes
    -----
    Cost: one :func:`~squeak_dist.tridiagonal.tridiagonal_form`, and one factorization, m³/3.
    """
    m = len(nystrom)
    with single_blas_thread():
        mu, path = choose_penalty(joint.path(), penalty.mu, penalty.linear_part)
        baseline_mu = mu_by_gcv(joint.linear)
        equations = joint.assembled(path.ridge)
        factor = ridge_factor(equations, mu)
        freedom = degrees_of_freedom(factor, mu)
        theta = solve_lower_transposed(factor, solve_lower(factor, equations.moment))
        held = np.einsum("i,ij,ij->j", path.ridge, theta[m:], theta[m:])
        square = np.maximum(train_square(equations, theta) - held, 0)
        return Solution(
            coefficients=on_dictionary(nystrom.coefficients(theta[:m]), dictionary),
            slopes=theta[m:],
            column_range=np.array([joint.lower, joint.upper]),
            baseline=solve_direct(joint.linear, baseline_mu),
            mu=mu,
            train_square=square,
            freedom=freedom,
            noise_variance=noise_variance(square, equations.rows, freedom),
            posterior=factor,
            effective_dimension=dictionary_effective_dimension(kernel, dictionary),
            peak_bytes=peak_memory(),
            baseline_mu=baseline_mu,
        )


def degrees_of_freedom(factor: Float64Array, mu: float) -> float:
    """Return tr(A (A + μI)⁻¹) = p − μ ‖L⁻¹‖² of a factor L of A + μI, p × p; cost p³/3."""
    inverse = triangular_inverse(factor)
    return max(len(factor) - mu * float(np.sum(inverse**2)), 0.0)


def noise_variance(square: Float64Array, rows: int, freedom: float) -> Float64Array:
    """Return Σ v e² / (n − 1 − df), shape (k,); by one row at least where df uses all up."""
    return square / max(rows - 1 - freedom, 1.0)


def train_square(equations: NormalEquations, theta: Float64Array) -> Float64Array:
    """Weighted sum of squared errors on the rows fitted, from the sums alone."""
    lower = np.tril(equations.gram, -1)
    product = lower @ theta + lower.T @ theta + np.diagonal(equations.gram)[:, None] * theta
    explained = np.einsum("ij,ij->j", theta, 2 * equations.moment - product)
    return np.maximum(equations.target_square - explained, 0)
