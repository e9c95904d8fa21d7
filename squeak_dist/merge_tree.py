"""The merge tree as a value: which partitions form a chain, which dictionaries merge."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

# levels[l][i] names the nodes of the level below that node i of level l merges.
Levels = tuple[tuple[tuple[int, ...], ...], ...]

ROWS_PER_CHAIN = 250_000
MIN_CHAINS = 8


@dataclass(frozen=True)
class MergeTree:
    """Chains of partitions, and the levels of merges above them.

    Parameters
    ----------
    chains : tuple of tuple of int
        Positions of the partitions that each chain passes through, in order.
    levels : tuple of tuple of tuple of int
        ``levels[l][i]`` names the nodes of the level below (the chains, for
        l = 0) that node i merges. The last level has one node. A node of one
        child is passed through.
    """

    chains: tuple[tuple[int, ...], ...]
    levels: Levels

    @property
    def n_merges(self) -> int:
        """Number of nodes that merge two dictionaries or more."""
        return sum(len(node) > 1 for level in self.levels for node in level)


def plan_merge_tree(
    partition_rows: Sequence[int],
    *,
    fan_in: int = 2,
    rows_per_chain: int = ROWS_PER_CHAIN,
    min_chains: int = MIN_CHAINS,
) -> MergeTree:
    """Plan chains of neighbouring partitions with about equal rows, and a balanced tree.

    Parameters
    ----------
    partition_rows : sequence of int
        Rows of each partition; empty ones are left out.
    fan_in : int, default 2
        Dictionaries per merge, at least 2.
    rows_per_chain, min_chains : int
        About one chain per ``rows_per_chain`` rows, but at least ``min_chains``
        where there are that many partitions.

    Returns
    -------
    MergeTree
        A rule of the data alone, never of the cluster, so that the result has
        the same bits on any number of workers.
    """
    filled = [i for i, rows in enumerate(partition_rows) if rows > 0]
    total = sum(partition_rows[i] for i in filled)
    n_chains = min(len(filled), max(min_chains, math.ceil(total / rows_per_chain)))
    chains = _cut(filled, [partition_rows[i] for i in filled], n_chains)
    return MergeTree(chains, balanced_levels(len(chains), fan_in))


def balanced_levels(n_leaves: int, fan_in: int) -> Levels:
    """Return the levels of a balanced tree over ``n_leaves`` nodes."""
    levels = []
    width = n_leaves
    while width > 1:
        level = tuple(
            tuple(range(start, min(start + fan_in, width))) for start in range(0, width, fan_in)
        )
        levels.append(level)
        width = len(level)
    return tuple(levels)


def left_deep_levels(n_leaves: int, fan_in: int) -> Levels:
    """Return the levels in which each merge takes the one before and the next leaves."""
    levels = []
    for width in range(n_leaves, 1, 1 - fan_in):
        first = min(fan_in, width)
        levels.append((tuple(range(first)), *((i,) for i in range(first, width))))
    return tuple(levels)


def random_levels(n_leaves: int, fan_in: int, rng: np.random.Generator) -> Levels:
    """Return levels of merges of any 2 to ``fan_in`` nodes, others passed through.

    Parameters
    ----------
    n_leaves : int
        Nodes to begin with.
    fan_in : int
        Most nodes per merge, at least 2.
    rng : numpy.random.Generator
        Source of the choice.
    """
    levels, width = [], n_leaves
    while width > 1:
        order = rng.permutation(width).tolist()
        level = [tuple(order[: min(int(rng.integers(2, fan_in + 1)), width)])]
        while (start := sum(map(len, level))) < width:
            level.append(tuple(order[start : start + int(rng.integers(1, fan_in + 1))]))
        levels.append(tuple(level))
        width = len(level)
    return tuple(levels)


def _cut(
    positions: Sequence[int], rows: Sequence[int], n_chains: int
) -> tuple[tuple[int, ...], ...]:
    """Cut positions into runs of about equal rows, none of them empty."""
    if not positions:
        return ()
    middles = np.array(list(accumulate(rows))) - np.array(rows) / 2
    chain = np.minimum((middles / sum(rows) * n_chains).astype(int), n_chains - 1)
    runs = [
        tuple(p for p, c in zip(positions, chain, strict=True) if c == k) for k in range(n_chains)
    ]
    return tuple(run for run in runs if run)


def group_rows(rows: Sequence[int], target: int) -> tuple[tuple[int, ...], ...]:
    """Group neighbouring positions so that each group but the last has ``target`` rows or more.

    Parameters
    ----------
    rows : sequence of int
        Rows at each position.
    target : int
        Rows after which a group is closed.
    """
    groups: list[tuple[int, ...]] = []
    current: list[int] = []
    size = 0
    for position, count in enumerate(rows):
        current.append(position)
        size += count
        if size >= target:
            groups.append(tuple(current))
            current, size = [], 0
    return (*groups, tuple(current)) if current else tuple(groups)
