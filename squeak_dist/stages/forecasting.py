"""What a fit will cost, said before it runs: from the profile, and rates that are measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from squeak_dist.errors import InvalidParameterError
from squeak_dist.kernels import Kernel, brief_kernel, kernel_diag
from squeak_dist.leverage import rls_of_new_rows
from squeak_dist.linalg import single_blas_thread
from squeak_dist.samplers import MERGING
from squeak_dist.squeak import SqueakParameters
from squeak_dist.stages.calibrating import mean_rates, measure_rates, reading_seconds
from squeak_dist.stages.costing import (
    Growth,
    Machines,
    Rates,
    Shape,
    dictionary_cost,
    direct_cost,
    iterations_cost,
    moved_bytes,
    size_curve,
)
from squeak_dist.stages.executors import Executor, reduce_tree
from squeak_dist.stages.iterating import expected_iterations, most_iterations
from squeak_dist.stages.learning import projected_bytes
from squeak_dist.stages.parameters import FitParameters
from squeak_dist.stages.planning import (
    Plan,
    chain_steps,
    encoded_bytes,
    make_layout,
    make_plan,
    settled_profile,
)
from squeak_dist.stages.records import Clock
from squeak_dist.stages.tuning import TuningSample, sample_spectrum_of, tuning_sample
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
        Of each stage, on the clock.
    processor_seconds : mapping of str to float
        Of the stages that depend on γ, of all threads together.
    solver : str
        ``"direct"`` or ``"cg"``.
    """

    gamma: float
    effective_dimension: float
    dictionary_size: int
    task_bytes: int
    network_bytes: int
    seconds: Mapping[str, float]
    processor_seconds: Mapping[str, float]
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
    layout = make_layout(profile, len(tables), parameters)
    plan = make_plan(executor, profile, layout, parameters)
    clock.lap("tuning")
    slots, waiting = executor.slots(), _waiting(executor, plan)
    sample = executor.share(tuning_sample(profile, plan.encoding, plan.target_scale))
    kernel, settings = executor.share(plan.kernel), executor.share(plan.squeak)
    spectrum = executor.call(_spectrum_task, sample, kernel)
    size = executor.call(_size_task, spectrum, settings)
    rates = [
        executor.call(measure_rates, sample, kernel, settings, parameters.penalty, size)
        for _ in range(min(slots, _MOST_CALIBRATIONS))
    ]
    largest = int(np.argmax(plan.partition_kept))
    reading = executor.call(
        reading_seconds, [tables[largest]], plan.encoding, plan.target_mean, plan.target_scale
    )
    keeps = executor.keeps(encoded_bytes(plan))
    machines = executor.call(_machines_task, slots, rates, reading, keeps, waiting)
    fit = _Fit(plan, parameters, n_outputs, dict(clock.seconds))
    rungs: list[Rung] = executor.gather(
        "calibration", executor.call(_ladder_task, fit, machines, sample, spectrum)
    )
    return Forecast(
        rows=sum(plan.partition_kept),
        partitions=len(tables),
        chains=len(plan.tree.chains),
        encoded_features=plan.encoding.n_features,
        kernel=str(plan.kernel),
        slots=slots,
        chosen=rungs[_LADDER.index(1.0)],
        ladder=tuple(rungs),
    )


def _waiting(executor: Executor, plan: Plan) -> float:
    """Return the seconds of a pass whose tasks do nothing: what the scheduler takes."""
    clock, chains = Clock(), []
    for chain in plan.tree.chains:
        value = None
        for _ in chain_steps(chain, plan):
            value = executor.call(_nothing, value)
        chains.append(value)
    root = reduce_tree(executor, chains, plan.tree.levels, lambda nodes, *_: (_nothing, nodes))
    executor.gather("calibration", root)
    clock.lap("pass")
    return clock.seconds["pass"]


def _nothing(value: Any) -> None:
    """Take the value of another task."""


def _spectrum_task(sample: TuningSample, kernel: Kernel) -> SampleSpectrum:
    with single_blas_thread():
        return sample_spectrum_of(sample, kernel)


def _size_task(spectrum: SampleSpectrum, settings: SqueakParameters) -> int:
    return _expected_size(spectrum, settings, settings.gamma)


def _expected_size(spectrum: SampleSpectrum, settings: SqueakParameters, gamma: float) -> int:
    size = spectrum.dictionary_size(gamma, settings.epsilon, settings.qbar)
    return max(1, min(round(size), spectrum.rows))


