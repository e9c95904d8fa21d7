"""From the profile to a plan: encoding, kernel, γ and the merge tree."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from squeak_dist._typing import Float64Array
from squeak_dist.encoding import EncodedTable, FeatureEncoding, encode_table
from squeak_dist.encoding_rules import make_encoding, uncounted_columns
from squeak_dist.errors import DataError, EmptyDataError
from squeak_dist.kernels import Kernel
from squeak_dist.merge_tree import MergeTree, balanced_levels, group_rows, plan_merge_tree
from squeak_dist.profile import Profile, merge_profiles, profile_table
from squeak_dist.profile_checks import check_profile
from squeak_dist.squeak import SqueakParameters
from squeak_dist.stages.executors import Executor, reduce_levels, reduce_tree
from squeak_dist.stages.parameters import FitParameters
from squeak_dist.stages.tuning import tune
from squeak_dist.table import Table
from squeak_dist.tuning import Choice

SAMPLE_ROWS = 4096  # rows that the profile keeps
# Partitions share the task of a chain step until it has so many rows, bytes of them, or kernel
# entries: tasks of a tenth of a second or more, and few that the others wait for.
_STEP_ROWS, _STEP_BYTES, _STEP_ENTRIES = 262_144, 32 << 20, 1000 << 17
_PROFILE_FAN_IN = 8
_FEW = 16  # sums of vectors that a task adds
_PROFILE_ROUNDS = 4  # tasks per thread from which a task profiles a whole group: the same bits


@dataclass(frozen=True, eq=False)
class Layout:
    """What the profile alone decides: how rows are encoded, and in which order they are passed.

    Parameters
    ----------
    encoding : FeatureEncoding
        From columns to encoded rows.
    tree : MergeTree
        Chains and merges.
    target_mean, target_scale : ndarray of float64, shape (k,)
        Taken off the targets, and what they are divided by: their standard deviation.
    partition_rows, partition_kept : tuple of int
        Rows of each partition, and those left by the missing policy.
    step_rows : int
        Rows from which on a step of a chain, which is one task, takes no further partition.
    """

    encoding: FeatureEncoding
    tree: MergeTree
    target_mean: Float64Array
    target_scale: Float64Array
    partition_rows: tuple[int, ...]
    partition_kept: tuple[int, ...]
    step_rows: int


@dataclass(frozen=True, eq=False)
class Plan(Layout):
    """A layout with what is chosen on the sample of the profile.

    Parameters
    ----------
    encoding, tree, target_mean, target_scale, partition_rows, partition_kept, step_rows
        As in :class:`Layout`.
    kernel : Kernel
        With its length scale.
    tuning : Choice, optional
        The kernels that competed, where the fit had to choose one.
    resolvable : bool
        Whether conjugate gradients are expected to converge in the precision of the fit.
    squeak : SqueakParameters
        γ, q̄ and the size limit.
    """

    kernel: Kernel
    tuning: Choice | None
    resolvable: bool
    squeak: SqueakParameters


def settled_profile(
    executor: Executor, tables: Sequence[Any], parameters: FitParameters
) -> Profile:
    """Return the Profile of all partitions, whose rows are those of the fit and of predictions.

    Notes
    -----
    One pass. With ``missing="drop"`` another one where columns that are left out have
    missing values, as no row is dropped for these.
    """
    uncounted: tuple[Hashable, ...] = ()
    while True:
        profile: Profile = executor.gather(
            "profile", profile_stage(executor, tables, parameters, uncounted)
        )
        found = uncounted_columns(profile) if parameters.missing == "drop" else uncounted
        if found == uncounted:
            return profile
        uncounted = found


def profile_stage(
    executor: Executor,
    tables: Sequence[Any],
    parameters: FitParameters,
    uncounted: tuple[Hashable, ...] = (),
) -> Any:
    """Return a handle on the Profile of all partitions: one pass, merged in a tree.

    Parameters
    ----------
    executor : Executor
        Where the work runs.
    tables : sequence of handles on Table
        One per partition.
    parameters : FitParameters
        ``missing`` and the seed.
    uncounted : tuple of hashable, optional
        Columns for whose missing values no row is dropped.

    Raises
    ------
    EmptyDataError
        If there are no partitions.
    """
    if not tables:
        raise EmptyDataError(
            "the table has no partitions (n_samples=0); at least 2 rows are needed"
        )
    settings = (parameters.missing, parameters.seed, uncounted)
    levels = balanced_levels(len(tables), _PROFILE_FAN_IN)
    if len(tables) >= _PROFILE_ROUNDS * _PROFILE_FAN_IN * executor.slots():
        leaves = [
            executor.call(_profile_group, [tables[i] for i in group], group, *settings)
            for group in levels[0]
        ]
        levels = levels[1:]
    else:
        leaves = [
            executor.call(_profile_task, table, i, *settings) for i, table in enumerate(tables)
        ]
    return reduce_tree(
        executor, leaves, levels, lambda nodes, level, index: (_merge_profiles, nodes)
    )


def _profile_task(
    table: Table, partition: int, missing: str, seed: int, uncounted: tuple[Hashable, ...]
) -> Profile:
    return profile_table(
        table,
        partition=partition,
        missing=missing,
        seed=seed,
        sample_rows=SAMPLE_ROWS,
        uncounted=uncounted,
    )


def _profile_group(
    tables: Iterable[Table],
    partitions: tuple[int, ...],
    missing: str,
    seed: int,
    uncounted: tuple[Hashable, ...],
) -> Profile:
    """Profile partitions and merge: the samples, which may be most of the rows, do not move."""
    profiles = [
        _profile_task(table, partition, missing, seed, uncounted)
        for table, partition in zip(tables, partitions, strict=True)
    ]
    return profiles[0] if len(profiles) == 1 else merge_profiles(profiles)


def _merge_profiles(profiles: list[Profile]) -> Profile:
    return merge_profiles(profiles)


def make_layout(profile: Profile, n_partitions: int, parameters: FitParameters) -> Layout:
    """Decide encoding and tree, from the profile alone.

    Parameters
    ----------
    profile : Profile
        Of all partitions.
    n_partitions : int
        How many there are.
    parameters : FitParameters
        All parameters.

    Raises
    ------
    DataError
        For data that cannot be fitted.
    """
    check_profile(profile, missing=parameters.missing)
    encoding = make_encoding(
        profile,
        standardize=parameters.scales_columns,
        missing=parameters.missing,
        dtype=parameters.dtype,
    )
    kept = tuple(profile.partition_kept[i] for i in range(n_partitions))
    # The stop of a stream is defined for one stream only.
    one_chain = parameters.on_overrun == "stop"
    tree = plan_merge_tree(
        kept,
        fan_in=parameters.fan_in,
        **({"rows_per_chain": sys.maxsize, "min_chains": 1} if one_chain else {}),
    )
    return Layout(
        encoding=encoding,
        tree=tree,
        target_mean=profile.target_mean,
        target_scale=_target_scale(profile),
        partition_rows=tuple(profile.partition_rows[i] for i in range(n_partitions)),
        partition_kept=kept,
        step_rows=_step_rows(encoding, parameters.max_dictionary),
    )


def _step_rows(encoding: FeatureEncoding, max_dictionary: int | None) -> int:
    entries = _STEP_ENTRIES // max_dictionary if max_dictionary else _STEP_ROWS
    return max(min(_STEP_ROWS, _STEP_BYTES // encoded_row_bytes(encoding), entries), 1)


def make_plan(
    executor: Executor, profile: Profile, layout: Layout, parameters: FitParameters
) -> Plan:
    """Choose kernel and γ.

    Parameters
    ----------
    executor : Executor
        Where they are chosen.
    profile : Profile
        With the sample that they are chosen on.
    layout : Layout
        Of the same profile.
    parameters : FitParameters
        All parameters.

    Raises
    ------
    InvalidParameterError, InvalidKernelError
        As :func:`~squeak_dist.stages.tuning.tune`.
    """
    tuned = tune(executor, profile, layout.encoding, parameters, layout.target_scale)
    kernel = parameters.kernel if tuned.kernel is None else tuned.kernel
    assert not isinstance(kernel, str)
    return Plan(
        **{field.name: getattr(layout, field.name) for field in fields(Layout)},
        kernel=kernel,
        tuning=tuned.choice,
        resolvable=tuned.resolvable,
        squeak=SqueakParameters(
            gamma=tuned.gamma,
            epsilon=parameters.epsilon,
            qbar=tuned.qbar,
            max_dictionary=parameters.max_dictionary,
            on_overrun=parameters.on_overrun,
        ),
    )


def _target_scale(profile: Profile) -> Float64Array:
    scale = np.sqrt(profile.target_variance)
    if not np.isfinite(scale).all():
        raise DataError(
            "the variance of the target overflows float64; divide the target by its typical size"
        )
    return np.where(scale > 0, scale, 1.0)


@dataclass(frozen=True, eq=False)
class Encoded:
    """The encoded partitions: one handle per step of a chain.

    Parameters
    ----------
    steps : tuple of tuple of int
        Positions of the partitions of each step; empty partitions are in none.
    handles : tuple of handles on lists of EncodedTable
        One per step, its partitions in order.
    """

    steps: tuple[tuple[int, ...], ...]
    handles: tuple[Any, ...]

    def of(self, executor: Executor, positions: tuple[int, ...]) -> Any:
        """Return a handle on the list of some partitions: a step, or one of a step.

        Parameters
        ----------
        executor : Executor
            Where a single partition is taken out of its step.
        positions : tuple of int
            Of the partitions.
        """
        if positions in self._handle_of:
            return self._handle_of[positions]
        [position] = positions
        step = self._step_of[position]
        return executor.call(_pick_task, self._handle_of[step], step.index(position))

    @cached_property
    def _handle_of(self) -> dict[tuple[int, ...], Any]:
        return dict(zip(self.steps, self.handles, strict=True))

    @cached_property
    def _step_of(self) -> dict[int, tuple[int, ...]]:
        return {position: step for step in self.steps for position in step}


def encode_stage(executor: Executor, tables: Sequence[Any], layout: Layout) -> Encoded:
    """Return the encoded partitions, kept in memory where they fit.

    Parameters
    ----------
    executor : Executor
        Where the work runs.
    tables : sequence of handles on Table
        One per partition.
    layout : Layout
        The encoding, and mean and scale of the targets.
    """
    offsets = np.cumsum((0, *layout.partition_rows[:-1])).tolist()
    encoding, mean = executor.share(layout.encoding), executor.share(layout.target_mean)
    scale = executor.share(layout.target_scale)
    steps = tuple(step for chain in layout.tree.chains for step in chain_steps(chain, layout))
    handles = [
        executor.call(
            _encode_task, encoding, [tables[i] for i in step], mean, scale,
            tuple(offsets[i] for i in step),
        )
        for step in steps
    ]  # fmt: skip
    return Encoded(steps, tuple(executor.persist(handles, encoded_bytes(layout))))


def encoded_bytes(layout: Layout) -> int:
    """Return the bytes of all encoded partitions."""
    return sum(layout.partition_kept) * encoded_row_bytes(layout.encoding)


def encoded_row_bytes(encoding: FeatureEncoding) -> int:
    """Return the bytes of an encoded row, with target, weight and row number."""
    return encoding.n_features * np.dtype(encoding.dtype).itemsize + 24


def _encode_task(
    encoding: FeatureEncoding,
    tables: Iterable[Table],
    mean: Float64Array,
    scale: Float64Array,
    offsets: tuple[int, ...],
) -> list[EncodedTable]:
    return [
        encode_table(encoding, table, target_mean=mean, target_scale=scale, offset=offset)
        for table, offset in zip(tables, offsets, strict=True)
    ]


def _pick_task(tables: list[EncodedTable], position: int) -> list[EncodedTable]:
    return [tables[position]]


def fold_chains(
    executor: Executor,
    encoded: Encoded,
    layout: Layout,
    step: Callable[[Any, Any, tuple[int, ...]], tuple[Any, ...]],
) -> list[Any]:
    """Return one handle per chain: what its partitions, passed through in order, come to.

    Parameters
    ----------
    executor : Executor
        Where the work runs.
    encoded : Encoded
        All partitions.
    layout : Layout
        Its tree names the chains.
    step : callable
        Makes of (value so far, or None; handle on a list of partitions; their positions) the
        function and arguments of a call.
    """
    branches = []
    for chain in layout.tree.chains:
        value: Any = None
        for positions in chain_steps(chain, layout):
            tables = encoded.of(executor, positions)
            value = executor.call(*step(value, tables, positions))
        branches.append(value)
    return branches


def sum_rows(
    executor: Executor,
    encoded: Encoded,
    layout: Layout,
    step: Callable[[Any, Any, tuple[int, ...]], tuple[Any, ...]],
    add: Callable[[list[Any]], Any],
) -> Any:
    """Return a handle on a sum over all rows: one pass along the chains, then the tree.

    Parameters
    ----------
    executor, encoded, layout, step
        As in :func:`fold_chains`.
    add : callable
        Adds a list of sums, from left to right.
    """
    branches = fold_chains(executor, encoded, layout, step)
    return reduce_tree(
        executor, branches, layout.tree.levels, lambda nodes, level, index: (add, nodes)
    )


def few_sums(
    executor: Executor,
    encoded: Encoded,
    layout: Layout,
    step: Callable[[Any, Any, tuple[int, ...]], tuple[Any, ...]],
    add: Callable[[list[Any]], Any],
) -> list[Any]:
    """Return handles on at most 16 small sums, for a task that adds them up and goes on.

    A level of a tree takes longer to hand out than some vectors to add.

    Parameters
    ----------
    executor, encoded, layout, step, add
        As in :func:`sum_rows`.
    """
    branches = fold_chains(executor, encoded, layout, step)
    levels = balanced_levels(len(branches), _FEW)[:-1]
    return reduce_levels(executor, branches, levels, lambda nodes, level, index: (add, nodes))


def chain_steps(chain: tuple[int, ...], layout: Layout) -> list[tuple[int, ...]]:
    """Return the partitions of a chain in the steps that are one task each.

    Parameters
    ----------
    chain : tuple of int
        Positions of its partitions.
    layout : Layout
        With their rows.
    """
    groups = group_rows([layout.partition_kept[i] for i in chain], layout.step_rows)
    return [tuple(chain[position] for position in group) for group in groups]
