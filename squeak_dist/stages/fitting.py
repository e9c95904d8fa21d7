"""The fit: one stage after the other, and the report on it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from squeak_dist.classes import Classes
from squeak_dist.dictionary import Dictionary
from squeak_dist.encoded_sample import encoded_sample
from squeak_dist.model import FittedModel, packed
from squeak_dist.nystrom import evaluated_in_double
from squeak_dist.stages.classifying import classified, classified_stream
from squeak_dist.stages.executors import Executor
from squeak_dist.stages.iterating import most_iterations, solve_by_iterations
from squeak_dist.stages.learning import (
    Learned,
    dictionary_bytes,
    dictionary_report,
    learn_dictionary,
)
from squeak_dist.stages.noise import with_noise_of_fit, with_noise_of_stream
from squeak_dist.stages.parameters import FitParameters
from squeak_dist.stages.planning import Plan
from squeak_dist.stages.solving import Solution, in_target_units, map_task, solve_directly
from squeak_dist.stages.streaming import (
    REGRESSION,
    Stream,
    extend_stream,
    solution_report,
    solve_regression,
    stream_report,
)
from squeak_dist.table import TableSchema


def fit_tables(
    executor: Executor,
    tables: Sequence[Any],
    schema: TableSchema,
    parameters: FitParameters,
    *,
    target_names: tuple[str, ...],
    single_output: bool,
    unnamed_features: bool = False,
    classes: Classes | None = None,
) -> FittedModel:
    """Fit a model to the partitions of a table.

    Parameters
    ----------
    executor : Executor
        Where the work runs.
    tables : sequence of handles on Table
        One per partition, in order.
    schema : TableSchema
        What the columns are.
    parameters : FitParameters
        All parameters.
    target_names : tuple of str
        What the user calls the targets.
    single_output : bool
        Whether predictions are one-dimensional.
    unnamed_features : bool, default False
        Whether the features came as an array.
    classes : Classes, optional
        What the ±1 columns of the target stand for.

    Returns
    -------
    FittedModel
        The same bits for every executor.

    Raises
    ------
    DataError
        If the profile finds data that cannot be fitted.
    InsufficientMemoryError
        If the executor cannot hold the largest task.

    Notes
    -----
    Three passes over the data: profile, dictionaries, solve.
    """
    learned = learn_dictionary(executor, tables, parameters, n_outputs=len(schema.targets))
    plan, dictionary = learned.plan, learned.root.dictionary
    solution = _solve(executor, learned, parameters, len(schema.targets))
    learned.clock.lap("solve")
    model = _model_of(
        plan,
        dictionary,
        solution,
        parameters,
        target_names=target_names,
        single_output=single_output,
        unnamed_features=unnamed_features,
        report=dictionary_report(learned, parameters) | _solve_report(learned, solution),
        sample=encoded_sample(plan.encoding, learned.profile.sample),
    )
    if classes is None:
        return with_noise_of_fit(model)
    return classified(model, classes, learned.profile.sample)


def fit_stream(
    executor: Executor,
    stream: Stream | None,
    tables: Sequence[Any],
    parameters: FitParameters,
    *,
    target_names: tuple[str, ...],
    single_output: bool,
    unnamed_features: bool = False,
    classes: Classes | None = None,
) -> tuple[Stream, FittedModel]:
    """Pass further partitions through a stream; return it, and the model of all rows so far.

    Parameters
    ----------
    executor : Executor
        Where the work runs.
    stream : Stream, optional
        So far.
    tables, parameters, target_names, single_output, unnamed_features, classes
        As in :func:`fit_tables`.
    """
    stream, solution = extend_stream(
        executor, stream, tables, parameters, REGRESSION, solve_regression
    )
    plan, sample = stream.plan, stream.sample
    model = _model_of(
        plan,
        stream.dictionary,
        solution,
        parameters,
        target_names=target_names,
        single_output=single_output,
        unnamed_features=unnamed_features,
        report=stream_report(stream, parameters) | solution_report(stream, solution),
        sample=stream.few_rows(),
    )
    if classes is None:
        return stream, with_noise_of_stream(model)
    targets = sample.targets * plan.target_scale + plan.target_mean
    return stream, classified_stream(model, classes, sample.X, targets, sample.weights)


def _model_of(
    plan: Plan,
    dictionary: Dictionary,
    solution: Solution,
    parameters: FitParameters,
    **names_and_report: Any,
) -> FittedModel:
    return FittedModel(
        kernel=plan.kernel,
        dictionary=dictionary,
        # In C order, as they come out of a store: a product's last bits depend on it.
        coefficients=np.ascontiguousarray(solution.coefficients),
        slopes=np.ascontiguousarray(solution.slopes),
        column_range=solution.column_range,
        linear_coefficients=np.ascontiguousarray(solution.baseline),
        noise_variance=solution.noise_variance,
        posterior=packed(solution.posterior, plan.encoding.dtype),
        target_mean=plan.target_mean,
        encoding=plan.encoding,
        mu=solution.mu,
        epsilon=parameters.epsilon,
        seed=parameters.seed,
        approximation=parameters.approximation,
        **names_and_report,
    )


def _solve(
    executor: Executor, learned: Learned, parameters: FitParameters, n_outputs: int
) -> Solution:
    """Solve the way the parameters say; directly where the iterations do not converge."""
    plan, encoded, dictionary = learned.plan, learned.encoded, learned.root.dictionary
    kernel, shared = executor.share(plan.kernel), executor.share(dictionary)
    nystrom = executor.call(map_task, kernel, shared, parameters.approximation)
    rows, m, d = sum(plan.partition_kept), len(dictionary), plan.encoding.n_features
    most = partial(most_iterations, parameters.solver, rows, m, d, n_outputs)
    maps = []
    if m and plan.resolvable and (worth := most(doubled=False)):
        maps.append((nystrom, worth))
    if m and plan.encoding.dtype != "float64" and (worth := most(doubled=True)):
        maps.append((executor.call(evaluated_in_double, nystrom), worth))
    solution = None
    if maps:
        solution = solve_by_iterations(
            executor, encoded, maps, kernel, shared, plan, parameters.penalty,
            size=m, approximation=parameters.approximation, seed=parameters.seed,
        )  # fmt: skip
    if solution is None:
        solution = solve_directly(
            executor, encoded, nystrom, kernel, shared, plan, parameters.penalty
        )
    return in_target_units(solution, plan.target_scale)


def _solve_report(learned: Learned, solution: Solution) -> dict[str, Any]:
    profile = learned.profile
    return {
        "task": "regression",
        "mu": solution.mu,
        "linear_part": len(solution.slopes) > 1,
        "solver": "cg" if solution.residuals else "direct",
        "cg_preconditioner": solution.preconditioner or None,
        "cg_residuals": list(solution.residuals),
        "cg_seconds": list(solution.seconds),
        "cg_train_rmse": [
            np.sqrt(square / profile.weight_sum).tolist() for square in solution.train_squares
        ],
        "baseline_mu": solution.baseline_mu,
        "effective_dimension": solution.effective_dimension,
        "degrees_of_freedom": solution.freedom,
        "noise_std": np.sqrt(solution.noise_variance).tolist(),
        "target_mean": profile.target_mean.tolist(),
        "target_std": np.sqrt(profile.target_variance).tolist(),
        "train_rmse": np.sqrt(solution.train_square / profile.weight_sum).tolist(),
        "seconds": dict(learned.clock.seconds),
        "peak_worker_bytes": max(solution.peak_bytes, learned.root.peak_bytes),
        "peak_bytes": {"dictionary": learned.root.peak_bytes, "solve": solution.peak_bytes},
        "bytes": _bytes(learned, solution),
    }


def _bytes(learned: Learned, solution: Solution) -> dict[str, int]:
    """Return what the stages keep and hand on: the largest sum of the solve is of squares."""
    width = len(solution.coefficients) + learned.plan.encoding.n_features + 1
    sums = 8 * width * (width + solution.coefficients.shape[1])
    return dictionary_bytes(learned) | {"sum": sums}
