"""Dictionaries by other samplers than SQUEAK's chains: trees, uniform rows, one task for all."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from itertools import accumulate, chain, pairwise
from typing import Any

import numpy as np

from squeak_dist._typing import IntArray
from squeak_dist.dictionary import Dictionary, concatenate
from squeak_dist.encoding import EncodedTable
from squeak_dist.kernels import Kernel
from squeak_dist.linalg import single_blas_thread
from squeak_dist.merge_tree import MergeTree
from squeak_dist.samplers import (
    MERGING,
    TREES,
    Sampler,
    choose_rows,
    uniform_positions,
    uniformly_kept,
    working_bytes,
)
from squeak_dist.squeak import SqueakParameters, SqueakState
from squeak_dist.stages.dictionaries import Branch, dictionary_stage, recorded, task_rng
from squeak_dist.stages.executors import Executor
from squeak_dist.stages.parameters import FitParameters
from squeak_dist.stages.planning import Encoded, Layout, Plan

_SAMPLE_KEY = 7  # first entry of the spawn keys here
_TREES = {"disqueak": "balanced", "disqueak-left-deep": "left-deep", "disqueak-random": "random"}


def sampling_stage(
    executor: Executor, encoded: Encoded, plan: Plan, parameters: FitParameters
) -> Any:
    """Return a handle on the :class:`~squeak_dist.stages.dictionaries.Branch` of a sampler.

    Parameters
    ----------
    executor : Executor
        Where the work runs.
    encoded : Encoded
        All partitions.
    plan : Plan
        Kernel, γ and tree.
    parameters : FitParameters
        ``sampler``, ``fan_in`` and the seed.
    """
    sampler = parameters.sampler
    if sampler == "squeak":
        return dictionary_stage(executor, encoded, plan, parameters)
    if sampler in MERGING:
        return dictionary_stage(executor, encoded, _replanted(plan, parameters), parameters)
    settings = executor.share(_within_the_rows(plan))
    if sampler == "uniform":
        return _uniform_stage(executor, encoded, plan, settings, parameters.seed)
    kernel, shared = executor.share(plan.kernel), executor.share(sampler)
    return executor.call(
        _sample_task, list(encoded.handles), kernel, settings, shared, parameters.seed
    )


def sampling_bytes(layout: Layout, parameters: FitParameters) -> tuple[int, str] | None:
    """Return the bytes of a sampler that needs all rows in one task, and what they are.

    Parameters
    ----------
    layout : Layout
        Rows and encoding.
    parameters : FitParameters
        ``sampler`` and ``max_dictionary``.

    Returns
    -------
    tuple of (int, str), or None
        None for samplers that take the partitions one at a time.
    """
    sampler = parameters.sampler
    if sampler in (*MERGING, "uniform"):
        return None
    n, d = sum(layout.partition_kept), layout.encoding.n_features
    rows = 2 * n * (d * np.dtype(layout.encoding.dtype).itemsize + 32)
    extra = working_bytes(sampler, n, d, parameters.max_dictionary or math.inf)
    return rows + extra, (
        f"sampler={parameters.sampler_name!r} takes all {n:,} rows × {d} encoded columns in one "
        f"task: {rows + extra:,} bytes"
    )


def _replanted(plan: Plan, parameters: FitParameters) -> Plan:
    """Return the plan with one leaf per partition under a tree of the sampler's shape."""
    leaves = tuple((i,) for i, rows in enumerate(plan.partition_kept) if rows)
    grow = TREES[_TREES[str(parameters.sampler)]]
    rng = task_rng(parameters.seed, _SAMPLE_KEY, 1)
    return replace(plan, tree=MergeTree(leaves, grow(len(leaves), parameters.fan_in, rng)))


def _within_the_rows(plan: Plan) -> SqueakParameters:
    """Return the parameters with a budget of no more than the rows there are."""
    limit, rows = plan.squeak.max_dictionary, sum(plan.partition_kept)
    return replace(plan.squeak, max_dictionary=None if limit is None else min(limit, rows))


def _sample_task(
    steps: list[list[EncodedTable]],
    kernel: Kernel,
    settings: SqueakParameters,
    sampler: str | Sampler,
    seed: int,
) -> Branch:
    """Choose from all rows at once."""
    began = time.perf_counter()
    tables = list(chain.from_iterable(steps))
    X = np.concatenate([table.X for table in tables])
    weights = [table.weights for table in tables if table.weights is not None]
    indices = np.concatenate([table.indices for table in tables])
    with single_blas_thread():
        chosen = choose_rows(
            sampler,
            X,
            kernel,
            settings,
            task_rng(seed, _SAMPLE_KEY, 0),
            np.concatenate(weights) if weights else None,
        )
    return _branch(replace(chosen, indices=indices[chosen.indices]), len(X), began)


def _uniform_stage(
    executor: Executor, encoded: Encoded, plan: Plan, settings: Any, seed: int
) -> Any:
    """Draw positions here, and take the rows where they are: as the sampler of that name."""
    rows = sum(plan.partition_kept)
    m = _within_the_rows(plan).max_dictionary or rows
    positions = uniform_positions(rows, m, task_rng(seed, _SAMPLE_KEY, 0))
    bounds = pairwise(accumulate(plan.partition_kept, initial=0))
    parts = [positions[(positions >= a) & (positions < b)] - a for a, b in bounds]
    pieces = [
        executor.call(_take_task, tables, [parts[i] for i in step], m / rows, settings)
        for step, tables in zip(encoded.steps, encoded.handles, strict=True)
    ]
    return executor.call(_join_task, pieces, rows)


def _take_task(
    tables: list[EncodedTable],
    rows: list[IntArray],
    probability: float,
    settings: SqueakParameters,
) -> Dictionary:
    return concatenate(
        [
            _taken(table, part, probability, settings)
            for table, part in zip(tables, rows, strict=True)
        ]
    )


def _taken(
    table: EncodedTable, rows: IntArray, probability: float, settings: SqueakParameters
) -> Dictionary:
    weights = np.ones(len(table)) if table.weights is None else table.weights
    taken = uniformly_kept(table.X, rows, probability, settings, weights)
    return replace(taken, indices=table.indices[taken.indices])


def _join_task(pieces: list[Dictionary], rows: int) -> Branch:
    return _branch(concatenate(pieces), rows, time.perf_counter())


def _branch(dictionary: Dictionary, rows: int, began: float) -> Branch:
    size = len(dictionary)
    state = SqueakState(dictionary, size, rows, rows)
    return recorded(state, (), 0, 0, size, time.perf_counter() - began)
