"""The fit: one stage after the other, and the report on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from squeak_dist.dictionary import Dictionary
from squeak_dist.errors import FitStopped, GammaRaised, warn_user
from squeak_dist.model import FittedModel
from squeak_dist.profile import Profile
from squeak_dist.stages.dictionaries import Branch, dictionary_stage
from squeak_dist.stages.executors import Executor
from squeak_dist.stages.iterating import faster_by_iterations, solve_by_iterations
from squeak_dist.stages.parameters import FitParameters
from squeak_dist.stages.planning import Plan, encode_stage, make_plan, settled_profile
from squeak_dist.stages.records import Clock
from squeak_dist.stages.solving import Solution, in_target_units, map_task, solve_directly
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
    clock = Clock()
    profile = settled_profile(executor, tables, parameters)
    plan = make_plan(profile, len(tables), parameters)
    clock.lap("profile")

    largest = max(plan.partition_rows)
    executor.check_memory(*projected_bytes(plan, parameters, largest, len(schema.targets)))
    encoded = encode_stage(executor, tables, plan)
    root: Branch = executor.gather(
        "dictionary", dictionary_stage(executor, encoded, plan, parameters)
    )
    _warn_of_overrun(root, plan, parameters)
    clock.lap("dictionary")

    solution = _solve(executor, encoded, root.dictionary, plan, parameters, len(schema.targets))
    clock.lap("solve")
    return FittedModel(
        kernel=plan.kernel,
        dictionary=root.dictionary,
        coefficients=solution.coefficients,
        linear_coefficients=solution.linear_coefficients,
        target_mean=plan.target_mean,
        encoding=plan.encoding,
        target_names=target_names,
        single_output=single_output,
        unnamed_features=unnamed_features,
        mu=solution.mu,
        epsilon=parameters.epsilon,
        seed=parameters.seed,
        approximation=parameters.approximation,
        report=_report(profile, plan, root, solution, clock),
    )


def _solve(
    executor: Executor,
    encoded: Sequence[Any],
    dictionary: Dictionary,
    plan: Plan,
    parameters: FitParameters,
    n_outputs: int,
) -> Solution:
    """Solve the way the parameters say; directly where the iterations do not converge."""
    kernel, shared = executor.share(plan.kernel), executor.share(dictionary)
    nystrom = executor.call(map_task, kernel, shared, parameters.approximation)
    mu = None if isinstance(parameters.mu, str) else float(parameters.mu)
    iterate = parameters.solver == "cg" or (
        parameters.solver == "auto"
        and faster_by_iterations(
            sum(plan.partition_kept), len(dictionary), plan.encoding.n_features, n_outputs
        )
    )
    solution = None
    if iterate and len(dictionary):
        solution = solve_by_iterations(
            executor, encoded, nystrom, kernel, shared, plan, mu,
            size=len(dictionary), seed=parameters.seed,
        )  # fmt: skip
    if solution is None:
        solution = solve_directly(executor, encoded, nystrom, kernel, shared, plan, mu)
    return in_target_units(solution, plan.target_scale)


def projected_bytes(
    plan: Plan, parameters: FitParameters, partition_rows: int, n_outputs: int
) -> tuple[int, str]:
    """Return the bytes of the largest task of a fit, and what they are made of.

    Parameters
    ----------
    plan : Plan
        Encoding and tree.
    parameters : FitParameters
        ``max_dictionary`` and ``fan_in``.
    partition_rows : int
        Rows of the largest partition.
    n_outputs : int
        Columns of the target.

    Notes
    -----
    A merge of ``fan_in`` dictionaries of m rows holds three float64 matrices of
    (fan_in · m)²; the first pass of the solve holds two maps and two sums of m² twice,
    one block of features and one partition. Neither depends on the number of rows.
    """
    m = min(parameters.max_dictionary or sum(plan.partition_kept), sum(plan.partition_kept))
    d = plan.encoding.n_features
    union = m * (parameters.fan_in if len(plan.tree.chains) > 1 else 1)
    merging = 3 * 8 * union**2
    solving = 7 * 8 * m**2 + 4 * 4 * 2048 * m
    partition = partition_rows * (4 * 8 * d + 8 * n_outputs + 16)
    explanation = (
        f"dictionaries of up to {m:,} rows merged {parameters.fan_in} at a time, partitions of up "
        f"to {partition_rows:,} rows × {d} encoded columns"
    )
    return max(merging, solving) + partition, explanation


def _warn_of_overrun(root: Branch, plan: Plan, parameters: FitParameters) -> None:
    if root.state.stopped:
        warn_user(
            f"the dictionary reached max_dictionary={parameters.max_dictionary} after "
            f"{root.state.rows_seen:,} of {sum(plan.partition_kept):,} rows, and "
            f'on_overrun="stop" ended it there: it is accurate for these rows only',
            FitStopped,
        )
    if not isinstance(parameters.gamma, str) and root.dictionary.gamma > plan.squeak.gamma:
        warn_user(
            f"gamma was raised from {plan.squeak.gamma:g} to {root.dictionary.gamma:g} to hold "
            f"max_dictionary={parameters.max_dictionary}; the guarantee is for the raised gamma. "
            f"Raise max_dictionary to keep the one you gave",
            GammaRaised,
        )


def _report(
    profile: Profile, plan: Plan, root: Branch, solution: Solution, clock: Clock
) -> dict[str, Any]:
    return {
        "task": "regression",
        "rows": profile.rows,
        "rows_fitted": profile.kept,
        "rows_dropped": profile.rows - profile.kept,
        "rows_in_dictionary_pass": root.state.rows_seen,
        "partition_rows": list(plan.partition_rows),
        "chains": len(plan.tree.chains),
        "encoded_features": plan.encoding.n_features,
        "dictionary_size": len(root.dictionary),
        "gamma_requested": plan.squeak.gamma,
        "gamma": root.dictionary.gamma,
        "mu": solution.mu,
        "solver": "cg" if solution.residuals else "direct",
        "cg_residuals": list(solution.residuals),
        "effective_dimension": solution.effective_dimension,
        "target_mean": profile.target_mean.tolist(),
        "target_std": np.sqrt(profile.target_variance).tolist(),
        "train_rmse": np.sqrt(solution.train_square / profile.weight_sum).tolist(),
        "stopped": root.state.stopped,
        "seconds": dict(clock.seconds),
        "peak_worker_bytes": max(solution.peak_bytes, root.peak_bytes),
        "merges": [asdict(record) for record in root.records],
    }