def _machines_task(
    slots: int, rates: list[Rates], reading: float, keeps: bool, waiting: float
) -> Machines:
    return Machines(slots, mean_rates(rates), reading, keeps, waiting)


@dataclass(frozen=True, eq=False)
class _Fit:
    """What is to be fitted, and the seconds of the stages that are over."""

    plan: Plan
    parameters: FitParameters
    n_outputs: int
    measured: Mapping[str, float]

    @property
    def shape(self) -> Shape:
        kept, tree = self.plan.partition_kept, self.plan.tree
        return Shape(tuple(tuple(kept[i] for i in chain) for chain in tree.chains), tree.levels)


def _ladder_task(
    fit: _Fit, machines: Machines, sample: TuningSample, spectrum: SampleSpectrum
) -> list[Rung]:
    """Return the rungs of a fit."""
    with single_blas_thread():
        diagonal = float(np.mean(kernel_diag(fit.plan.kernel, sample.X)))
        unexplained = spectrum.unexplained(sample.leading().targets)
        costs = _Costs(fit, machines, spectrum, diagonal, unexplained)
        return [costs.rung(factor * fit.plan.squeak.gamma) for factor in _LADDER]


@dataclass(frozen=True, eq=False)
class _Costs:
    """What a fit costs at any γ, from what the sample says of its rows."""

    fit: _Fit
    machines: Machines
    spectrum: SampleSpectrum
    diagonal: float  # the mean k(x, x)
    unexplained: float

    def rung(self, gamma: float) -> Rung:
        """Return the cost of a fit at γ."""
        plan, machines, shape = self.fit.plan, self.machines, self.fit.shape
        m = _expected_size(self.spectrum, plan.squeak, gamma)
        growth = self._growth(gamma)
        cg = self._iterates(m)
        costs = {
            "dictionary": dictionary_cost(shape, growth, machines),
            "solve": (
                iterations_cost(shape, m, machines, self.unexplained, doubled=not plan.resolvable)
                if cg
                else direct_cost(shape, m, machines)
            ),
        }
        limited = replace(self.fit.parameters, max_dictionary=m)
        return Rung(
            gamma=gamma,
            effective_dimension=self.spectrum.effective_dimension(gamma),
            dictionary_size=m,
            task_bytes=projected_bytes(plan, limited, self.fit.n_outputs)[0],
            network_bytes=self._moved(growth, m, cg),
            seconds={
                **self.fit.measured,
                **{stage: cost.seconds for stage, cost in costs.items()},
            },
            processor_seconds={stage: cost.work for stage, cost in costs.items()},
            solver="cg" if cg else "direct",
        )

    def _growth(self, gamma: float) -> Growth:
        settings = self.fit.plan.squeak
        epsilon, qbar, rows = settings.epsilon, settings.qbar, self.fit.shape.rows
        [p] = rls_of_new_rows(np.array([self.diagonal]), gamma, epsilon)

        def of(n: int) -> SampleSpectrum:
            return replace(self.spectrum, rows=n)

        return Growth(
            chain=size_curve(lambda n: of(n).chain_size(gamma, epsilon, qbar), rows),
            merged=size_curve(lambda n: of(n).dictionary_size(gamma, epsilon, qbar), rows),
            fresh=float(1 - (1 - p) ** qbar),
            factor=settings.growth,
        )

    def _iterates(self, m: int) -> bool:
        most = most_iterations(
            self.fit.parameters.solver,
            self.fit.shape.rows,
            m,
            self.fit.plan.encoding.n_features,
            self.fit.n_outputs,
            doubled=not self.fit.plan.resolvable,
        )
        return most > 0

    def _moved(self, growth: Growth, m: int, cg: bool) -> int:
        plan, shape = self.fit.plan, self.fit.shape
        d = plan.encoding.n_features
        return moved_bytes(
            shape,
            growth,
            m,
            row_bytes=d * np.dtype(plan.encoding.dtype).itemsize + 32,
            width=d + 1,
            outputs=self.fit.n_outputs,
            workers=min(self.machines.slots, len(shape.chains)),
            iterations=expected_iterations(self.unexplained, shape.rows, m) if cg else 0,
            steps=sum(len(chain_steps(chain, plan)) for chain in plan.tree.chains),
        )
