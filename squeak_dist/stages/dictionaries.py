"""Dictionaries: chains over partitions, then the merge tree."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from squeak_dist.dictionary import Dictionary
from squeak_dist.encoding import EncodedTable
from squeak_dist.kernels import Kernel
from squeak_dist.linalg import single_blas_thread
from squeak_dist.squeak import (
    SqueakParameters,
    SqueakState,
    finish,
    merge,
    squeak,
    start_state,
)
from squeak_dist.stages.executors import Executor, reduce_tree
from squeak_dist.stages.parameters import FitParameters
from squeak_dist.stages.planning import Encoded, Plan, fold_chains
from squeak_dist.stages.records import TaskRecord, peak_memory, worker_name

# First entries of the spawn keys of SeedSequence; the profile has 0, the solve 4.
CHAIN_KEY, FINISH_KEY, _MERGE_KEY = 1, 2, 3

_MOST_POINTS = 100  # of the growth of a chain in its record


@dataclass(frozen=True, eq=False)
class Branch:
    """A dictionary in the merge tree, with the records of all nodes below it.

    Parameters
    ----------
    state : SqueakState
        The dictionary, and the rows it stands for.
    records : tuple of TaskRecord
        Of this node and those below.
    seconds : float
        In this chain, while it is not finished.
    peak_bytes : int
        Largest memory of a worker so far.
    growth : tuple of (rows, size, gamma)
        Of this chain, while it is not finished: see :class:`TaskRecord`.
    """

    state: SqueakState
    records: tuple[TaskRecord, ...] = ()
    seconds: float = 0.0
    peak_bytes: int = 0
    growth: tuple[tuple[int, int, float], ...] = ()

    @property
    def dictionary(self) -> Dictionary:
        """The dictionary."""
        return self.state.dictionary


def dictionary_stage(
    executor: Executor, encoded: Encoded, plan: Plan, parameters: FitParameters
) -> Any:
    """Return a handle on the root :class:`Branch` of chains and merges.

    Parameters
    ----------
    executor : Executor
        Where the work runs.
    encoded : Encoded
        All partitions.
    plan : Plan
        Kernel, γ and tree.
    parameters : FitParameters
        The seed.
    """
    kernel, settings = executor.share(plan.kernel), executor.share(plan.squeak)
    seed = parameters.seed
    chains = fold_chains(
        executor,
        encoded,
        plan,
        lambda branch, tables, step: (_chain_step, branch, tables, step, kernel, settings, seed),
    )
    return reduce_tree(
        executor,
        [
            executor.call(_chain_end, branch, index, kernel, settings, seed)
            for index, branch in enumerate(chains)
        ],
        plan.tree.levels,
        lambda nodes, level, index: (
            _merge_task, nodes, level + 1, index, kernel, settings, seed,
        ),
    )  # fmt: skip


def task_rng(seed: int, *key: int) -> np.random.Generator:
    """Return the generator of one task, named by (stage, level, index)."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def _chain_step(
    branch: Branch | None,
    tables: list[EncodedTable],
    partitions: tuple[int, ...],
    kernel: Kernel,
    settings: SqueakParameters,
    seed: int,
) -> Branch:
    """Pass partitions through a chain; the grouping into steps does not change a bit."""
    began = time.perf_counter()
    if branch is None:
        X = tables[0].X
        branch = Branch(start_state(X.shape[1], X.dtype, settings))
    state, growth = branch.state, list(branch.growth)
    with single_blas_thread():
        for table, partition in zip(tables, partitions, strict=True):
            state = squeak(
                kernel,
                table.X,
                settings,
                task_rng(seed, CHAIN_KEY, 0, partition),
                start=state,
                indices=table.indices,
                row_weights=table.weights,
            )
            growth.append((state.rows_seen, len(state.dictionary), state.dictionary.gamma))
    seconds = branch.seconds + time.perf_counter() - began
    return Branch(state, seconds=seconds, peak_bytes=peak_memory(), growth=tuple(growth))


def _chain_end(
    branch: Branch, index: int, kernel: Kernel, settings: SqueakParameters, seed: int
) -> Branch:
    began = time.perf_counter()
    with single_blas_thread():
        state = finish(kernel, branch.state, settings, task_rng(seed, FINISH_KEY, 0, index))
    seconds = branch.seconds + time.perf_counter() - began
    return recorded(state, (branch,), 0, index, len(branch.dictionary), seconds)


def _merge_task(
    branches: list[Branch],
    level: int,
    index: int,
    kernel: Kernel,
    settings: SqueakParameters,
    seed: int,
) -> Branch:
    began = time.perf_counter()
    dictionaries = [branch.dictionary for branch in branches if len(branch.dictionary)]
    with single_blas_thread():
        merged = (
            merge(kernel, dictionaries, settings, task_rng(seed, _MERGE_KEY, level, index))
            if dictionaries
            else branches[0].dictionary
        )
    rows = sum(branch.state.rows_seen for branch in branches)
    state = SqueakState(merged, len(merged), rows, rows)
    size_in = sum(map(len, dictionaries))
    seconds = time.perf_counter() - began
    return recorded(state, tuple(branches), level, index, size_in, seconds)


def recorded(
    state: SqueakState,
    below: tuple[Branch, ...],
    level: int,
    index: int,
    size_in: int,
    seconds: float,
) -> Branch:
    """Return a branch with the record of its node and of all below.

    Parameters
    ----------
    state : SqueakState
        The dictionary, and the rows it stands for.
    below : tuple of Branch
        What it was made of.
    level, index : int
        Place in the tree.
    size_in : int
        Rows of the dictionaries it was made of.
    seconds : float
        In this node alone.
    """
    here = peak_memory()
    record = TaskRecord(
        level=level,
        index=index,
        rows=state.rows_seen,
        size_in=size_in,
        size_out=len(state.dictionary),
        gamma=state.dictionary.gamma,
        seconds=seconds,
        worker=worker_name(),
        peak_bytes=here,
        growth=_spread(below[0].growth) if below and level == 0 else (),
    )
    records = tuple(r for branch in below for r in branch.records)
    peak = max([here, *(branch.peak_bytes for branch in below)])
    return Branch(state, (*records, record), peak_bytes=peak)


def _spread(growth: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return at most 100 of the points of a chain, evenly spread, with the first and the last."""
    if len(growth) <= _MOST_POINTS:
        return growth
    return tuple(growth[i] for i in np.linspace(0, len(growth) - 1, _MOST_POINTS).astype(int))
