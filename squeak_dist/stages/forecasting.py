"""What a fit will cost, said before it runs: from the profile, and rates that are measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np

from squeak_dist.errors import InvalidParameterError
from squeak_dist.kernels import brief_kernel
from squeak_dist.linalg import single_blas_thread
from squeak_dist.samplers import MERGING
from squeak_dist.stages.calibrating import Rates, RowCost, measure_rates
from squeak_dist.stages.executors import Executor
from squeak_dist.stages.iterating import EXPECTED_PASSES, faster_by_iterations
from squeak_dist.stages.learning import projected_bytes
from squeak_dist.stages.parameters import FitParameters
from squeak_dist.stages.planning import Plan, chain_steps, make_plan, settled_profile
from squeak_dist.stages.records import Clock
from squeak_dist.stages.tuning import sample_spectrum_of, tuning_sample
from squeak_dist.tuning import SampleSpectrum

_LADDER = (1 / 16, 1 / 4, 1.0, 4.0, 16.0)  # times the γ of the fit
_MOST_CALIBRATIONS = 16


@dataclass(frozen=True)
class Rung:
    """A fit at one γ.

    Parameters
    ----------
    gamma : float
        γ.
    effective_dimension : float
        Estimate of d_eff(γ) of all rows.
    dictionary_size : int
        Expected rows of the dictionary; ``max_dictionary`` does not count here.
    task_bytes : int
        Memory of the largest task.
    network_bytes : int
        Most that moves between workers: dictionaries, maps and partial sums.
    seconds : mapping of str to float
        Of each stage.
    solver : str
        ``"direct"`` or ``"cg"``.
    """

    gamma: float
    effective_dimension: float
    dictionary_size: int
    task_bytes: int
    network_bytes: int
    seconds: Mapping[str, float]
    solver: str


@dataclass(frozen=True)
class Forecast:
    """What a fit will be and cost.

    Parameters
    ----------
    rows : int
        Rows that will be fitted.
    partitions, chains, encoded_features : int
        Of the table.
    kernel : str
        Kernel and length scales.
    slots : int
        Tasks that run at once.
    chosen : Rung
        The fit as the parameters are.
    ladder : tuple of Rung
        Other values of γ around it.
    """

    rows: int
    partitions: int
    chains: int
    encoded_features: int
    kernel: str
    slots: int
    chosen: Rung
    ladder: tuple[Rung, ...]

    def __str__(self) -> str:
        head = (
            f"{self.rows:,} rows in {_counted(self.partitions, 'partition')}, "
            f"{_counted(self.encoded_features, 'encoded column')}; "
            f"{_counted(self.chains, 'chain')} on {_counted(self.slots, 'thread')}\n"
            f"{brief_kernel(self.kernel)}\n"
        )
        title = f"{'':2}{'γ':>10} {'d_eff':>9} {'rows kept':>10} {'MiB a task':>11} "
        title += f"{'MiB moved':>10} {'seconds':>9}  solver"
        lines = [_line(rung, rung is self.chosen) for rung in self.ladder]
        stages = ", ".join(f"{stage} {s:.1f} s" for stage, s in self.chosen.seconds.items())
        return "\n".join([head + title, *lines, stages])


def _counted(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _line(rung: Rung, chosen: bool) -> str:
    return (
        f"{'→ ' if chosen else '  '}{rung.gamma:>10.4g} {rung.effective_dimension:>9.1f} "
        f"{rung.dictionary_size:>10,} {rung.task_bytes / 2**20:>11,.0f} "
        f"{rung.network_bytes / 2**20:>10,.0f} {sum(rung.seconds.values()):>9.1f}  {rung.solver}"
    )


def forecast_fit(
    executor: Executor, tables: Sequence[Any], parameters: FitParameters, *, n_outputs: int
) -> Forecast:
    """Profile the partitions, choose kernel and γ, measure rates, and say what a fit costs.

    Parameters
    ----------
    executor : Executor
        Where the fit would run; every thread measures the rates at the same time.
    tables : sequence of handles on Table
        One per partition, in order.
    parameters : FitParameters
        Those of the fit.
    n_outputs : int
        Columns of the target.

    Raises
    ------
    DataError
        For data that cannot be fitted.
    InvalidParameterError
        For another sampler than SQUEAK and its trees.

    Notes
    -----
    One pass over the data, and some seconds.
    """
    if parameters.sampler not in MERGING:
        raise InvalidParameterError(
            f"a plan knows what SQUEAK keeps and costs, not sampler={parameters.sampler_name!r}; "
            f"expected one of {', '.join(MERGING)}"
        )
    clock = Clock()
    profile = settled_profile(executor, tables, parameters)
    clock.lap("profile")
    plan = make_plan(executor, profile, len(tables), parameters)
    clock.lap("tuning")
    sample = tuning_sample(profile, plan.encoding, plan.target_scale)
    with single_blas_thread():
        spectrum = sample_spectrum_of(sample, plan.kernel)
    size = _expected_size(spectrum, plan, plan.squeak.gamma)
    slots = executor.slots()
    shared = executor.share(sample)
    calls = [
        executor.call(measure_rates, shared, plan.kernel, plan.squeak, size)
        for _ in range(min(slots, _MOST_CALIBRATIONS))
    ]
    rates = _mean_rates(executor.gather("calibration", executor.call(list, calls)))
    costs = _Costs(plan, parameters, rates, slots, n_outputs, clock.seconds)
    rungs = tuple(costs.rung(spectrum, factor * plan.squeak.gamma) for factor in _LADDER)
    return Forecast(
        rows=sum(plan.partition_kept),
        partitions=len(tables),
        chains=len(plan.tree.chains),
        encoded_features=plan.encoding.n_features,
        kernel=str(plan.kernel),
        slots=slots,
        chosen=rungs[_LADDER.index(1.0)],
        ladder=rungs,
    )


def _expected_size(spectrum: SampleSpectrum, plan: Plan, gamma: float) -> int:
    size = spectrum.dictionary_size(gamma, plan.squeak.epsilon, plan.squeak.qbar)
    return max(1, min(round(size), sum(plan.partition_kept)))


def _mean_rates(found: Sequence[Rates]) -> Rates:
    def mean(name: str) -> RowCost:
        costs = [getattr(rates, name) for rates in found]
        return RowCost(fmean(c.linear for c in costs), fmean(c.square for c in costs))

    return Rates(
        mean("expand"), mean("sums"), mean("product"),
        fmean(rates.shrink for rates in found), fmean(rates.eigen for rates in found),
    )  # fmt: skip


@dataclass(frozen=True)
class _Costs:
    """What a fit costs at any γ."""

    plan: Plan
    parameters: FitParameters
    rates: Rates
    slots: int
    n_outputs: int
    measured: Mapping[str, float]

    def rung(self, spectrum: SampleSpectrum, gamma: float) -> Rung:
        """Return the cost of a fit at γ."""
        m, plan = _expected_size(spectrum, self.plan, gamma), self.plan
        limited = replace(self.parameters, max_dictionary=m)
        cg = self._iterates(m)
        return Rung(
            gamma=gamma,
            effective_dimension=spectrum.effective_dimension(gamma),
            dictionary_size=m,
            task_bytes=projected_bytes(plan, limited, self.n_outputs)[0],
            network_bytes=self._moved(m, cg),
            seconds={
                **self.measured,
                "dictionary": self._dictionary(m),
                "solve": self._iterations(m) if cg else self._direct(m),
            },
            solver="cg" if cg else "direct",
        )

    @property
    def _rows_in_turn(self) -> float:
        """Rows that one thread passes over: those of the longest queue of chains."""
        kept = self.plan.partition_kept
        chains = [sum(kept[i] for i in chain) for chain in self.plan.tree.chains]
        queues = [0.0] * min(self.slots, max(len(chains), 1))
        for rows in sorted(chains, reverse=True):  # the longest first, each to the shortest queue
            queues[int(np.argmin(queues))] += rows
        return max(queues)

    def _iterates(self, m: int) -> bool:
        if self.parameters.solver != "auto":
            return self.parameters.solver == "cg"
        rows, d = sum(self.plan.partition_kept), self.plan.encoding.n_features
        return faster_by_iterations(rows, m, d, self.n_outputs)

    def _dictionary(self, m: int) -> float:
        """Return the seconds of the chains, their Shrinks and the merges one above the other."""
        chains = max(len(self.plan.tree.chains), 1)
        rows = sum(self.plan.partition_kept) / chains
        turns = math.ceil(chains / self.slots)
        growth = self.plan.squeak.growth
        largest = growth * m
        growing = 1 / (1 - growth**-3)  # sizes fall by that from the last Shrink back
        steady = 2 * math.log(max(rows / m, 1.0))
        shrinks = turns * (growing + steady) * self.rates.shrink * largest**3
        merged = min(self.parameters.fan_in, chains) * m
        merges = len(self.plan.tree.levels) * self.rates.shrink * merged**3
        return self._rows_in_turn * self.rates.expand(m) + shrinks + merges

    def _direct(self, m: int) -> float:
        return self._rows_in_turn * self.rates.sums(m) + 1.3 * self.rates.eigen * m**3

    def _iterations(self, m: int) -> float:
        prepared = 2 * min(20 * m, sum(self.plan.partition_kept)) / self.slots
        return (
            EXPECTED_PASSES * self._rows_in_turn * self.rates.product(m)
            + prepared * self.rates.sums(m)
            + 2 * self.rates.eigen * m**3
        )

    def _moved(self, m: int, cg: bool) -> int:
        plan = self.plan
        d, k = plan.encoding.n_features, self.n_outputs
        chains = max(len(plan.tree.chains), 1)
        steps = sum(len(chain_steps(chain, plan)) for chain in plan.tree.chains)
        workers = min(self.slots, chains)
        dictionary = m * (d * np.dtype(plan.encoding.dtype).itemsize + 32)
        sums = 8 * (m * m + (m + d) * (d + 1 + k))
        vectors = 8 * m * k * EXPECTED_PASSES * (chains + workers) if cg else 0
        return int(
            (steps + chains) * dictionary + (chains - 1) * sums + workers * 12 * m * m + vectors
        )
