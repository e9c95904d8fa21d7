"""Fits that go on: the chain of one partition after the other, with a model at any time.

The rows that have passed are gone; what is left of them are the dictionary and
the normal equations on its span. When the dictionary changes, the sums are
projected on the span of the new one, which loses no more than the old
dictionary's residual on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from squeak_dist._typing import Float64Array
from squeak_dist.dictionary import Dictionary
from squeak_dist.encoding import EncodedTable, encode_table
from squeak_dist.errors import InvalidParameterError
from squeak_dist.kernels import kernel_block
from squeak_dist.linalg import single_blas_thread, solve_lower, symmetrize
from squeak_dist.nystrom import NystromMap, distinct_rows
from squeak_dist.profile_checks import check_profile
from squeak_dist.solvers import JointEquations, joint_equations
from squeak_dist.squeak import SqueakState, finish, squeak, start_state
from squeak_dist.stages.dictionaries import CHAIN_KEY, FINISH_KEY, task_rng
from squeak_dist.stages.executors import Executor
from squeak_dist.stages.parameters import FitParameters
from squeak_dist.stages.planning import Plan, make_plan, settled_profile
from squeak_dist.stages.solving import Solution, in_target_units, map_task, solution_of
from squeak_dist.table import Table


@dataclass(frozen=True, eq=False)
class Stream:
    """What the partitions so far have come to.

    Parameters
    ----------
    plan : Plan
        Of the first partitions: encoding, kernel, γ; it stays.
    state : SqueakState
        The chain, before its last Shrink.
    dictionary : Dictionary
        After it.
    nystrom : NystromMap
        What the sums are on: the span of ``dictionary``.
    equations : JointEquations
        Normal equations of all rows so far.
    partitions, rows : int
        Passed so far; rows as they came.
    """

    plan: Plan
    state: SqueakState
    dictionary: Dictionary
    nystrom: NystromMap
    equations: JointEquations
    partitions: int
    rows: int


@dataclass(frozen=True, eq=False)
class StreamSolution:
    """A stream, and its ridge regression on all rows so far."""

    stream: Stream
    solution: Solution


def extend_stream(
    executor: Executor,
    stream: Stream | None,
    tables: Sequence[Any],
    parameters: FitParameters,
) -> StreamSolution:
    """Pass partitions through the chain of a stream, and solve.

    Parameters
    ----------
    executor : Executor
        Where the work runs, one partition after the other.
    stream : Stream, optional
        So far; without one the profile of ``tables`` makes the plan of all that
        follows.
    tables : sequence of handles on Table
        In order.
    parameters : FitParameters
        Those of the first call.

    Raises
    ------
    DataError
        For data that cannot be fitted, or do not match the first partitions.
    InvalidParameterError
        For another sampler than SQUEAK.

    Notes
    -----
    Cost per partition of n rows: n m² multiply-adds twice, and a few m³.
    The dictionary is that of one chain over all partitions, to the bit.
    """
    if parameters.sampler != "squeak":
        raise InvalidParameterError(
            f"partial_fit goes on with a dictionary of SQUEAK, and sampler="
            f'{parameters.sampler_name!r} has none to go on with; leave it at "squeak"'
        )
    profile = settled_profile(executor, tables, parameters)
    if stream is None:
        plan = make_plan(executor, profile, len(tables), parameters)
    else:
        plan = stream.plan
        check_profile(profile, missing=parameters.missing)
    handle: Any = None if stream is None else executor.share(stream)
    shared = executor.share(plan)
    for table in tables:
        handle = executor.call(_pass_task, handle, table, shared, parameters)
    return executor.gather("stream", executor.call(_solve_task, handle, parameters))


def _pass_task(
    stream: Stream | None, table: Table, plan: Plan, parameters: FitParameters
) -> Stream:
    """Pass one partition: the chain first, then the sums on the new span."""
    partition, offset = (0, 0) if stream is None else (stream.partitions, stream.rows)
    encoded = encode_table(
        plan.encoding,
        table,
        target_mean=plan.target_mean,
        target_scale=plan.target_scale,
        offset=offset,
    )
    with single_blas_thread():
        state = squeak(
            plan.kernel,
            encoded.X,
            plan.squeak,
            task_rng(parameters.seed, CHAIN_KEY, 0, partition),
            start=_start(encoded, plan) if stream is None else stream.state,
            indices=encoded.indices,
            row_weights=encoded.weights,
        )
        finish_rng = task_rng(parameters.seed, FINISH_KEY, 0, 0)
        dictionary = finish(plan.kernel, state, plan.squeak, finish_rng).dictionary
        nystrom = map_task(plan.kernel, dictionary, parameters.approximation)
        sums = None if stream is None else _projected(stream.equations, stream.nystrom, nystrom)
        equations = joint_equations(nystrom, encoded.X, encoded.targets, encoded.weights, sums)
    rows = offset + len(table.targets)
    return Stream(plan, state, dictionary, nystrom, equations, partition + 1, rows)


def _start(encoded: EncodedTable, plan: Plan) -> SqueakState:
    return start_state(encoded.X.shape[1], encoded.X.dtype, plan.squeak)


def _projected(sums: JointEquations, old: NystromMap, new: NystromMap) -> JointEquations:
    """Return sums over z of the old map as sums over z of the new one.

    A row in the old span has z_new(x) = C z_old(x), C = T_new⁻¹ K T_old⁻ᵀ with K
    between the points of both.
    """
    K = np.empty((len(old), len(new)))
    kernel_block(old.kernel, old.points.astype(np.float64), new.points.astype(np.float64), K)
    C: Float64Array = solve_lower(new.factor, solve_lower(old.factor, K).T)
    kernel = replace(
        sums.kernel,
        gram=C @ symmetrize(sums.kernel.gram) @ C.T,
        moment=C @ sums.kernel.moment,
    )
    return replace(sums, kernel=kernel, cross=C @ sums.cross)


def _solve_task(stream: Stream, parameters: FitParameters) -> StreamSolution:
    plan = stream.plan
    solution = solution_of(
        stream.equations, stream.nystrom, plan.kernel, stream.dictionary, parameters.penalty
    )
    return StreamSolution(stream, in_target_units(solution, plan.target_scale))


def stream_report(found: StreamSolution, parameters: FitParameters) -> dict[str, Any]:
    """Return the record of a stream, in the words of that of a fit."""
    stream, solution = found.stream, found.solution
    return {
        "task": "regression",
        "sampler": "squeak",
        "parameters": parameters.record(),
        "rows": stream.rows,
        "rows_fitted": stream.state.rows_seen,
        "partitions": stream.partitions,
        "dictionary_size": len(stream.dictionary),
        "distinct_points": len(distinct_rows(stream.dictionary.points)),
        "gamma_requested": stream.plan.squeak.gamma,
        "gamma": stream.dictionary.gamma,
        "mu": solution.mu,
        "linear_part": len(solution.slopes) > 0,
        "effective_dimension": solution.effective_dimension,
        "degrees_of_freedom": solution.freedom,
        "noise_std": np.sqrt(solution.noise_variance).tolist(),
    }
