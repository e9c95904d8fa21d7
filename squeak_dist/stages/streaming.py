"""Fits that go on: the chain of one partition after the other, with a model at any time.

The rows that have passed are gone; what is left of them are the dictionary, a sample, and
sums on the dictionary's span. When the dictionary changes, the sums are
projected on the span of the new one, which loses no more than the old
dictionary's residual on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from squeak_dist._typing import Float64Array, FloatArray
from squeak_dist.dictionary import Dictionary
from squeak_dist.encoded_sample import EncodedSample, few_rows
from squeak_dist.encoding import EncodedTable, encode_table
from squeak_dist.errors import InvalidParameterError
from squeak_dist.kernels import Kernel, kernel_block
from squeak_dist.linalg import single_blas_thread, solve_lower, symmetrize
from squeak_dist.nystrom import NystromMap, distinct_rows
from squeak_dist.profile_checks import check_profiled_values
from squeak_dist.row_sample import smallest
from squeak_dist.solvers import JointEquations, NormalEquations, joint_equations
from squeak_dist.squeak import SqueakState, finish, squeak, start_state
from squeak_dist.stages.dictionaries import CHAIN_KEY, FINISH_KEY, task_rng
from squeak_dist.stages.executors import Executor
from squeak_dist.stages.parameters import FitParameters
from squeak_dist.stages.planning import (
    SAMPLE_ROWS,
    Plan,
    make_layout,
    make_plan,
    settled_profile,
)
from squeak_dist.stages.solving import Solution, in_target_units, map_task, solution_of
from squeak_dist.table import Table

SAMPLE_KEY = 0  # the profile's: rows of the same numbers are drawn


@dataclass(frozen=True, eq=False)
class SampledRows:
    """A uniform sample of the encoded rows of a stream.

    Parameters
    ----------
    X : ndarray of shape (s, p)
        Encoded rows, s at most 4,096.
    targets : ndarray of float64, shape (s, k)
        Centred and scaled.
    weights : ndarray of float64, shape (s,)
        Sample weights.
    priorities : ndarray of float64, shape (s,)
        Ascending; the rows of the smallest priorities of all are the sample.
    """

    X: FloatArray
    targets: Float64Array
    weights: Float64Array
    priorities: Float64Array


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
    sample : SampledRows
        Of the rows so far.
    nystrom : NystromMap, optional
        What the sums are on: the span of ``dictionary``.
    sums : object
        Over all rows so far, as the :class:`Summing` has them.
    partition_rows : tuple of int
        Rows of each partition passed so far, as they came.
    """

    plan: Plan
    state: SqueakState
    dictionary: Dictionary
    sample: SampledRows
    nystrom: NystromMap | None
    sums: Any
    partition_rows: tuple[int, ...]

    def few_rows(self) -> EncodedSample:
        """Return the rows that stay in a model, their targets in the units of the user."""
        sample, plan = self.sample, self.plan
        targets = sample.targets * plan.target_scale + plan.target_mean
        return few_rows(sample.X, targets, sample.weights)


@dataclass(frozen=True)
class Summing:
    """What a stream sums over its rows.

    Parameters
    ----------
    make_map : callable
        Makes of (kernel, dictionary, approximation) the map that the sums are on.
    add : callable
        Makes of (map, encoded partition, sums so far or None) the sums with its rows.
    move : callable
        Makes of (sums, C) the sums on a map with features C z(x).
    """

    make_map: Callable[[Kernel, Dictionary, str], NystromMap]
    add: Callable[[NystromMap, EncodedTable, Any], Any]
    move: Callable[[Any, Float64Array], Any]


def extend_stream(
    executor: Executor,
    stream: Stream | None,
    tables: Sequence[Any],
    parameters: FitParameters,
    summing: Summing | None,
    solve: Callable[[Stream, FitParameters], Any],
) -> tuple[Stream, Any]:
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
    summing : Summing, optional
        What is kept of the rows beside the dictionary and a sample.
    solve : callable
        Makes of (stream, parameters) what is wanted of all rows so far, in a task.

    Returns
    -------
    stream : Stream
    solved : object
        What ``solve`` returned.

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
        layout = make_layout(profile, len(tables), parameters)
        plan = make_plan(executor, profile, layout, parameters)
    else:
        plan = stream.plan
        check_profiled_values(profile, missing=parameters.missing)
    handle: Any = None if stream is None else executor.share(stream)
    shared = executor.share(plan)
    for table in tables:
        handle = executor.call(_pass_task, handle, table, shared, parameters, summing)
    found: tuple[Stream, Any] = executor.gather(
        "stream", executor.call(_end_task, handle, solve, parameters)
    )
    return found


