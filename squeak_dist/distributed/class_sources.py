"""Sources of classes: their labels counted, or given, and the partitions with ±1 columns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from dask.base import is_dask_collection
from dask.delayed import delayed
from distributed import Client

from squeak_dist._typing import Float64Array
from squeak_dist.classes import Classes, indicate, shown
from squeak_dist.distributed.executor import active_executor
from squeak_dist.distributed.failures import Guarded
from squeak_dist.distributed.labels import Labelled
from squeak_dist.distributed.schema import Source, other_targets
from squeak_dist.errors import InvalidParameterError
from squeak_dist.label_counts import (
    LabelCounts,
    class_weights,
    count_labels,
    make_classes,
    merge_counts,
)
from squeak_dist.merge_tree import balanced_levels
from squeak_dist.progress import Progress
from squeak_dist.stages.executors import Executor, reduce_tree

_FAN_IN = 8
_COPIES = 3  # of the ±1 columns of a partition in one task


def class_source(
    found: Labelled,
    class_weight: Any,
    missing: str,
    *,
    client: Client | str | None = None,
    progress: Progress | bool | None = None,
) -> tuple[Source, Classes, Float64Array | None]:
    """Count the labels, and cut the collection into partitions with ±1 columns.

    Parameters
    ----------
    found : Labelled
        The collection.
    class_weight : None, "balanced" or mapping of label to float
        Multiplied into the sample weights.
    missing : {"raise", "impute", "drop"}
        Whether rows without a label are an error.
    client : distributed.Client, optional
        The current client by default.
    progress : callable or bool, optional
        Called with (stage, tasks done, tasks in all).

    Returns
    -------
    source : Source
    classes : Classes
    weights : ndarray of shape (K,) or None
        Of the classes.

    Raises
    ------
    DataError, ColumnTypeError
        For labels that are no classes, or one class only.
    VersionMismatchError, ClusterError, InsufficientMemoryError
        As a fit.

    Notes
    -----
    One pass over the column of labels: of parquet no other column is read.
    """
    with active_executor(client, progress) as executor:
        counts = _counted(executor, found)
        classes = make_classes(counts, found.name, found.column.dtype, missing)
        needed = _COPIES * 8 * len(classes) * counts.largest
        executor.check_memory(
            needed, f"one column for each of {len(classes):,} classes in partitions of up to "
            f"{counts.largest:,} rows"
        )  # fmt: skip
    weights = class_weights(class_weight, classes, counts)
    return _indicated(found.source(classes), classes, weights), classes, weights


def given_class_source(
    found: Labelled, labels: Any, known: Classes | None, class_weight: Any
) -> tuple[Source, Classes, Float64Array | None]:
    """Cut the collection into partitions with ±1 columns of classes that are given.

    Parameters
    ----------
    found : Labelled
        The collection.
    labels : array of shape (K,), optional
        All labels; needed where ``known`` is None.
    known : Classes, optional
        Those of earlier rows.
    class_weight : None or mapping of label to float
        Multiplied into the sample weights.

    Returns
    -------
    source, classes, weights
        As of :func:`class_source`. Nothing is computed.

    Raises
    ------
    InvalidParameterError
        If ``labels`` are missing, or others than the known ones.
    DataError, ColumnTypeError
        If they are no labels of two classes or more.
    """
    if labels is None and known is None:
        raise InvalidParameterError(
            "classes must be passed on the first call to partial_fit: all labels that will come"
        )
    if labels is not None:
        given = _given_classes(found, labels)
        if known is not None and given.labels != known.labels:
            raise InvalidParameterError(
                f"classes are {shown(given.labels)}, but were {shown(known.labels)} in the first "
                f"partial_fit"
            )
        known = given if known is None else known
    assert known is not None
    weights = class_weights(class_weight, known, LabelCounts(dict.fromkeys(known.labels, 1), 0, 0))
    return _indicated(found.source(known), known, weights), known, weights


def _given_classes(found: Labelled, labels: Any) -> Classes:
    values, own = np.asarray(labels), found.column.dtype
    # The width of a text array is that of the labels that happen to be in it.
    dtype = values.dtype if getattr(own, "kind", "") == "U" else own
    return make_classes(count_labels(values.ravel(), found.name), found.name, dtype, "raise")


def _counted(executor: Executor, found: Labelled) -> LabelCounts:
    column, name = found.column, found.name
    if not is_dask_collection(column):
        return merge_counts([count_labels(column, name)])
    parts = column.to_delayed()
    leaves = [executor.call(count_labels, part, name) for part in np.ravel(parts)]
    levels = balanced_levels(len(leaves), _FAN_IN)
    root = reduce_tree(executor, leaves, levels, lambda nodes, level, index: (merge_counts, nodes))
    return merge_counts([executor.gather("labels", root)])


def _indicated(source: Source, classes: Classes, weights: Float64Array | None) -> Source:
    shared, factors = delayed(classes, traverse=False), delayed(weights, traverse=False)
    outputs = other_targets(classes.output_names, single=len(classes) == 2)
    weight = source.schema.weight
    schema = replace(
        source.schema, targets=outputs.labels, target_names=outputs.names, weight=weight
    )
    tables = tuple(delayed(Guarded(indicate))(table, shared, factors) for table in source.tables)
    return replace(source, tables=tables, schema=schema, single_output=outputs.single)
