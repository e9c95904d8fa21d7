"""What a fit costs as a function of its sizes and of measured rates: no task, no table, no clock.

Each stage is the sum of what its tasks do, in the terms in which they do it: rows judged,
Shrinks, Gram matrices, factorizations. Rates are those of
:mod:`squeak_dist.stages.calibrating`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from squeak_dist.merge_tree import Levels
from squeak_dist.squeak import COARSE_FROM, COARSE_STRIDE, MIN_ROWS
from squeak_dist.stages.iterating import (
    DOUBLED_COST,
    expected_iterations,
    sample_per_centre,
)

_POINTS = 32  # of a growth curve, which is smooth


@dataclass(frozen=True)
class Curve:
    """Seconds of something done with m centres: low · m^power + high · m^(power + 1).

    Parameters
    ----------
    power : int
        1 for what is done with a row, 2 for a factorization.
    low, high : float
        Measured.
    """

    power: int
    low: float
    high: float

    def __call__(self, m: float) -> float:
        """Return the seconds at m centres."""
        return m**self.power * (self.low + self.high * m)


def curve_through(power: int, sizes: Sequence[int], seconds: Sequence[float]) -> Curve:
    """Return the curve through what was measured at two sizes; neither term is negative.

    Parameters
    ----------
    power : int
        Of the curve.
    sizes : sequence of int
        m of both measurements, ascending; they may be the same.
    seconds : sequence of float
        What they took.
    """
    (small, large), (few, many) = sizes, seconds
    below, above = few / small**power, many / large**power
    if small == large:
        return Curve(power, above, 0.0)
    high = min(max((above - below) / (large - small), 0.0), above / large)
    return Curve(power, above - high * large, high)


@dataclass(frozen=True)
class Rates:
    """Seconds of one thread for what the tasks of a fit are made of.

    Parameters
    ----------
    arrival : float
        Of a row that is sampled while there is no map to judge it by.
    residual, sums, product, errors : Curve
        Of a row that is judged by a map, added to the normal equations, or passed through
        an iteration or the check of conjugate gradients.
    shrink, factor : Curve
        Of a Shrink, and of making a map.
    spectrum, cholesky, inverse : Curve
        Of the ridge path with its choice of μ, the factor of A, and its inverse.
    add, step : Curve
        Of adding two sums, and of a step of conjugate gradients without its pass.
    linear : float
        Of a row added to the normal equations of the linear baseline.
    baseline : float
        Of solving these.
    """

    arrival: float
    residual: Curve
    sums: Curve
    product: Curve
    errors: Curve
    shrink: Curve
    factor: Curve
    spectrum: Curve
    cholesky: Curve
    inverse: Curve
    add: Curve
    step: Curve
    linear: float
    baseline: float


@dataclass(frozen=True)
class Machines:
    """Where a fit runs.

    Parameters
    ----------
    slots : int
        Tasks at once.
    rates : Rates
        Of each of these threads.
    reading : float
        Seconds to read and encode a row.
    keeps : bool
        Whether the encoded rows stay in memory between passes.
    waiting : float
        Seconds of a pass of tasks that do nothing.
    """

    slots: int
    rates: Rates
    reading: float
    keeps: bool
    waiting: float


@dataclass(frozen=True)
class Shape:
    """The rows of a fit as its tree has them.

    Parameters
    ----------
    chains : tuple of tuple of int
        Rows of each partition of each chain.
    levels : Levels
        Of merges above them.
    """

    chains: tuple[tuple[int, ...], ...]
    levels: Levels

    @property
    def chain_rows(self) -> list[int]:
        """Rows of each chain."""
        return [sum(chain) for chain in self.chains]

    @property
    def rows(self) -> int:
        """Rows of all chains."""
        return sum(self.chain_rows)


@dataclass(frozen=True)
class SizeCurve:
    """How large a dictionary is that stands for some rows.

    Parameters
    ----------
    rows, sizes : tuple of float
        Points of the curve, ascending; between them it is a power of the rows.
    """

    rows: tuple[float, ...]
    sizes: tuple[float, ...]

    def __call__(self, rows: float) -> float:
        """Return the rows kept of as many rows."""
        logs = np.interp(np.log(rows), np.log(self.rows), np.log(self.sizes))
        return min(float(np.exp(logs)), float(rows))


def size_curve(size: Callable[[int], float], rows: int) -> SizeCurve:
    """Return the curve of a size from 1 row to all.

    Parameters
    ----------
    size : callable
        Makes of a number of rows the size that is kept of them.
    rows : int
        All.
    """
    points = np.unique(np.geomspace(1, max(rows, 2), _POINTS).round().astype(int)).tolist()
    return SizeCurve(tuple(points), tuple(max(size(n), 1e-12) for n in points))


@dataclass(frozen=True)
class Growth:
    """How dictionaries grow, and shrink.

    Parameters
    ----------
    chain, merged : SizeCurve
        Rows kept by a chain, and by the root of the tree.
    fresh : float
        Share of the rows that are sampled before there is a map.
    factor : float
        By which a dictionary grows between Shrinks.
    """

    chain: SizeCurve
    merged: SizeCurve
    fresh: float
    factor: float

    def at(self, depth: float, rows: float) -> float:
        """Return the rows kept at a depth from 0, a chain, to 1, the root.

        What is kept falls with the least of the estimates, of which each level adds one.
        """
        return self.chain(rows) ** (1 - depth) * self.merged(rows) ** depth


@dataclass(frozen=True)
class Cost:
    """Seconds on the clock, and seconds of all threads together."""

    seconds: float = 0.0
    work: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.seconds + other.seconds, self.work + other.work)

    def times(self, count: float) -> Cost:
        """Return the cost of doing it several times, one after the other."""
        return Cost(count * self.seconds, count * self.work)


def alone(seconds: float) -> Cost:
    """Return the cost of one task, which no other runs beside."""
    return Cost(seconds, seconds)


def side_by_side(tasks: Sequence[float], slots: int) -> Cost:
    """Return the cost of tasks of given seconds: the longest first, each to the first free slot.

    Parameters
    ----------
    tasks : sequence of float
        Seconds of each.
    slots : int
        Tasks at once.
    """
    queues = [0.0] * min(slots, max(len(tasks), 1))
    for seconds in sorted(tasks, reverse=True):
        queues[int(np.argmin(queues))] += seconds
    return Cost(max(queues), sum(tasks))


@dataclass(frozen=True)
class Stretch:
    """What a chain does between two Shrinks.

    Parameters
    ----------
    rows : float
        Rows that pass.
    mapped : float
        Centres of the map that they are judged by; 0 without one.
    passing : float
        Share of the rows that the coarse map lets through to the full one.
    judges : int
        How often the map is made: after the Shrink, and at each further partition.
    grown : float
        Rows that the next Shrink takes.
    """

    rows: float
    mapped: float
    passing: float
    judges: int
    grown: float


def chain_course(partitions: Sequence[int], growth: Growth) -> Iterator[Stretch]:
    """Yield the stretches of a chain; each ends with a Shrink.

    Parameters
    ----------
    partitions : sequence of int
        Rows of its partitions.
    growth : Growth
        Sizes.

    Notes
    -----
    A row that comes after r rows is sampled as often as those of the r were kept,
    so that Shrink is due when the rows have grown by the factor of the dictionary. The
    coarse map is that of a quarter of the dictionary, hence of a quarter of the rows.
    """
    ends = list(accumulate(partitions))
    seen, mapped, rate = 0.0, 0.0, growth.fresh
    while seen < ends[-1]:
        capacity = growth.factor * max(mapped, MIN_ROWS)
        rows = min(max((capacity - mapped) / max(rate, 1e-300), 1.0), ends[-1] - seen)
        quarter = seen / COARSE_STRIDE
        yield Stretch(
            rows=rows,
            mapped=mapped,
            passing=growth.chain(quarter) / quarter if mapped >= COARSE_FROM else 1.0,
            judges=1 + sum(seen < end < seen + rows for end in ends) if mapped else 0,
            grown=mapped + rate * rows,
        )
        seen += rows
        mapped = min(growth.chain(seen), mapped + rate * rows)
        rate = mapped / seen


def stretch_seconds(stretch: Stretch, rates: Rates) -> float:
    """Return the seconds of a stretch and of the Shrink at its end.

    Parameters
    ----------
    stretch : Stretch
        Of a chain.
    rates : Rates
        Of the thread that it runs on.
    """
    m = stretch.mapped
    row, judge = rates.arrival, 0.0
    if m >= COARSE_FROM:
        coarse = m / COARSE_STRIDE
        row += rates.residual(coarse) + stretch.passing * rates.residual(m)
        judge = rates.factor(m) + rates.factor(coarse)
    elif m:
        row += rates.residual(m)
        judge = rates.factor(m)
    return stretch.rows * row + stretch.judges * judge + rates.shrink(stretch.grown)


def dictionary_cost(shape: Shape, growth: Growth, machines: Machines) -> Cost:
    """Return the cost of reading, encoding, the chains, and the merges above them.

    Parameters
    ----------
    shape : Shape
        Chains and merges.
    growth : Growth
        Sizes of the dictionaries.
    machines : Machines
        Where it runs.
    """
    rates, slots = machines.rates, machines.slots
    chains = [
        sum(chain) * machines.reading
        + sum(stretch_seconds(stretch, rates) for stretch in chain_course(chain, growth))
        for chain in shape.chains
    ]
    cost = Cost(machines.waiting) + side_by_side(chains, slots)
    for nodes in merged_sizes(shape, growth):
        merges = [rates.shrink(sum(node)) for node in nodes if len(node) > 1]
        cost += side_by_side(merges, slots)
    return cost


def merged_sizes(shape: Shape, growth: Growth) -> Iterator[list[list[float]]]:
    """Yield for each level the sizes of the dictionaries that each of its nodes merges."""
    rows = shape.chain_rows
    sizes = [growth.chain(n) for n in rows]
    for height, level in enumerate(shape.levels, start=1):
        nodes = [[sizes[i] for i in node] for node in level]
        yield nodes
        rows = [sum(rows[i] for i in node) for node in level]
        sizes = [
            growth.at(height / len(shape.levels), n) if len(node) > 1 else node[0]
            for n, node in zip(rows, nodes, strict=True)
        ]


def pass_cost(shape: Shape, row: float, add: float, machines: Machines) -> Cost:
    """Return the cost of a sum over all rows: along the chains, then up the tree.

    Parameters
    ----------
    shape : Shape
        Chains and tree.
    row, add : float
        Seconds of a row, and of adding two sums.
    machines : Machines
        Where it runs.
    """
    if not machines.keeps:
        row += machines.reading
    cost = Cost(machines.waiting)
    cost += side_by_side([rows * row for rows in shape.chain_rows], machines.slots)
    for level in shape.levels:
        cost += side_by_side([(len(node) - 1) * add for node in level], machines.slots)
    return cost


def direct_cost(shape: Shape, m: int, machines: Machines) -> Cost:
    """Return the cost of the direct solve.

    Parameters
    ----------
    shape : Shape
        Of the rows.
    m : int
        Dictionary size.
    machines : Machines
        Where it runs.
    """
    rates = machines.rates
    return (
        alone(rates.factor(m))
        + pass_cost(shape, rates.sums(m), rates.add(m), machines)
        + alone(rates.spectrum(m) + rates.cholesky(m) + rates.inverse(m) + rates.shrink(m))
        + alone(rates.baseline)
    )


def iterations_cost(
    shape: Shape, m: int, machines: Machines, unexplained: float, *, doubled: bool = False
) -> Cost:
    """Return the cost of the solve by conjugate gradients.

    Parameters
    ----------
    shape, m, machines
        As in :func:`direct_cost`.
    unexplained : float
        Share of the targets' variance that the fit leaves.
    doubled : bool, default False
        Whether they run in float64.

    Notes
    -----
    The sample of the preconditioner is summed, and so are the dictionary's own rows; the sketch
    that judges the sample takes a factorization, as the map does.
    """
    rates, slots = machines.rates, machines.slots
    times = DOUBLED_COST if doubled else 1.0
    share = min(1.0, sample_per_centre(shape.rows, m) * m / shape.rows)
    first = rates.linear + share * times * rates.sums(m)
    partitions = [(len(chain) - 1) * rates.add(m) for chain in shape.chains]
    iteration = pass_cost(shape, times * rates.product(m), 0.0, machines) + alone(rates.step(m))
    return (
        alone(2 * rates.factor(m))
        + pass_cost(shape, first, rates.add(m), machines)
        + side_by_side(partitions, slots)
        + alone(rates.spectrum(m) + m * times * rates.sums(m) + rates.cholesky(m))
        + iteration.times(expected_iterations(unexplained, shape.rows, m))
        + pass_cost(shape, times * rates.errors(m), 0.0, machines)
        + alone(rates.step(m) + rates.inverse(m) + rates.shrink(m) + rates.baseline)
    )


def moved_bytes(
    shape: Shape,
    growth: Growth,
    m: int,
    *,
    row_bytes: int,
    width: int,
    outputs: int,
    workers: int,
    iterations: int,
    steps: int,
) -> int:
    """Return the most bytes that move between workers.

    Parameters
    ----------
    shape, growth, m
        As in :func:`dictionary_cost` and :func:`direct_cost`.
    row_bytes : int
        Of a dictionary's row.
    width : int
        d + 1: columns of the linear part.
    outputs : int
        k.
    workers : int
        That need the map.
    iterations : int
        Of conjugate gradients; 0 for the direct solve.
    steps : int
        Tasks that pass a dictionary on along a chain.
    """
    merged = sum(size for nodes in merged_sizes(shape, growth) for node in nodes for size in node)
    kept = steps * growth.chain(max(shape.chain_rows)) + merged + m
    sums = 8 * (m + width) * (m + 2 * width + outputs)
    # T in float64, and the lower half of it in float32.
    map_bytes = 10 * m * m
    vectors = (
        8 * m * outputs * (iterations + 1) * (len(shape.chains) + workers) if iterations else 0
    )
    return math.ceil(
        kept * row_bytes + (len(shape.chains) - 1) * sums + workers * map_bytes + vectors
    )
