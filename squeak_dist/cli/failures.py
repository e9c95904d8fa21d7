"""How a command ends that could not do its work: one line, in its own words, and an exit code."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from squeak_dist.cli.interrupts import INTERRUPTED, advice
from squeak_dist.cli.options import option_name
from squeak_dist.errors import (
    CheckpointError,
    ClusterError,
    NumericalError,
    SqueakError,
    SqueakWarning,
    StorageError,
    StoreError,
)
from squeak_dist.parameter_table import PARAMETERS

_FAILURES = (ClusterError, NumericalError, StorageError)  # of the run, not of what the user gave
_GIVEN_WRONG = (  # what the system says of a path that is not what it should be
    FileNotFoundError,
    FileExistsError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
)
_DASK_PREFIX = re.compile(r"An error occurred while calling .*? Original Message: ")
_NAMES = (*PARAMETERS, "sample_weight", "overwrite", "checkpoint", "features", "target")
_ASSIGNED = re.compile(rf'\b({"|".join(_NAMES)})=(?:"([^"]*)"|([\w.+-]*\w))')
_SUBJECT = re.compile(rf"(?<![\w-])({'|'.join(_NAMES)})(?= must be )")
_COMPOUND = re.compile(rf"(?<![\w'\"-])({'|'.join(n for n in _NAMES if '_' in n)})(?![\w'\"(])")


class _UserError(click.ClickException):
    exit_code = 2


def plain_errors(command: Callable[..., Any]) -> Callable[..., Any]:
    """Turn errors into one line and an exit code: 2 for bad input, 1 for a failure.

    Ctrl-C is 130.
    """

    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("always", SqueakWarning)
                warnings.showwarning = _show_warning
                return command(*args, **kwargs)
        except KeyboardInterrupt:
            click.echo(advice(kwargs), err=True)
            sys.exit(INTERRUPTED)
        except BrokenPipeError:
            raise  # the reader of stdout has seen enough: click ends in silence
        except SqueakError as error:
            kind = click.ClickException if _is_failure(error) else _UserError
            raise kind(_one_line(error)) from error
        except _breakdowns() as error:
            raise click.ClickException(f"{type(error).__name__}: {_one_line(error)}") from error

    return wrapped


def _is_failure(error: SqueakError) -> bool:
    """Say whether the run failed, and not what the user gave."""
    if type(error) in (StoreError, CheckpointError):
        cause = error.__cause__
        return isinstance(cause, OSError) and not isinstance(cause, _GIVEN_WRONG)
    return isinstance(error, _FAILURES)


def _breakdowns() -> tuple[type[BaseException], ...]:
    """Return the errors of files, disks, networks and workers while a command runs."""
    import concurrent.futures

    import pyarrow
    from distributed import KilledWorker

    broken: tuple[type[BaseException], ...] = (
        *(OSError, MemoryError, pyarrow.ArrowException),
        *(KilledWorker, concurrent.futures.CancelledError),
    )
    return broken


def in_option_words(message: str) -> str:
    """Return a message of the library with parameters as the options that set them.

    Parameters
    ----------
    message : str
        Such as ``pass missing="impute"``, which becomes ``pass --missing impute``.
    """
    message = _ASSIGNED.sub(_assigned, message)
    for names in (_SUBJECT, _COMPOUND):
        message = names.sub(lambda found: option_name(found[1]), message)
    return message


def _assigned(found: re.Match[str]) -> str:
    value = found[2] if found[2] is not None else found[3]
    return option_name(found[1]) + ("" if value == "True" else f" {value}")


def _one_line(message: object) -> str:
    return in_option_words(_DASK_PREFIX.sub("", " ".join(str(message).split())))


def _show_warning(message: Any, category: type[Warning], *args: Any, **kwargs: Any) -> None:
    if issubclass(category, SqueakWarning):
        click.echo(f"Warning: {_one_line(message)}", err=True)
