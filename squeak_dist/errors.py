"""Errors and warnings of squeak_dist.

Every error derives from :class:`SqueakError` and from the builtin class that
fits, so ``except ValueError`` works as with scikit-learn. A message says what
was got, what was expected and what to do.
"""

from __future__ import annotations

import sys
import warnings


class SqueakError(Exception):
    """Base class of every error that squeak_dist raises on purpose."""


class InvalidParameterError(SqueakError, ValueError):
    """A parameter has a value outside its range."""


class UnknownParameterError(InvalidParameterError, TypeError):
    """There is no parameter of that name."""


class InvalidKernelError(SqueakError, ValueError):
    """A kernel returns a wrong shape, non-finite values, or is not positive semidefinite."""


class DataError(SqueakError, ValueError):
    """The data cannot be fitted or predicted as they are."""


class EmptyDataError(DataError):
    """No rows are left to work on, or too few."""


class MissingColumnsError(DataError, KeyError):
    """Columns that are needed are not in the table."""

    def __str__(self) -> str:
        # KeyError would print the repr of the message.
        return str(self.args[0]) if self.args else ""


class MissingValuesError(DataError):
    """Missing values where the policy allows none."""


class InfiniteValuesError(DataError):
    """Infinite values in features, target or weights."""


class LengthMismatchError(DataError):
    """Features, target and weights have different numbers of rows."""


class ConstantTargetError(DataError):
    """The target does not vary, so there is nothing to learn."""


class ColumnTypeError(SqueakError, TypeError):
    """A column has a type that cannot be used where it stands."""


class NumericalError(SqueakError, ArithmeticError):
    """A factorization failed although its input passed the checks."""


class InsufficientMemoryError(SqueakError, MemoryError):
    """The projected memory of a task exceeds what a worker has."""


class VersionMismatchError(SqueakError, RuntimeError):
    """Client, scheduler and workers run different package versions."""


class ClusterError(SqueakError, RuntimeError):
    """The cluster cannot do the work (no workers, wrong kind of client)."""


class StorageError(SqueakError, OSError):
    """Data can no longer be read, or a file system fails, in the middle of the work."""


class StoreError(SqueakError, RuntimeError):
    """A stored model cannot be written or read."""


class StoreNotFoundError(StoreError, FileNotFoundError):
    """There is no store at the given place."""


class StoreFormatError(StoreError, ValueError):
    """The store is not a squeak_dist model, or of a newer format."""


class StoreCorruptedError(StoreError, ValueError):
    """The store is incomplete, truncated, or its checksums do not match."""


class CheckpointError(SqueakError, RuntimeError):
    """A checkpoint cannot be written, read or removed."""


class CheckpointMismatchError(CheckpointError, ValueError):
    """A checkpoint belongs to a fit of other data, parameters or package version."""


class SqueakWarning(UserWarning):
    """Base class of the warnings of squeak_dist."""


class GammaRaised(SqueakWarning):
    """gamma was raised so that the dictionary stays within max_dictionary."""


class FitStopped(SqueakWarning):
    """The fit stopped at max_dictionary before it had seen every row."""


class TuningFellBack(SqueakWarning):
    """Length scales of maximum likelihood were worse than the median distance."""


class FitForgotten(SqueakWarning):
    """partial_fit began anew on a model that fit had made."""


class ColumnsDropped(SqueakWarning):
    """Columns that carry no information were left out of the fit."""


class LargeTable(SqueakWarning):
    """Rows in memory go through the scheduler that had better be read by the workers."""


class UnseenLevels(SqueakWarning):
    """Numbers in a column that was text in the fit are none of its levels."""


class CheckpointWarning(SqueakWarning):
    """Something of a checkpoint could not be used, and the fit went on without it."""


def warn_user(message: str, category: type[SqueakWarning]) -> None:
    """Warn at the line outside this package that called it, however deep the call."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] == __package__:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
