"""The rates of :mod:`squeak_dist.stages.costing`: the functions of a fit, timed on the sample."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from statistics import fmean
from typing import Any

import numpy as np

from squeak_dist._typing import Float64Array
from squeak_dist.conjugate_gradients import (
    kernel_product,
    residual_moment,
    start_cg,
    step_cg,
)
from squeak_dist.dictionary import Dictionary
from squeak_dist.encoding import FeatureEncoding, encode_table
from squeak_dist.kernels import Kernel
from squeak_dist.linalg import single_blas_thread
from squeak_dist.nystrom import NystromMap, projected_map, regularized_map
from squeak_dist.ridge_path import choose_penalty
from squeak_dist.solvers import (
    JointEquations,
    add_joint_equations,
    joint_equations,
    linear_equations,
    mu_by_gcv,
    ridge_factor,
    solve_direct,
)
from squeak_dist.squeak import SqueakParameters, shrink, squeak
from squeak_dist.stages.costing import Curve, Rates, curve_through
from squeak_dist.stages.parameters import Penalty
from squeak_dist.stages.solving import degrees_of_freedom
from squeak_dist.stages.tuning import TuningSample
from squeak_dist.table import Table

_ROWS = (512, 2048)  # rows whose difference in time is taken: what starting costs drops out
_SIZES = (0.5, 1.0)  # of the dictionary: two points of a curve
_CUBIC_SIZE = 1024  # at most, for what takes m³
_LEAST_SECONDS = 0.05  # of runs of what is timed
_NEVER = 1e9  # growth of a dictionary without Shrink


@dataclass(frozen=True, eq=False)
class _Bench:
    """What the functions of a fit take, with m centres and a sample of rows."""

    kernel: Kernel
    parameters: SqueakParameters
    penalty: Penalty
    sample: TuningSample
    dictionary: Dictionary
    nystrom: NystromMap

    @property
    def m(self) -> int:
        return len(self.nystrom)


def measure_rates(
    sample: TuningSample,
    kernel: Kernel,
    parameters: SqueakParameters,
    penalty: Penalty,
    size: int,
) -> Rates:
    """Time the functions of a fit on the sample.

    Parameters
    ----------
    sample : TuningSample
        Some thousand rows.
    kernel : Kernel
        With its length scales.
    parameters : SqueakParameters
        γ for all rows.
    penalty : Penalty
        What is given of the ridge regression.
    size : int
        m at which to measure: at most half of the sample, and 1,024 for factorizations.

    Notes
    -----
    A few seconds of processor time: n m² multiply-adds for some thousand rows, and three
    tridiagonal forms.
    """
    largest = min(size, len(sample.X) // 2)
    with single_blas_thread():
        wide, small = (
            [
                _bench(sample, kernel, parameters, penalty, max(int(share * m), 1))
                for share in _SIZES
            ]
            for m in (largest, min(largest, _CUBIC_SIZE))
        )
        return Rates(
            arrival=_row_seconds(_arrive, wide[0]),
            linear=_row_seconds(_add_linear, wide[0]),
            residual=_row_curve(_judge, wide),
            sums=_row_curve(_sum, wide),
            product=_row_curve(_iterate, wide),
            errors=_row_curve(_check, wide),
            **_factorizations(small),
        )


def reading_seconds(
    tables: Iterable[Table],
    encoding: FeatureEncoding,
    target_mean: Float64Array,
    target_scale: Float64Array,
) -> float:
    """Return the seconds to read and encode a row: on the clock, as storage is waited for.

    Parameters
    ----------
    tables : iterable of Table
        Some partitions, which are read here where they are not yet.
    encoding : FeatureEncoding
        Of their rows.
    target_mean, target_scale : ndarray of float64, shape (k,)
        As in :class:`~squeak_dist.stages.planning.Plan`.
    """
    began, rows = time.perf_counter(), 0
    for table in tables:
        encoded = encode_table(
            encoding, table, target_mean=target_mean, target_scale=target_scale, offset=0
        )
        rows += len(encoded)
    return (time.perf_counter() - began) / max(rows, 1)


def mean_rates(found: Sequence[Rates]) -> Rates:
    """Return the means of the rates of several threads."""
    names = [field.name for field in fields(Rates)]
    return Rates(**{name: _mean([getattr(rates, name) for rates in found]) for name in names})


def _mean(values: Sequence[Any]) -> Any:
    if isinstance(values[0], Curve):
        return Curve(values[0].power, fmean(c.low for c in values), fmean(c.high for c in values))
    return fmean(values)


def _bench(
    sample: TuningSample, kernel: Kernel, parameters: SqueakParameters, penalty: Penalty, m: int
) -> _Bench:
    dictionary = _uniform_dictionary(sample, parameters, m)
    return _Bench(
        kernel=kernel,
        parameters=replace(parameters, max_dictionary=None, growth=_NEVER),
        penalty=penalty,
        sample=sample,
        dictionary=dictionary,
        nystrom=projected_map(kernel, dictionary.points),
    )


def _uniform_dictionary(sample: TuningSample, parameters: SqueakParameters, m: int) -> Dictionary:
    """Return m rows that stand for all of them: as large as the one to come, chosen at once."""
    return Dictionary(
        points=sample.X[:m],
        indices=np.arange(m, dtype=np.int64),
        probabilities=np.full(m, min(1.0, m / sample.rows)),
        multiplicities=np.full(m, parameters.qbar),
        row_weights=np.ones(m),
        gamma=parameters.gamma,
        qbar=parameters.qbar,
    )


# --- what is done with rows: each takes a bench and rows -------------------------------------


def _arrive(bench: _Bench, rows: slice) -> None:
    squeak(bench.kernel, bench.sample.X[rows], bench.parameters, np.random.default_rng(0))


def _judge(bench: _Bench, rows: slice) -> None:
    bench.nystrom.residual(bench.sample.X[rows])


def _sum(bench: _Bench, rows: slice) -> None:
    joint_equations(bench.nystrom, bench.sample.X[rows], bench.sample.targets[rows])


def _add_linear(bench: _Bench, rows: slice) -> None:
    linear_equations(bench.sample.X[rows], bench.sample.targets[rows])


def _iterate(bench: _Bench, rows: slice) -> None:
    kernel_product(bench.nystrom, bench.sample.X[rows], _vectors(bench))


def _check(bench: _Bench, rows: slice) -> None:
    X, targets = bench.sample.X[rows], bench.sample.targets[rows]
    residual_moment(bench.nystrom, X, targets, _vectors(bench))


def _vectors(bench: _Bench) -> Float64Array:
    return np.ones((bench.m, bench.sample.targets.shape[1]))


# --- what is done once --------------------------------------------------------------------------


def _factorizations(benches: Sequence[_Bench]) -> dict[str, Any]:
    """Return the rates of what is done once per dictionary, or once per fit."""
    timed = [_once(bench) for bench in benches]
    sizes = [bench.m for bench in benches]
    curves = {
        name: curve_through(power, sizes, [seconds[name] for seconds in timed])
        for name, power in _POWERS.items()
    }
    return curves | {"baseline": timed[-1]["baseline"]}


_POWERS = {
    "shrink": 2, "factor": 2, "spectrum": 2, "cholesky": 2, "inverse": 2, "add": 1, "step": 1,
}  # fmt: skip


def _once(bench: _Bench) -> dict[str, float]:
    joint = joint_equations(bench.nystrom, bench.sample.X, bench.sample.targets)
    equations, mu = joint.kernel, max(bench.parameters.gamma, 1e-6)
    factor = ridge_factor(equations, mu)
    state = start_cg(equations.moment, factor)
    rng = np.random.default_rng(0)
    work: dict[str, Callable[[], Any]] = {
        "shrink": lambda: shrink(bench.kernel, bench.dictionary, bench.parameters, rng),
        "factor": lambda: regularized_map(bench.kernel, bench.dictionary),
        "spectrum": lambda: choose_penalty(
            joint.path(), bench.penalty.mu, bench.penalty.linear_part
        ),
        "cholesky": lambda: ridge_factor(equations, mu),
        "inverse": lambda: degrees_of_freedom(factor, mu),
        "add": lambda: add_joint_equations(joint, joint),
        "step": lambda: _step(bench, state, factor),
        "baseline": lambda: _baseline(joint),
    }
    return {name: _seconds(do) for name, do in work.items()}


def _step(bench: _Bench, state: Any, factor: Float64Array) -> None:
    bench.nystrom.coefficients(state.direction)
    step_cg(state, bench.nystrom.features_of(state.direction), factor)


def _baseline(joint: JointEquations) -> None:
    solve_direct(joint.linear, mu_by_gcv(joint.linear))


# --- timing -------------------------------------------------------------------------------------


def _row_curve(work: Callable[[_Bench, slice], None], benches: Sequence[_Bench]) -> Curve:
    """Return the curve of the seconds of a row, measured at two sizes."""
    sizes = [bench.m for bench in benches]
    return curve_through(1, sizes, [_row_seconds(work, bench) for bench in benches])


def _row_seconds(work: Callable[[_Bench, slice], None], bench: _Bench) -> float:
    few, many = (min(rows, len(bench.sample.X)) for rows in _ROWS)
    long = _seconds(lambda: work(bench, slice(0, many)))
    if few == many:
        return long / many
    short = _seconds(lambda: work(bench, slice(0, few)))
    return max(long - short, 1e-9) / (many - few)


def _seconds(do: Callable[[], Any]) -> float:
    """Return the processor time of a call: other work on the machine does not count."""
    do()
    found: list[float] = []
    while sum(found) < _LEAST_SECONDS:
        began = time.thread_time()
        do()
        found.append(max(time.thread_time() - began, 1e-9))
    return fmean(found)