def _pass_task(
    stream: Stream | None,
    table: Table,
    plan: Plan,
    parameters: FitParameters,
    summing: Summing | None,
) -> Stream:
    """Pass one partition: the chain first, then the sums on the new span."""
    before = () if stream is None else stream.partition_rows
    partition, offset = len(before), sum(before)
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
        nystrom, sums = None, None
        if summing is not None:
            nystrom = summing.make_map(plan.kernel, dictionary, parameters.approximation)
            sums = summing.add(nystrom, encoded, _moved(stream, nystrom, summing))
    n = len(table.targets)
    priorities = task_rng(parameters.seed, SAMPLE_KEY, 0, partition).random(n)
    sample = _sampled(
        None if stream is None else stream.sample, encoded, priorities[encoded.indices - offset]
    )
    return Stream(plan, state, dictionary, sample, nystrom, sums, (*before, n))


def _start(encoded: EncodedTable, plan: Plan) -> SqueakState:
    return start_state(encoded.X.shape[1], encoded.X.dtype, plan.squeak)


def _sampled(
    before: SampledRows | None, encoded: EncodedTable, priorities: Float64Array
) -> SampledRows:
    """Return the rows of the smallest priorities of a sample and a partition."""
    weights = np.ones(len(encoded)) if encoded.weights is None else encoded.weights
    found = [SampledRows(encoded.X, encoded.targets, weights, priorities)]
    found = found if before is None else [before, *found]
    rows = smallest(np.concatenate([part.priorities for part in found]), SAMPLE_ROWS)
    return SampledRows(
        *(
            np.concatenate([getattr(part, name) for part in found])[rows]
            for name in ("X", "targets", "weights", "priorities")
        )
    )


def _moved(stream: Stream | None, new: NystromMap, summing: Summing) -> Any:
    """Return the sums so far as sums over z of a new map; None without any.

    A row in the old span has z_new(x) = C z_old(x), C = T_new⁻¹ K T_old⁻ᵀ with K
    between the points of both.
    """
    if stream is None:
        return None
    old = stream.nystrom
    assert old is not None
    K = np.empty((len(old), len(new)))
    kernel_block(old.kernel, old.points.astype(np.float64), new.points.astype(np.float64), K)
    C: Float64Array = solve_lower(new.factor, solve_lower(old.factor, K).T)
    return summing.move(stream.sums, C)


def moved_equations(sums: NormalEquations, C: Float64Array) -> NormalEquations:
    """Return normal equations of features z as those of C z."""
    return replace(sums, gram=C @ symmetrize(sums.gram) @ C.T, moment=C @ sums.moment)


def _move_joint(sums: JointEquations, C: Float64Array) -> JointEquations:
    return replace(sums, kernel=moved_equations(sums.kernel, C), cross=C @ sums.cross)


def _add_joint(
    nystrom: NystromMap, encoded: EncodedTable, sums: JointEquations | None
) -> JointEquations:
    return joint_equations(nystrom, encoded.X, encoded.targets, encoded.weights, sums)


REGRESSION = Summing(map_task, _add_joint, _move_joint)


def _end_task(
    stream: Stream, solve: Callable[[Stream, FitParameters], Any], parameters: FitParameters
) -> tuple[Stream, Any]:
    return stream, solve(stream, parameters)


def solve_regression(stream: Stream, parameters: FitParameters) -> Solution:
    """Return the ridge regression on all rows of a stream of :data:`REGRESSION`."""
    plan, nystrom = stream.plan, stream.nystrom
    assert nystrom is not None
    solution = solution_of(
        stream.sums, nystrom, plan.kernel, stream.dictionary, parameters.penalty
    )
    return in_target_units(solution, plan.target_scale)


def stream_report(stream: Stream, parameters: FitParameters) -> dict[str, Any]:
    """Return the record of a stream, in the words of that of a fit."""
    return {
        "task": "regression",
        "sampler": "squeak",
        "parameters": parameters.record(),
        "rows": sum(stream.partition_rows),
        "rows_fitted": stream.state.rows_seen,
        "partitions": len(stream.partition_rows),
        "partition_rows": list(stream.partition_rows),
        "dictionary_size": len(stream.dictionary),
        "distinct_points": len(distinct_rows(stream.dictionary.points)),
        "gamma_requested": stream.plan.squeak.gamma,
        "gamma": stream.dictionary.gamma,
    }


def solution_report(stream: Stream, solution: Solution) -> dict[str, Any]:
    """Return the record of the ridge regression of a stream."""
    linear = stream.sums.linear  # its last column is 1
    weight = linear.gram[-1, -1]
    variance = linear.target_square / weight - (linear.moment[-1] / weight) ** 2
    return {
        "task": "regression",
        "train_rmse": np.sqrt(solution.train_square / weight).tolist(),
        "target_std": (np.sqrt(np.maximum(variance, 0)) * stream.plan.target_scale).tolist(),
        "seconds": {},
        "peak_worker_bytes": solution.peak_bytes,
        "mu": solution.mu,
        "linear_part": len(solution.slopes) > 1,
        "effective_dimension": solution.effective_dimension,
        "degrees_of_freedom": solution.freedom,
        "noise_std": np.sqrt(solution.noise_variance).tolist(),
    }
