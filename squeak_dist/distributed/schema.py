"""Which column plays which part: features, targets and weight, by label."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from squeak_dist.columns import Kind, kind_name, named_kind
from squeak_dist.errors import ColumnTypeError, DataError, InvalidParameterError
from squeak_dist.table import TableSchema, column_positions

# Labels of columns that come from another collection than X.
WEIGHT = "__weight__"
WEIGHT_NAME = "sample_weight"


@dataclass(frozen=True, eq=False)
class Source:
    """The partitions of a user's collection.

    Parameters
    ----------
    tables : tuple of Delayed
        Each a :class:`~squeak_dist.table.Table`.
    schema : TableSchema
        What was cut.
    single_output : bool
        Whether the target was one column, not a list of one.
    unnamed_features : bool
        Whether the features came as an array, without names.
    origins : sequence, optional
        What each table was cut from, or files of all: what tells a checkpoint that the
        data are the same. See :mod:`~squeak_dist.distributed.identity`.
    dtypes : mapping of label to dtype, optional
        Of the columns.
    nbytes : int, default 0
        What the tables carry in their graphs: rows in memory.
    """

    tables: tuple[Any, ...]
    schema: TableSchema
    single_output: bool
    unnamed_features: bool
    origins: Sequence[Any] = ()
    dtypes: Mapping[Hashable, Any] = field(default_factory=dict)
    nbytes: int = 0

    @property
    def target_names(self) -> tuple[str, ...]:
        """What the user calls the targets."""
        return self.schema.target_names


@dataclass(frozen=True)
class Targets:
    """The columns to predict.

    Parameters
    ----------
    labels : tuple of hashable
        In the frame that is cut.
    names : tuple of str
        What the user calls them.
    single : bool
        Whether it is one column, not a list of one.
    """

    labels: tuple[Hashable, ...]
    names: tuple[str, ...]
    single: bool


NO_TARGETS = Targets((), (), single=False)


def own_targets(target: Any) -> Targets:
    """Return the targets that are columns of X; ``NO_TARGETS`` stays what it is.

    Raises
    ------
    InvalidParameterError
        For no label, one that is named twice, or no label at all.
    """
    if isinstance(target, Targets):
        return target
    if isinstance(target, list):
        labels = _distinct_labels("target", target)
        return Targets(labels, tuple(map(str, labels)), single=False)
    if not isinstance(target, Hashable):
        raise InvalidParameterError(
            f"target must be a label of a column or a list of labels, got {type(target).__name__}"
        )
    return Targets((target,), (str(target),), single=True)


def other_targets(names: Sequence[str], *, single: bool) -> Targets:
    """Return the targets that come from y: with labels of their own."""
    labels = tuple(f"__target_{j}__" for j in range(len(names)))
    return Targets(labels, tuple(names), single)


def output_names(outputs: int, *, single: bool) -> tuple[str, ...]:
    """Return names for the columns of an array y."""
    return ("y",) if single else tuple(f"y{j}" for j in range(outputs))


def frame_schema(
    columns: Sequence[Hashable],
    own: Sequence[Hashable],
    targets: Targets,
    weight: Hashable | None,
    features: Any,
) -> TableSchema:
    """Say what each column of a frame is, and check that all of them are there.

    Parameters
    ----------
    columns : sequence of hashable
        Labels of the frame.
    own : sequence of hashable
        Those of X.
    targets : Targets
        The columns to predict.
    weight : hashable, optional
        Label of the sample weights.
    features : list of labels, optional
        All others of X by default.

    Raises
    ------
    DataError
        If no columns are left to learn from, or some are missing.
    InvalidParameterError
        If ``features`` is no list of distinct labels, or names the target or weight.
    """
    others = (*targets.labels, *(() if weight is None else (weight,)))
    if features is None:
        chosen = tuple(label for label in own if label not in others)
    else:
        chosen = _distinct_labels("features", features)
    if not chosen:
        raise DataError(
            "no columns are left to learn from: 0 feature(s) while a minimum of 1 is required"
        )
    overlap = [label for label in chosen if label in others]
    if overlap:
        raise InvalidParameterError(
            f"{overlap[0]!r} is both a feature and the target or weight; it can be one of them"
        )
    column_positions(columns, (*chosen, *others))
    weight_name = WEIGHT_NAME if weight == WEIGHT else str(weight)
    return TableSchema(chosen, targets.labels, weight, targets.names, weight_name)


def array_schema(n_features: int, targets: Targets, *, weighted: bool) -> TableSchema:
    """Return the schema of arrays: features without names."""
    return TableSchema(
        features=tuple(f"x{j}" for j in range(n_features)),
        targets=targets.labels,
        weight=WEIGHT if weighted else None,
        target_names=targets.names,
        weight_name=WEIGHT_NAME,
    )


def _distinct_labels(name: str, labels: Any) -> tuple[Hashable, ...]:
    if isinstance(labels, (str, bytes)) or not isinstance(labels, Iterable):
        raise InvalidParameterError(
            f"{name} must be a list of labels; got {labels!r}, use [{labels!r}]"
        )
    chosen = tuple(labels)
    if not chosen:
        raise InvalidParameterError(f"{name} is empty; name at least one column")
    repeated = [label for label in dict.fromkeys(chosen) if chosen.count(label) > 1]
    if repeated:
        raise InvalidParameterError(
            f"{name} names {repeated[0]!r} {chosen.count(repeated[0])} times; once is enough"
        )
    return chosen


def check_types(schema: TableSchema, dtypes: Mapping[Hashable, Any]) -> None:
    """Refuse, before anything is read, types that no stage can use.

    Raises
    ------
    ColumnTypeError
        Naming the column as the user does.
    """
    for label in schema.features:
        named_kind(label, dtypes[label])
    for label, name in zip(schema.targets, schema.target_names, strict=True):
        _check_number("target", name, dtypes[label])
    if schema.weight is not None:
        _check_number("sample weight", schema.weight_name, dtypes[schema.weight])


def _check_number(role: str, name: str, dtype: Any) -> None:
    """Check a target or weight; the values of a column of objects decide when it is read."""
    kind: Kind = "numeric" if dtype == np.dtype(object) else named_kind(name, dtype)
    if kind not in ("numeric", "boolean"):
        raise ColumnTypeError(
            f"the {role} {name!r} is {kind_name(kind)} (dtype {dtype}), but must be numbers"
            + ("; for classes use SqueakClassifier" if role == "target" else "")
        )
