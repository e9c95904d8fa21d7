"""Where the calls of a fit run.

:class:`PlainExecutor` runs a call here and now, and is the reference that every
distributed result is compared with, bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

# What an executor may read ahead of the table that a task is at work on: one table, or up to
# so many that are so large together.
AHEAD, AHEAD_BYTES = 4, 64 << 20


class Executor(Protocol):
    """Where the calls of a fit run. A handle stands for a value that may not be there yet."""

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return a handle on function(*args); args may hold handles, and lists of them."""
        ...

    def share(self, value: Any) -> Any:
        """Return a handle on a value that many calls take."""
        ...

    def persist(self, handles: list[Any], nbytes: int) -> list[Any]:
        """Keep the values of handles for later stages if ``nbytes`` fit; else do nothing."""
        ...

    def keeps(self, nbytes: int) -> bool:
        """Return whether values of that many bytes are kept for later stages."""
        ...

    def gather(self, stage: str, handle: Any) -> Any:
        """Return the value of a handle: the end of a stage."""
        ...

    def check_memory(self, needed: int, explanation: str) -> None:
        """Raise InsufficientMemoryError if a task of that many bytes does not fit."""
        ...

    def slots(self) -> int:
        """Return how many calls run at once."""
        ...


class PlainExecutor:
    """The reference executor: each call runs at once, in this thread."""

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return function(*args)."""
        return function(*args)

    def share(self, value: Any) -> Any:
        """Return the value."""
        return value

    def persist(self, handles: list[Any], nbytes: int) -> list[Any]:
        """Return the handles, which are values already."""
        return handles

    def keeps(self, nbytes: int) -> bool:
        """Return True."""
        return True

    def gather(self, stage: str, handle: Any) -> Any:
        """Return the handle, which is a value already."""
        return handle

    def check_memory(self, needed: int, explanation: str) -> None:
        """Accept any size."""

    def slots(self) -> int:
        """Return 1."""
        return 1


def reduce_tree(
    executor: Executor,
    leaves: Sequence[Any],
    levels: tuple[tuple[tuple[int, ...], ...], ...],
    combine: Callable[[list[Any], int, int], tuple[Any, ...]],
) -> Any:
    """Reduce handles along the levels of a tree; return the handle of its root.

    Parameters
    ----------
    executor, leaves, levels, combine
        As in :func:`reduce_levels`.
    """
    [root] = reduce_levels(executor, leaves, levels, combine)
    return root


def reduce_levels(
    executor: Executor,
    leaves: Sequence[Any],
    levels: tuple[tuple[tuple[int, ...], ...], ...],
    combine: Callable[[list[Any], int, int], tuple[Any, ...]],
) -> list[Any]:
    """Reduce handles along some levels of a tree; return the handles of the last.

    Parameters
    ----------
    executor : Executor
        Where the work runs.
    leaves : sequence of handles
        At least one.
    levels : tuple of levels
        As in :class:`~squeak_dist.merge_tree.MergeTree`.
    combine : callable
        Makes of (handles, level, index) the function and arguments of a call.
    """
    nodes = list(leaves)
    for level, groups in enumerate(levels):
        nodes = [
            nodes[group[0]]
            if len(group) == 1
            else executor.call(*combine([nodes[i] for i in group], level, index))
            for index, group in enumerate(groups)
        ]
    return nodes
