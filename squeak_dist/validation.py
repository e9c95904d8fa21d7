"""Checks before work is submitted: numbers, versions across the cluster, memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np

from squeak_dist.errors import (
    ClusterError,
    InsufficientMemoryError,
    InvalidParameterError,
    VersionMismatchError,
)

_PACKAGES = ("squeak_dist", "numpy", "scipy", "pandas", "dask", "distributed")


def check_real(
    name: str, value: Any, *, above: float, below: float = np.inf, hint: str = ""
) -> float:
    """Return ``value`` as a float in the open interval (above, below).

    Parameters
    ----------
    name : str
        What the user calls it.
    value : object
        What was given.
    above, below : float
        The interval.
    hint : str, default ""
        End of the message: what else may be given.

    Raises
    ------
    InvalidParameterError
        With the name, what was got and the range.
    """
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or not above < value < below:
        bounds = f"> {above:g}" if below == np.inf else f"in ({above:g}, {below:g})"
        raise InvalidParameterError(f"{name} must be a number {bounds}, got {value!r}{hint}")
    return float(value)


def check_integer(name: str, value: Any, *, at_least: int, hint: str = "") -> int:
    """Return ``value`` as an int of at least ``at_least``.

    Parameters
    ----------
    name : str
        What the user calls it.
    value : object
        What was given.
    at_least : int
        Smallest value allowed.
    hint : str, default ""
        End of the message: what else may be given.

    Raises
    ------
    InvalidParameterError
        With the name, what was got and the range.
    """
    if not isinstance(value, Integral) or isinstance(value, bool) or value < at_least:
        raise InvalidParameterError(f"{name} must be an integer ≥ {at_least}, got {value!r}{hint}")
    return int(value)


def check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Check that ``value`` is one of ``choices``.

    Raises
    ------
    InvalidParameterError
        With the name, what was got and the choices.
    """
    if not any(value is c or (isinstance(value, str) and value == c) for c in choices):
        raise InvalidParameterError(
            f"{name} must be one of {', '.join(map(repr, choices))}; got {value!r}"
        )


def check_versions(client: Any) -> None:
    """Check that client, scheduler and workers run the same packages.

    Parameters
    ----------
    client : distributed.Client
        A synchronous client.

    Raises
    ------
    VersionMismatchError
        Naming the package and the versions found. Distributed's own check warns
        only, and knows neither this package nor scipy.
    ClusterError
        If the client is closed.
    """
    if client.status != "running":
        raise ClusterError(
            f"the Dask client is {client.status}; connect a running one, or pass none to run on "
            f"local threads"
        )
    versions = client.get_versions(packages=list(_PACKAGES))
    ours = versions["client"]
    differing = []
    for place, theirs in _places(versions):
        for package, mine, other in _differences(ours, theirs):
            differing.append(f"{package}: client {mine}, {place} {other}")
    if differing:
        shown = "; ".join(differing[:6]) + ("; …" if len(differing) > 6 else "")
        raise VersionMismatchError(
            f"the cluster runs other versions than the client: {shown}. Install the same "
            f"versions everywhere (None: not installed) and restart the workers"
        )


def _places(versions: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    workers = [(f"worker {address}", v) for address, v in versions["workers"].items()]
    scheduler = versions["scheduler"]
    return ([("scheduler", scheduler)] if scheduler else []) + workers


def _differences(
    ours: Mapping[str, Any], theirs: Mapping[str, Any]
) -> list[tuple[str, str | None, str | None]]:
    mine, other = dict(ours["packages"]), dict(theirs["packages"])
    mine["python"], other["python"] = ours["host"]["python"], theirs["host"]["python"]
    names = [*_PACKAGES, "python"]
    return [(n, mine.get(n), other.get(n)) for n in names if mine.get(n) != other.get(n)]


def check_memory(client: Any, needed: int, explanation: str) -> None:
    """Check that the largest task fits each worker.

    Parameters
    ----------
    client : distributed.Client
        A synchronous client.
    needed : int
        Projected bytes of the largest task.
    explanation : str
        What these bytes are made of, and which parameter lowers them.

    Raises
    ------
    InsufficientMemoryError
        If the smallest worker has less per thread.
    ClusterError
        If there are no workers.
    """
    workers = client.scheduler_info(n_workers=-1)["workers"]
    if not workers:
        raise ClusterError(
            "the Dask cluster has no workers; start some, or wait for them with "
            "client.wait_for_workers(1)"
        )
    limits = {
        address: info["memory_limit"] // info["nthreads"]
        for address, info in workers.items()
        if info["memory_limit"]
    }
    for address, limit in limits.items():
        if needed > limit:
            raise InsufficientMemoryError(
                f"a task needs about {needed / 2**20:,.0f} MiB ({explanation}), but worker "
                f"{address} has {limit / 2**20:,.0f} MiB per thread; lower max_dictionary, cut "
                f"the data into smaller partitions, or give the workers more memory"
            )
