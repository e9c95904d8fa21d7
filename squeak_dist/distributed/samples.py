"""A uniform sample of the rows of a test set, for the figures of a report."""

from __future__ import annotations

from typing import Any

import numpy as np
from distributed import Client

from squeak_dist._typing import Float64Array
from squeak_dist.classes import indicators
from squeak_dist.distributed.executor import active_executor
from squeak_dist.distributed.scores import check_values
from squeak_dist.distributed.sources import Source
from squeak_dist.encoded_sample import EncodedSample
from squeak_dist.errors import DataError
from squeak_dist.merge_tree import balanced_levels
from squeak_dist.model import FittedModel
from squeak_dist.stages.executors import reduce_tree
from squeak_dist.table import Table

_SAMPLE_ROWS = 2000
_KEY = 7  # first entry of the spawn keys; those of a fit are smaller

Drawn = tuple[Float64Array, EncodedSample]  # with the priorities of its rows, ascending


def sample_source(
    model: FittedModel, source: Source, *, client: Client | str | None = None
) -> EncodedSample:
    """Return at most 2,000 rows of a source that have a target and a positive weight.

    Parameters
    ----------
    model : FittedModel
        Its encoding and its seed.
    source : Source
        Test rows; the target of a classifier is the position of the class, and rows of labels
        that the fit had not are left out.
    client : distributed.Client or "ray", optional
        The current client by default.

    Raises
    ------
    DataError
        If no rows are left, or columns do not match.
    InfiniteValuesError, MissingValuesError, InvalidParameterError
        For such targets or weights.

    Notes
    -----
    One pass. The same rows on any number of workers.
    """
    with active_executor(client) as executor:
        shared = executor.share(model.for_predictions())
        leaves = [
            executor.call(_sample_task, shared, table, i) for i, table in enumerate(source.tables)
        ]
        levels = balanced_levels(len(leaves), 8)
        root = reduce_tree(executor, leaves, levels, lambda nodes, level, index: (_first, nodes))
        _, sample = executor.gather("sample", root)
    if not len(sample):
        raise DataError(
            "no rows to judge (n_samples=0): the table is empty, or no row has a target and a "
            "weight above 0"
        )
    found: EncodedSample = sample
    return found


def _sample_task(model: FittedModel, table: Table, partition: int) -> Drawn:
    names = model.target_names if model.classes is None else (model.classes.target,)
    check_values(table, names)
    weights = np.ones(len(table.targets)) if table.weights is None else table.weights
    targets = table.targets if model.classes is None else indicators(model.classes, table.targets)
    known = ~np.isnan(targets).any(axis=1) & (weights > 0)
    rng = np.random.default_rng(np.random.SeedSequence(model.seed, spawn_key=(_KEY, 0, partition)))
    priorities = rng.random(len(known))
    rows = np.flatnonzero(known)
    rows = np.sort(rows[np.argsort(priorities[rows], kind="stable")[:_SAMPLE_ROWS]])
    X, kept = model.encoding.encode(table.features.iloc[rows])
    rows = rows[kept]
    return _first([(priorities[rows], EncodedSample(X, targets[rows], weights[rows]))])


def _first(parts: list[Drawn]) -> Drawn:
    """Return the rows of the smallest priorities."""
    priorities = np.concatenate([found for found, _ in parts])
    order = np.argsort(priorities, kind="stable")[:_SAMPLE_ROWS]
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(sample, name) for _, sample in parts])[order]
        for name in ("X", "targets", "weights")
    }
    return priorities[order], EncodedSample(**columns)
