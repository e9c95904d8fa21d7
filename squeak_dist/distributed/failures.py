"""Errors of this package as values between tasks.

A task that raises makes Dask print its key, arguments and traceback in the log of the
worker. What is wrong with the user's data is no failure of the worker: it travels to
the client as a value, and is raised there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from squeak_dist.errors import SqueakError


@dataclass(frozen=True)
class Failure:
    """An error instead of a value.

    Parameters
    ----------
    error : SqueakError
        To be raised by the client.
    """

    error: SqueakError


class Guarded:
    """A function that returns errors of this package as :class:`Failure`.

    Parameters
    ----------
    function : callable
        Called with the same arguments, unless a Failure is among them, which is then
        the result.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.__name__ = function.__name__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the result of the function, or a Failure."""
        failure = _first_failure(args)
        if failure is not None:
            return failure
        try:
            return self.function(*args, **kwargs)
        except SqueakError as error:
            return Failure(error)


def _first_failure(values: Any) -> Failure | None:
    for value in values:
        if isinstance(value, Failure):
            return value
        if isinstance(value, list) and (failure := _first_failure(value)) is not None:
            return failure
    return None


def value_of(result: Any) -> Any:
    """Return a result; raise the error that it stands for.

    Parameters
    ----------
    result : object
        Of a task.

    Raises
    ------
    SqueakError
        If the result is a Failure.
    """
    if isinstance(result, Failure):
        raise result.error
    return result
