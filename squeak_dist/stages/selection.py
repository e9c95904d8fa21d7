"""Cross-validation from sums: every μ and every size of the dictionary after one pass.

Normal equations are additive, so those of all folds but one are a difference, and
the squared error on the fold left out is a quadratic form of its own sums. In the
map of a dictionary, T lower triangular, the first j features are the map of its
first j points: leading blocks of the sums belong to smaller dictionaries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from squeak_dist._typing import Float64Array
from squeak_dist.dictionary import Dictionary
from squeak_dist.encoding import EncodedTable
from squeak_dist.errors import DataError
from squeak_dist.kernels import Kernel
from squeak_dist.linalg import single_blas_thread, symmetrize
from squeak_dist.nystrom import NystromMap, distinct_rows, projected_map
from squeak_dist.ridge_path import choose_penalty, ridge_path
from squeak_dist.solvers import (
    JointEquations,
    NormalEquations,
    add_joint_equations,
    joint_equations,
)
from squeak_dist.stages.dictionaries import task_rng
from squeak_dist.stages.executors import Executor
from squeak_dist.stages.learning import learn_dictionary
from squeak_dist.stages.parameters import FitParameters
from squeak_dist.stages.planning import sum_rows

_FOLD_KEY, _ORDER_KEY = 5, 6


@dataclass(frozen=True, eq=False)
class FoldSums:
    """Normal equations of the rows of each fold.

    Parameters
    ----------
    folds : tuple of JointEquations
        One per fold; a fold without rows has zeros.
    target_scale : ndarray of float64, shape (k,)
        What targets are multiplied by to be in the user's units.
    """

    folds: tuple[JointEquations, ...]
    target_scale: Float64Array


@dataclass(frozen=True, eq=False)
class Curve:
    """Errors of ridge regressions along a grid.

    Parameters
    ----------
    grid : ndarray, shape (g,)
        Values of μ, or sizes of the dictionary.
    mu : ndarray of float64, shape (g,)
        Ridge penalty at each.
    rmse : ndarray of float64, shape (g, folds)
        On the fold left out, root of the mean over rows and outputs, in the units of
        the target.
    train_rmse : ndarray of float64, shape (g,)
        On all rows, by the regression on all rows.
    gcv : ndarray of float64, shape (g,)
        GCV score of the regression on all rows, of targets divided by their sd.
    degrees_of_freedom : ndarray of float64, shape (g,)
        tr(A (A + μI)⁻¹) of it.
    """

    grid: Float64Array
    mu: Float64Array
    rmse: Float64Array
    train_rmse: Float64Array
    gcv: Float64Array
    degrees_of_freedom: Float64Array


def fold_sums(
    executor: Executor,
    tables: Sequence[Any],
    parameters: FitParameters,
    *,
    n_outputs: int,
    folds: int,
    by: str,
) -> FoldSums:
    """Choose a dictionary and sum the normal equations of each fold: a fit's three passes.

    Parameters
    ----------
    executor : Executor
        Where the work runs.
    tables : sequence of handles on Table
        One per partition, in order.
    parameters : FitParameters
        All parameters.
    n_outputs : int
        Columns of the target.
    folds : int
        Number of folds, at least 2.
    by : {"row", "partition"}
        What is dealt to the folds at random: rows, or whole partitions.

    Notes
    -----
    The dictionary is chosen without the targets, on all rows, once. Memory: folds
    times m² float64.
    """
    learned = learn_dictionary(executor, tables, parameters, n_outputs=n_outputs)
    kernel, shared = (executor.share(v) for v in (learned.plan.kernel, learned.root.dictionary))
    nystrom = executor.call(_ordered_map, kernel, shared, parameters.seed)
    total = sum_rows(
        executor,
        learned.encoded,
        learned.plan,
        lambda sums, parts, step: (
            _fold_task, sums, parts, step, nystrom, folds, by, parameters.seed,
        ),
        _add_folds,
    )  # fmt: skip
    return FoldSums(tuple(executor.gather("folds", total)), learned.plan.target_scale)


def _ordered_map(kernel: Kernel, dictionary: Dictionary, seed: int) -> NystromMap:
    """Return the map of the distinct points in random order, so that prefixes are samples."""
    points = dictionary.points[distinct_rows(dictionary.points)]
    order = task_rng(seed, _ORDER_KEY, 0, 0).permutation(len(points))
    with single_blas_thread():
        return projected_map(kernel, points[order])


def _fold_task(
    sums: list[JointEquations] | None,
    tables: list[EncodedTable],
    partitions: tuple[int, ...],
    nystrom: NystromMap,
    folds: int,
    by: str,
    seed: int,
) -> list[JointEquations]:
    totals: list[JointEquations | None] = list(sums) if sums is not None else [None] * folds
    with single_blas_thread():
        for table, partition in zip(tables, partitions, strict=True):
            rng = task_rng(seed, _FOLD_KEY, 0, partition)
            size = len(table) if by == "row" else 1
            dealt = np.broadcast_to(rng.integers(folds, size=size), len(table))
            for fold in range(folds):
                rows = np.flatnonzero(dealt == fold)
                weights = None if table.weights is None else table.weights[rows]
                totals[fold] = joint_equations(
                    nystrom, table.X[rows], table.targets[rows], weights, totals[fold]
                )
    return [total for total in totals if total is not None]


def _add_folds(parts: list[list[JointEquations]]) -> list[JointEquations]:
    return [add_joint_equations(*fold) for fold in zip(*parts, strict=True)]


def penalty_curve(sums: FoldSums, mus: Float64Array | None, linear_part: bool | None) -> Curve:
    """Return the errors for every μ.

    Parameters
    ----------
    sums : FoldSums
        Of all rows.
    mus : ndarray of float64, shape (g,), optional
        Ridge penalties; thirteen from 1e-6 to 1e6 of the one that GCV chooses by default.
    linear_part : bool, optional
        As in a fit; by GCV where it is not given.

    Notes
    -----
    Cost: folds + 1 tridiagonal forms, and 6 m³ for each fold, for any number of penalties.
    """
    total = add_joint_equations(*sums.folds)
    best, path = choose_penalty(total.path(), None, linear_part)
    grid = best * np.logspace(-6, 6, 13) if mus is None else np.asarray(mus, np.float64)
    folds = [fold.assembled(path.ridge / len(sums.folds)) for fold in sums.folds]
    errors = [_left_out(folds, j, grid) for j in range(len(folds))]
    return _curve(sums, total.assembled(path.ridge), grid, grid, np.array(errors).T)


def size_curve(sums: FoldSums, sizes: Sequence[int]) -> Curve:
    """Return the errors for dictionaries of the first j points, each at its own best μ.

    Parameters
    ----------
    sums : FoldSums
        Of all rows.
    sizes : sequence of int
        j, from 1 to m.

    Notes
    -----
    Cost: folds + 1 tridiagonal forms of each size.
    """
    total = add_joint_equations(*sums.folds).kernel
    points = []
    for size in sizes:
        leading, folds = _leading(total, size), [_leading(f.kernel, size) for f in sums.folds]
        path, _ = ridge_path(leading.gram, leading.moment, leading.target_square, leading.rows)
        mu = np.array([path.best_mu()])
        errors = [_left_out(folds, j, mu) for j in range(len(folds))]
        points.append(_curve(sums, leading, np.array([size]), mu, np.array(errors).T))
    return Curve(
        *(
            np.concatenate([getattr(point, name) for point in points])
            for name in Curve.__dataclass_fields__
        )
    )


def _leading(equations: NormalEquations, size: int) -> NormalEquations:
    gram, moment = equations.gram[:size, :size], equations.moment[:size]
    return NormalEquations(gram, moment, equations.target_square, equations.rows)


def _left_out(folds: Sequence[NormalEquations], left: int, mus: Float64Array) -> Float64Array:
    """Return Σ v e² / Σ rows on one fold for regressions on the others, shape (g, k)."""
    others = [fold for j, fold in enumerate(folds) if j != left]
    gram = np.sum([symmetrize(fold.gram) for fold in others], axis=0)
    moment = np.sum([fold.moment for fold in others], axis=0)
    square = np.sum([fold.target_square for fold in others], axis=0)
    test = folds[left]
    if not test.rows or not sum(fold.rows for fold in others):
        raise DataError(
            f"fold {left} of {len(folds)} has no rows of positive weight; use fewer folds, "
            f'by="row", or more partitions'
        )
    path, rotation = ridge_path(gram, moment, square, sum(fold.rows for fold in others))
    half = rotation.coordinates(symmetrize(test.gram))  # Qᵀ G, and Qᵀ (Qᵀ G)ᵀ = Qᵀ G Q
    tested, crossed = rotation.coordinates(half.T), rotation.coordinates(test.moment)
    errors = []
    for mu in mus:
        theta, _ = path.solution(mu)
        explained = np.einsum("ij,ij->j", theta, 2 * crossed - tested @ theta)
        errors.append(np.maximum(test.target_square - explained, 0) / test.rows)
    return np.array(errors)


def _curve(
    sums: FoldSums,
    total: NormalEquations,
    grid: Float64Array,
    mus: Float64Array,
    errors: Float64Array,
) -> Curve:
    """Put a curve together; errors of shape (k, g, folds) are per output."""
    path, _ = ridge_path(total.gram, total.moment, total.target_square, total.rows)
    variance = sums.target_scale**2
    train = np.array([path.train_square(mu) for mu in mus]) / max(total.rows, 1)
    return Curve(
        grid=np.asarray(grid, np.float64),
        mu=np.asarray(mus, np.float64),
        rmse=np.sqrt(np.tensordot(variance, errors, 1) / len(variance)),
        train_rmse=np.sqrt(train @ variance / len(variance)),
        gcv=np.array([path.gcv(mu) for mu in mus]),
        degrees_of_freedom=np.array([path.freedom(mu) for mu in mus]),
    )
