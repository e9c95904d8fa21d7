"""From partitions to the joint dictionary: what every kind of fit begins with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from squeak_dist.errors import FitStopped, GammaRaised, warn_user
from squeak_dist.profile import Profile
from squeak_dist.samplers import MERGING
from squeak_dist.stages.dictionaries import Branch
from squeak_dist.stages.executors import AHEAD, AHEAD_BYTES, Executor
from squeak_dist.stages.parameters import FitParameters
from squeak_dist.stages.planning import (
    Encoded,
    Layout,
    Plan,
    chain_steps,
    encode_stage,
    encoded_bytes,
    encoded_row_bytes,
    make_layout,
    make_plan,
    settled_profile,
)
from squeak_dist.stages.records import Clock, TaskRecord
from squeak_dist.stages.sampling import sampling_bytes, sampling_stage
from squeak_dist.stages.tuning import tuning_report

_GIANT = 4  # times the median: a partition that large is named


@dataclass(frozen=True, eq=False)
class Learned:
    """What a fit knows before it solves for anything.

    Parameters
    ----------
    profile : Profile
        Of all rows.
    plan : Plan
        Encoding, kernel, γ and tree.
    encoded : Encoded
        All partitions.
    root : Branch
        The joint dictionary.
    clock : Clock
        Seconds of each stage.
    sampler : str
        Name of what chose the rows.
    """

    profile: Profile
    plan: Plan
    encoded: Encoded
    root: Branch
    clock: Clock
    sampler: str


def learn_dictionary(
    executor: Executor, tables: Sequence[Any], parameters: FitParameters, *, n_outputs: int
) -> Learned:
    """Profile the partitions, make a plan and choose the joint dictionary: two passes.

    Parameters
    ----------
    executor : Executor
        Where the work runs.
    tables : sequence of handles on Table
        One per partition, in order.
    parameters : FitParameters
        All parameters.
    n_outputs : int
        Columns of the target, for the projection of memory.

    Raises
    ------
    DataError, InsufficientMemoryError
        As :func:`fit_tables`.
    """
    clock = Clock()
    profile = settled_profile(executor, tables, parameters)
    clock.lap("profile")
    layout = make_layout(profile, len(tables), parameters)
    if sampling := sampling_bytes(layout, parameters):
        executor.check_memory(*sampling)
    executor.check_memory(*projected_bytes(layout, parameters, n_outputs))
    plan = make_plan(executor, profile, layout, parameters)
    clock.lap("tuning")
    # Not before: where a few workers tune, the others would encode, and then have, all rows.
    encoded = encode_stage(executor, tables, plan)
    root: Branch = executor.gather(
        "dictionary", sampling_stage(executor, encoded, plan, parameters)
    )
    _warn_of_overrun(root, plan, parameters)
    clock.lap("dictionary")
    return Learned(profile, plan, encoded, root, clock, parameters.sampler_name)


def projected_bytes(layout: Layout, parameters: FitParameters, n_outputs: int) -> tuple[int, str]:
    """Return the bytes of the largest task of a fit, and what they are made of.

    Parameters
    ----------
    layout : Layout
        Encoding, tree and rows of the partitions.
    parameters : FitParameters
        ``max_dictionary`` and ``fan_in``.
    n_outputs : int
        Columns of the target.

    Notes
    -----
    A merge of ``fan_in`` dictionaries of m rows holds three float64 matrices of
    (fan_in · m)²; the first pass of the solve holds two maps and two sums of m² twice,
    two blocks of features in float64 at worst. Beside them stand a partition as it is read, those
    read ahead and the encoded rows of a step. None of it depends on the number of rows. What is
    kept between the passes, at most half of the workers' memory, is not a task's.
    """
    rows = sum(layout.partition_kept)
    m = rows if parameters.sampler == "exact" else min(parameters.max_dictionary or rows, rows)
    d = layout.encoding.n_features
    merges = parameters.sampler in MERGING and len(layout.tree.chains) > 1
    union = m * (parameters.fan_in if merges else 1)
    merging = 3 * 8 * union**2
    solving = 8 * 8 * m**2 + 2 * 8 * 2048 * m
    largest = max(layout.partition_rows)
    one = largest * (4 * 8 * d + 8 * n_outputs + 16)
    partition = one + min(max(one, AHEAD_BYTES), AHEAD * one)
    partition += _rows_of_a_step(layout) * encoded_row_bytes(layout.encoding)
    explanation = (
        f"dictionaries of up to {m:,} rows merged {parameters.fan_in} at a time, partitions of up "
        f"to {largest:,} rows × {d} encoded columns{_giant(layout.partition_rows)}"
    )
    return max(merging, solving) + partition, explanation


def _rows_of_a_step(layout: Layout) -> int:
    steps = (step for chain in layout.tree.chains for step in chain_steps(chain, layout))
    return max((sum(layout.partition_kept[i] for i in step) for step in steps), default=0)


def _giant(partition_rows: tuple[int, ...]) -> str:
    """Name the partition that is far larger than the others; "" if none is."""
    largest, median = max(partition_rows), int(np.median(partition_rows))
    if largest < _GIANT * max(median, 1):
        return ""
    return (
        f"; partition {partition_rows.index(largest)}, counted from 0, has these, the median of "
        f"{len(partition_rows)} has {median:,}: cut it, e.g. with "
        f"X.repartition(partition_size='100MB')"
    )


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


def dictionary_report(learned: Learned, parameters: FitParameters) -> dict[str, Any]:
    """Return what the report says of the parameters, the rows and the dictionary."""
    profile, plan, root = learned.profile, learned.plan, learned.root
    return {
        "sampler": learned.sampler,
        "parameters": parameters.record(),
        "rows": profile.rows,
        "rows_fitted": profile.kept,
        "rows_dropped": profile.rows - profile.kept,
        "weight_sum": profile.weight_sum,
        "missing": {str(c.label): c.missing for c in profile.columns if c.missing},
        "missing_targets": profile.target_missing.tolist(),
        "rows_in_dictionary_pass": root.state.rows_seen,
        "partition_rows": list(plan.partition_rows),
        "chains": sum(record.level == 0 for record in root.records),
        "encoded_features": plan.encoding.n_features,
        "dictionary_size": len(root.dictionary),
        "tuning": tuning_report(plan.tuning),
        "gamma_requested": plan.squeak.gamma,
        "gamma": root.dictionary.gamma,
        "stopped": root.state.stopped,
        "fan_in": max((len(g) for level in plan.tree.levels for g in level), default=1),
        "merges": [_record(record) for record in root.records],
        "bytes": dictionary_bytes(learned),
    }


def dictionary_bytes(learned: Learned) -> dict[str, int]:
    """Return the bytes of all encoded partitions, and of all dictionaries that were handed on."""
    encoding = learned.plan.encoding
    # p, Q, v and the row number of a dictionary's row are 8 bytes each.
    row_bytes = encoding.n_features * np.dtype(encoding.dtype).itemsize + 32
    kept = sum(record.size_out for record in learned.root.records)
    return {"encoded": encoded_bytes(learned.plan), "dictionaries": kept * row_bytes}


def _record(record: TaskRecord) -> dict[str, Any]:
    return asdict(record) | {"growth": [list(point) for point in record.growth]}
