"""The solve by conjugate gradients: from the solution on a sample, one pass per iteration."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any

import numpy as np

from squeak_dist._typing import Float64Array, FloatArray
from squeak_dist.conjugate_gradients import (
    SKETCH_ROWS,
    CGState,
    ResidualSketch,
    dictionary_row_weights,
    embedded_factor,
    kernel_product,
    preconditioner,
    residual_moment,
    residual_sketch,
    resolvable,
    restart_cg,
    sampled_row_weights,
    sign_embedding,
    start_cg,
    step_cg,
)
from squeak_dist.dictionary import Dictionary
from squeak_dist.encoding import EncodedTable
from squeak_dist.kernels import Kernel, kernel_diag
from squeak_dist.linalg import (
    least_eigenvalue,
    single_blas_thread,
    spectral_norm,
    symmetrize,
)
from squeak_dist.nystrom import NystromMap, converted_blocks, on_dictionary
from squeak_dist.ridge_path import RidgePath, choose_penalty
from squeak_dist.solvers import (
    JointEquations,
    NormalEquations,
    add_joint_equations,
    add_normal_equations,
    collinearity_ridge,
    column_range,
    joint_equations,
    linear_equations,
    mu_by_gcv,
    solve_direct,
)
from squeak_dist.squeak import dictionary_effective_dimension
from squeak_dist.stages.dictionaries import task_rng
from squeak_dist.stages.executors import Executor
from squeak_dist.stages.parameters import Penalty
from squeak_dist.stages.planning import Encoded, Plan, few_sums, sum_rows
from squeak_dist.stages.records import peak_memory
from squeak_dist.stages.solving import Solution, degrees_of_freedom, noise_variance

# The squared error of stopping early stays below 0.03² of that of the fit itself.
_TOLERANCE = 0.03
_LOOSEST, _TIGHTEST = 1e-2, 1e-4
_MOST_ITERATIONS = 25
_MOST_RESTARTS = 3
_DRIFT = 1 / 8  # of the bound of what rounding does to residuals: errors do not all add up
_SOLVE_KEY = 4
DOUBLED_COST = 2.2  # of float64 beside float32: kernel entries, products, solves
_EXPECTED_PASSES = 6  # the start in float64, the iterations, and a check where rounding asks


@dataclass(frozen=True, eq=False)
class CGSums:
    """What the first pass sums up.

    Parameters
    ----------
    linear : NormalEquations
        Of the encoded columns, over all rows.
    column_range : ndarray of float64, shape (2, d)
        Their smallest and largest values.
    balanced : JointEquations
        Of the uniformly sampled rows, weighted by the balance heuristic.
    peak_bytes : int
        Largest memory of a task so far.
    """

    linear: NormalEquations
    column_range: Float64Array
    balanced: JointEquations
    peak_bytes: int


@dataclass(frozen=True, eq=False)
class SampleSolution:
    """What the sample says of the solution; p = m, m + 1 or m + d + 1 (a linear part).

    Parameters
    ----------
    theta : ndarray of float64, shape (p, k)
        The solution on the sample.
    mu : float
        μ, of all rows.
    ridge : ndarray of float64, shape (p - m,)
        What the linear columns have beside it.
    tolerance : float
        At which relative residual to stop.
    """

    theta: Float64Array
    mu: float
    ridge: Float64Array
    tolerance: float


@dataclass(frozen=True, eq=False)
class CGSystem:
    """The system A θ = b as far as the sample tells; p as in :class:`SampleSolution`.

    Parameters
    ----------
    theta : ndarray of float64, shape (p, k)
        The solution on the sample.
    mu : float
        μ.
    penalties : ndarray of float64, shape (p, 1)
        μ, and what the columns of the linear part have beside it: A = Σ v φ φᵀ + their
        diagonal.
    factor : ndarray of float64, shape (p, p)
        Of the preconditioner: an estimate of A.
    linear : NormalEquations
        Of the linear baseline.
    column_range : ndarray of float64, shape (2, d)
        Smallest and largest values of the encoded columns.
    tolerance : float
        At which relative residual to stop.
    kernel_norm, norm, least : float
        ‖Σ v z zᵀ‖, at least ‖A‖, and the smallest eigenvalue of A, by the estimate.
    peak_bytes : int
        Largest memory of a worker so far.
    """

    theta: Float64Array
    mu: float
    penalties: Float64Array
    factor: Float64Array
    linear: NormalEquations
    column_range: Float64Array
    tolerance: float
    kernel_norm: float
    norm: float
    least: float
    peak_bytes: int


@dataclass(frozen=True, eq=False)
class Residuals:
    """What a pass over the errors of the solution sums up.

    Parameters
    ----------
    moment : ndarray of float64, shape (p, k)
        K_Dn diag(v) (y − f), and the same with the columns of a linear part.
    square : ndarray of float64, shape (k,)
        Σ v (y − f)².
    """

    moment: Float64Array
    square: Float64Array


@dataclass(frozen=True, eq=False)
class Iterate:
    """Where the iterations stand, with what the next pass over the rows needs.

    Parameters
    ----------
    state : CGState
        θ and its residual.
    coefficients : ndarray of float64, shape (p, k)
        c of the direction of the next step, on the points of the map.
    """

    state: CGState
    coefficients: Float64Array


@dataclass(frozen=True, eq=False)
class Origin(Iterate):
    """An iterate whose residual is computed from the errors on all rows.

    Parameters
    ----------
    state, coefficients
        As in :class:`Iterate`.
    square : ndarray of float64, shape (k,)
        Σ v (y − f)² there.
    """

    square: Float64Array


@dataclass(frozen=True, eq=False)
class IterationRecord:
    """What the driver is told of an iterate.

    Parameters
    ----------
    residual : float
        Relative residual.
    train_square : ndarray of float64, shape (k,)
        Σ v (y − f)².
    drift : float
        What rounding may have moved the residual by.
    """

    residual: float
    train_square: Float64Array
    drift: float


@dataclass(frozen=True, eq=False)
class Prospect:
    """Where iterations start and end, and whether the precision of the map lets them.

    Parameters
    ----------
    start : IterationRecord
        Of the origin.
    tolerance : float
        Relative residual at which to stop.
    resolved : bool
        Whether rounding lets them get there.
    """

    start: IterationRecord
    tolerance: float
    resolved: bool


def sample_per_centre(rows: int, m: int) -> float:
    """Return the rows of the preconditioner's sample per row of the dictionary.

    Twice the sample saves about four passes of ten, so it pays where n ≫ m.
    """
    return min(max(rows / (25 * max(m, 1)), 10.0), 20.0)


def expected_iterations(unexplained: float, rows: int, m: int) -> int:
    """Return how many iterations conjugate gradients are expected to take, 0 or more.

    Parameters
    ----------
    unexplained : float
        Share of the targets' variance that the fit leaves.
    rows, m : int
        n and dictionary size.

    Notes
    -----
    The solution on a sample of s rows misses that on all rows by the noise of m coefficients,
    m/s of what the fit leaves. The eigenvalues of the preconditioned matrix lie within
    (1 ± sqrt(m/s))² (Marchenko & Pastur 1967), so that k iterations take the error down to
    2 sqrt(m/s)^k of that (Chebyshev's bound).
    """
    ratio = math.sqrt(m / min(sample_per_centre(rows, m) * m, rows))
    goal = _tolerance(unexplained) / max(ratio * math.sqrt(unexplained), 1e-300)
    if goal >= 1 or ratio >= 1:
        return 0
    return math.ceil(math.log(goal / 2) / math.log(ratio))


@dataclass(frozen=True)
class SolveSeconds:
    """What the two solves are expected to take one thread; only their ratios count.

    Parameters
    ----------
    direct : float
        The direct solve.
    preparation : float
        The sample of conjugate gradients and its system.
    iteration : float
        One of their passes.
    """

    direct: float
    preparation: float
    iteration: float


def solve_seconds(
    rows: int, m: int, n_features: int, outputs: int, *, doubled: bool = False
) -> SolveSeconds:
    """Return the costs of both solves.

    Parameters
    ----------
    rows, m, n_features, outputs : int
        n, dictionary size, encoded columns d, columns of the target.
    doubled : bool, default False
        Whether the iterations run in float64 beside a direct solve in float32.

    Notes
    -----
    Measured on AVX-512 cores of 2.3 GHz: 0.2 ns and 2 (d + 2) flops at 130 GFlop/s per
    kernel entry, 0.15 ns per entry and output for the two products, 120 GFlop/s for n m² of
    a triangular solve or a Gram. With d of 5, 18 and 64, m of 500, 1,000 and 2,000 and 1 or 4
    outputs that is within a third.
    """
    square = m * m / 120e9
    entry = 0.2e-9 + 2 * (n_features + 2) / 130e9
    times = DOUBLED_COST if doubled else 1.0
    return SolveSeconds(
        direct=rows * (m * entry + 2 * square),
        preparation=times * 2 * sample_per_centre(rows, m) * m * square,
        iteration=times * rows * m * (entry + 0.15e-9 * outputs),
    )


def faster_by_iterations(
    rows: int, m: int, n_features: int, outputs: int, *, doubled: bool = False
) -> bool:
    """Say whether conjugate gradients are expected to beat the direct solve.

    Parameters
    ----------
    rows, m, n_features, outputs, doubled
        As in :func:`solve_seconds`.
    """
    costs = solve_seconds(rows, m, n_features, outputs, doubled=doubled)
    return costs.preparation + _EXPECTED_PASSES * costs.iteration < 0.8 * costs.direct


def most_iterations(
    solver: str, rows: int, m: int, n_features: int, outputs: int, *, doubled: bool
) -> int:
    """Return how many iterations are worth their time; 0 where none is tried.

    Parameters
    ----------
    solver : {"auto", "direct", "cg"}
        What is asked for.
    rows, m, n_features, outputs, doubled
        As in :func:`solve_seconds`.
    """
    if solver != "auto":
        return _MOST_ITERATIONS if solver == "cg" else 0
    if not faster_by_iterations(rows, m, n_features, outputs, doubled=doubled):
        return 0
    costs = solve_seconds(rows, m, n_features, outputs, doubled=doubled)
    return min(int((costs.direct - costs.preparation) / costs.iteration), _MOST_ITERATIONS)


def solve_by_iterations(
    executor: Executor,
    encoded: Encoded,
    maps: Sequence[tuple[Any, int]],
    kernel: Any,
    dictionary: Any,
    plan: Plan,
    penalty: Penalty,
    *,
    size: int,
    approximation: str,
    seed: int,
) -> Solution | None:
    """Solve by preconditioned conjugate gradients.

    Parameters
    ----------
    executor, encoded
        As in :func:`~squeak_dist.stages.solving.solve_directly`.
    maps : sequence of (handle, int)
        The map in the precisions to try, lowest first, and how many iterations are worth
        their time.
    kernel, dictionary, plan, penalty
        As there; what is not given of the penalty is chosen by GCV on the sampled rows.
    size : int
        m, the rows of the dictionary.
    approximation : {"projected", "regularized"}
        Which map it is.
    seed : int
        Of the sample.

    Returns
    -------
    Solution or None
        None where rounding outweighs μ in each of the precisions, or the residual falls too
        slowly, with a preconditioner from a sketch of all rows too: the direct solve is then due.
    """
    began = time.perf_counter()
    for nystrom, most in maps:
        nystrom, system, state, dimension = _prepared(
            executor, encoded, nystrom, kernel, dictionary, plan, penalty,
            size=size, approximation=approximation, seed=seed,
        )  # fmt: skip
        passes = Passes(executor, encoded, plan, nystrom)
        origin = _origin(passes, system, state)
        foreseen = executor.call(_prospect, origin, system, nystrom)
        [origin, foreseen] = executor.persist([origin, foreseen], nbytes=0)
        prospect = executor.gather("solve", foreseen)
        if prospect.resolved:
            begun = Course(origin, origin, (prospect.start,), (time.perf_counter() - began,))
            course, preconditioner = _preconditioned(
                passes, system, begun, prospect.tolerance,
                most=most, began=began, size=size, seed=seed,
            )  # fmt: skip
            if course.ended != "converged":
                return None
            solution = executor.call(
                _solution, course.origin, course.iterate, system, nystrom, dictionary, dimension,
                tuple(record.residual for record in course.records),
            )  # fmt: skip
            # The seconds are not among the arguments: they would name another value.
            return replace(
                executor.gather("solution", solution),
                seconds=course.seconds,
                train_squares=tuple(record.train_square for record in course.records),
                preconditioner=preconditioner,
            )
    return None


@dataclass(frozen=True, eq=False)
class Passes:
    """What every pass over the rows takes.

    Parameters
    ----------
    executor : Executor
        Where it runs.
    encoded : Encoded
        All partitions.
    plan : Plan
        The chains and the tree.
    nystrom : handle
        The map.
    """

    executor: Executor
    encoded: Encoded
    plan: Plan
    nystrom: Any


@dataclass(frozen=True, eq=False)
class Course:
    """How iterations went so far.

    Parameters
    ----------
    origin, iterate : handles
        Where they began, the last time with a residual from all rows, and where they are.
    records : tuple of IterationRecord
        Of the first origin and of all iterates.
    seconds : tuple of float
        From the start of the solve to each of these.
    ended : {"", "converged", "slow", "drifted"}
        Why they ended: the residual fell too slowly, or rounding moved it.
    """

    origin: Any
    iterate: Any
    records: tuple[IterationRecord, ...]
    seconds: tuple[float, ...]
    ended: str = ""


def _preconditioned(
    passes: Passes,
    system: Any,
    course: Course,
    tolerance: float,
    *,
    most: int,
    began: float,
    size: int,
    seed: int,
) -> tuple[Course, str]:
    """Iterate with the preconditioner of the sample, or that of a sketch where it is too poor."""
    course = _iterated(passes, system, course, tolerance, most=most, began=began)
    if course.ended != "slow" or SKETCH_ROWS * size >= sum(passes.plan.partition_kept):
        return course, "sample"
    system, course = _sketched(passes, system, course, began=began, size=size, seed=seed)
    return _iterated(passes, system, course, tolerance, most=most, began=began), "sketch"


def _iterated(
    passes: Passes, system: Any, course: Course, tolerance: float, *, most: int, began: float
) -> Course:
    """Iterate to the tolerance, its residual computed anew where rounding may have moved it."""
    executor, origin = passes.executor, course.origin
    records, seconds, first = list(course.records), list(course.seconds), len(course.records) - 1

    def ended(iterate: Any, how: str) -> Course:
        return Course(origin, iterate, tuple(records), tuple(seconds), how)

    for attempt in range(1 + _MOST_RESTARTS):
        iterate = origin
        good = records[-1].residual <= (2 if attempt else 1) * tolerance
        while not (good or records[-1].residual <= tolerance):  # a NaN is neither
            residuals = [record.residual for record in records[first:]]
            if _too_slow(residuals, tolerance, most):
                return ended(iterate, "slow")
            products = _products(passes, iterate)
            iterate = executor.call(_step, iterate, products, passes.nystrom, system)
            progress = executor.call(_progress, origin, iterate, system, passes.nystrom)
            [iterate, progress] = executor.persist([iterate, progress], nbytes=0)
            records.append(executor.gather(f"iteration {len(records)}", progress))
            seconds.append(time.perf_counter() - began)
        if records[-1].drift <= tolerance:
            return ended(iterate, "converged")
        # That of the steps has drifted by rounding: the one computed anew takes its place.
        origin = _origin(passes, system, executor.call(_state, iterate))
        progress = executor.call(_progress, origin, origin, system, passes.nystrom)
        [origin, progress] = executor.persist([origin, progress], nbytes=0)
        records[-1] = executor.gather("residual", progress)
        seconds[-1] = time.perf_counter() - began
    return ended(origin, "drifted")


def _sketched(
    passes: Passes, system: Any, course: Course, *, began: float, size: int, seed: int
) -> tuple[Any, Course]:
    """Return the system with a preconditioner from a sketch of all rows, and where it starts."""
    executor, nystrom, rows = passes.executor, passes.nystrom, SKETCH_ROWS * size
    embedded = sum_rows(
        executor,
        passes.encoded,
        passes.plan,
        lambda total, tables, step: (_embed, total, tables, step, nystrom, system, rows, seed),
        _add,
    )
    sketched = executor.call(_sketched_system, system, embedded, nystrom)
    origin = _origin(passes, sketched, executor.call(_start_again, course.iterate, sketched))
    progress = executor.call(_progress, origin, origin, sketched, nystrom)
    [sketched, origin, progress] = executor.persist([sketched, origin, progress], nbytes=0)
    records = (*course.records, executor.gather("sketch", progress))
    seconds = (*course.seconds, time.perf_counter() - began)
    return sketched, Course(origin, origin, records, seconds)


def _origin(passes: Passes, system: Any, state: Any) -> Any:
    """Return a handle on the state with its residual computed from the errors on all rows."""
    errors = _residuals(passes, state)
    return passes.executor.call(_restart, state, errors, passes.nystrom, system)


def _prepared(
    executor: Executor,
    encoded: Encoded,
    nystrom: Any,
    kernel: Any,
    dictionary: Any,
    plan: Plan,
    penalty: Penalty,
    *,
    size: int,
    approximation: str,
    seed: int,
) -> list[Any]:
    """Return handles on the map, the system, a state at its start and the effective dimension."""
    rows = sum(plan.partition_kept)
    rate = min(1.0, sample_per_centre(rows, size) * size / rows)
    sketch = executor.call(_sketch, nystrom, dictionary, approximation, seed)
    outputs = len(plan.target_scale)
    selected = executor.call(_dictionary_sums, nystrom, dictionary, rate, outputs)
    epsilon = plan.squeak.epsilon
    total = sum_rows(
        executor,
        encoded,
        plan,
        lambda sums, tables, step: (
            _first_pass, sums, tables, step, nystrom, sketch, dictionary, rate, epsilon, seed,
        ),
        _add_sums,
    )  # fmt: skip
    first = executor.call(_sample_solution, total, rate, penalty)
    estimate = executor.call(_estimate, total, selected)
    system = executor.call(_system, total, first, estimate, nystrom)
    # One worker has little to do beside the system, and time for the effective dimension.
    return executor.persist(
        [nystrom, system, executor.call(_start, system),
         executor.call(_effective_dimension, kernel, dictionary)],
        nbytes=0,
    )  # fmt: skip


def _too_slow(residuals: list[float], tolerance: float, most: int) -> bool:
    """Say whether the tolerance is out of reach at the speed seen so far: half as many more."""
    steps = len(residuals) - 1
    if math.isfinite(residuals[-1]) and steps < 5:
        return False
    if steps >= 1.5 * most:
        return True
    per_iteration = math.log(max(residuals[-1], 1e-300) / residuals[0]) / max(steps, 1)
    if not per_iteration < 0:
        return True
    return steps + math.log(tolerance / residuals[-1]) / per_iteration > 1.5 * most


def _unexplained(train_square: Float64Array, target_square: Float64Array) -> float:
    return float(np.min(train_square / np.maximum(target_square, 1e-300)))


def _tolerance(unexplained: float) -> float:
    """Return the relative residual at which the error of stopping is negligible.

    It is measured against what the fit leaves unexplained: an almost noiseless
    field needs a far smaller residual than a noisy one.
    """
    return min(max(_TOLERANCE * math.sqrt(unexplained), _TIGHTEST), _LOOSEST)


def _prospect(origin: Origin, system: CGSystem, nystrom: NystromMap) -> Prospect:
    return Prospect(
        start=_progress(origin, origin, system, nystrom),
        tolerance=system.tolerance,
        resolved=resolvable(system.kernel_norm, system.least, nystrom.points.dtype),
    )


def _sketch(
    nystrom: NystromMap, dictionary: Dictionary, approximation: str, seed: int
) -> ResidualSketch:
    with single_blas_thread():
        rng = task_rng(seed, _SOLVE_KEY, 1, 0)
        return residual_sketch(nystrom, dictionary, approximation, rng)


def _first_pass(
    sums: CGSums | None,
    tables: list[EncodedTable],
    partitions: tuple[int, ...],
    nystrom: NystromMap,
    sketch: ResidualSketch,
    dictionary: Dictionary,
    rate: float,
    epsilon: float,
    seed: int,
) -> CGSums:
    def sampled(
        table: EncodedTable, partition: int, start: JointEquations | None
    ) -> JointEquations:
        draws = task_rng(seed, _SOLVE_KEY, 0, partition).random(len(table))
        rows = np.flatnonzero(draws < rate)
        X = table.X[rows].astype(nystrom.points.dtype, copy=False)
        weights = None if table.weights is None else table.weights[rows]
        diagonal = kernel_diag(nystrom.kernel, X)

        def balance(block: slice, Z: FloatArray) -> Float64Array:
            v = 1.0 if weights is None else weights[block]
            residual = sketch.residual(diagonal[block], Z)
            return sampled_row_weights(residual, v, rate, dictionary, epsilon)

        return joint_equations(nystrom, X, table.targets[rows], weights, start, reweigh=balance)

    with single_blas_thread():
        for table, partition in zip(tables, partitions, strict=True):
            sums = _table_sums(sums, table, partial(sampled, table, partition))
    assert sums is not None
    return sums


def _table_sums(
    start: CGSums | None,
    table: EncodedTable,
    sampled: Callable[[JointEquations | None], JointEquations],
) -> CGSums:
    """Add the rows of a table, of which some are sampled, to the sums so far."""
    X, limits = table.X, np.array(column_range(table.X))
    if start is None:
        linear = linear_equations(X, table.targets, table.weights)
        return CGSums(linear, limits, sampled(None), peak_memory())
    return CGSums(
        linear=linear_equations(X, table.targets, table.weights, start.linear),
        column_range=_wider(start.column_range, limits),
        balanced=sampled(start.balanced),
        peak_bytes=max(peak_memory(), start.peak_bytes),
    )


def _add_sums(parts: list[CGSums]) -> CGSums:
    return CGSums(
        linear=add_normal_equations(*(part.linear for part in parts)),
        column_range=reduce(_wider, [part.column_range for part in parts]),
        balanced=add_joint_equations(*(part.balanced for part in parts)),
        peak_bytes=max(peak_memory(), *(part.peak_bytes for part in parts)),
    )


def _wider(a: Float64Array, b: Float64Array) -> Float64Array:
    return np.array([np.minimum(a[0], b[0]), np.maximum(a[1], b[1])])


def _sample_solution(sums: CGSums, rate: float, penalty: Penalty) -> SampleSolution:
    with single_blas_thread():
        path, rotation = sums.balanced.path_and_rotation()
        scaled_mu, path = _penalty(path, rate, penalty)
        theta, slopes = path.solution(scaled_mu)
        return SampleSolution(
            theta=np.concatenate([rotation.combined(theta), slopes]),
            mu=rate * scaled_mu,
            ridge=rate * path.ridge,
            tolerance=_tolerance(_unexplained(path.train_square(scaled_mu), path.target_square)),
        )


def _dictionary_sums(
    nystrom: NystromMap, dictionary: Dictionary, rate: float, outputs: int
) -> JointEquations:
    """Return the sums of the rows of the dictionary, whose targets are not known."""
    with single_blas_thread():
        weights = dictionary.row_weights * dictionary_row_weights(dictionary, rate)
        points = dictionary.points.astype(nystrom.points.dtype, copy=False)
        return joint_equations(nystrom, points, np.zeros((len(points), outputs)), weights)


def _estimate(sums: CGSums, selected: JointEquations) -> tuple[JointEquations, float]:
    """Return the estimate of A without μ, by the sample and the dictionary, and ‖Σ v z zᵀ‖."""
    with single_blas_thread():
        joint = add_joint_equations(sums.balanced, selected)
        return joint, spectral_norm(symmetrize(joint.kernel.gram))


def _system(
    sums: CGSums,
    first: SampleSolution,
    estimate: tuple[JointEquations, float],
    nystrom: NystromMap,
) -> CGSystem:
    joint, norm = estimate
    m, theta = len(nystrom), first.theta
    least_ridge = collinearity_ridge(sums.linear)
    ridge = np.maximum(first.ridge, least_ridge[len(least_ridge) - len(first.ridge) :])
    with single_blas_thread():
        gram = joint.assembled(ridge).gram
        beside = gram[m:, m:]
        largest = norm + (float(np.linalg.norm(beside, 2)) if beside.size else 0.0)
        factor = preconditioner(gram, first.mu)
        penalties = np.full((len(theta), 1), first.mu)
        penalties[m:, 0] += ridge
        return CGSystem(
            theta=theta,
            mu=first.mu,
            penalties=penalties,
            factor=factor,
            linear=sums.linear,
            column_range=sums.column_range,
            tolerance=first.tolerance,
            kernel_norm=norm,
            norm=largest,
            least=least_eigenvalue(factor),
            peak_bytes=max(peak_memory(), sums.peak_bytes),
        )


def _effective_dimension(kernel: Kernel, dictionary: Dictionary) -> float:
    with single_blas_thread():
        return dictionary_effective_dimension(kernel, dictionary)


def _penalty(path: RidgePath, rate: float, penalty: Penalty) -> tuple[float, RidgePath]:
    """Return μ/ρ, and the path of the sampled rows with the linear columns that stay.

    μ/ρ is μ on the scale of their weights, which are about 1/ρ. Rows of high leverage count
    less than that; they are too few among those sampled to move GCV.
    """
    given = None if penalty.mu is None else penalty.mu / rate
    return choose_penalty(path, given, penalty.linear_part)


def _start(system: CGSystem) -> CGState:
    with single_blas_thread():
        return start_cg(system.theta, system.factor)


def _products(passes: Passes, iterate: Any) -> list[Any]:
    return few_sums(
        passes.executor,
        passes.encoded,
        passes.plan,
        lambda product, tables, step: (_product, product, tables, passes.nystrom, iterate),
        _add,
    )


def _residuals(passes: Passes, state: Any) -> list[Any]:
    coefficients = passes.executor.call(_coefficients, state, passes.nystrom)
    return few_sums(
        passes.executor,
        passes.encoded,
        passes.plan,
        lambda errors, tables, step: (_errors, errors, tables, passes.nystrom, coefficients),
        _add_errors,
    )


def _coefficients(state: CGState, nystrom: NystromMap) -> Float64Array:
    with single_blas_thread():
        return nystrom.coefficients(state.theta)


def _errors(
    errors: Residuals | None,
    tables: list[EncodedTable],
    nystrom: NystromMap,
    coefficients: Float64Array,
) -> Residuals:
    parts = [] if errors is None else [errors]
    with single_blas_thread():
        for X, targets, weights in _blocks(tables, nystrom):
            moment, square = residual_moment(nystrom, X, targets, coefficients, weights)
            parts = [_add_errors([*parts, Residuals(moment, square)])]
    return parts[0]


def _blocks(
    tables: list[EncodedTable], nystrom: NystromMap
) -> Iterator[tuple[FloatArray, Float64Array, Float64Array | None]]:
    """Yield rows in the precision of the map, targets and weights: tables, or parts of them."""
    for table in tables:
        for rows, X in converted_blocks(table.X, nystrom.points.dtype):
            weights = None if table.weights is None else table.weights[rows]
            yield X, table.targets[rows], weights


def _add_errors(parts: list[Residuals]) -> Residuals:
    return Residuals(_add([p.moment for p in parts]), _add([p.square for p in parts]))


def _restart(
    state: CGState, parts: list[Residuals], nystrom: NystromMap, system: CGSystem
) -> Origin:
    errors = _add_errors(parts)
    with single_blas_thread():
        residual = nystrom.features_of(errors.moment) - system.penalties * state.theta
        restarted = restart_cg(state, residual, system.factor)
        return Origin(restarted, nystrom.coefficients(restarted.direction), errors.square)


def _state(iterate: Iterate) -> CGState:
    return iterate.state


def _embed(
    total: FloatArray | None,
    tables: list[EncodedTable],
    partitions: tuple[int, ...],
    nystrom: NystromMap,
    system: CGSystem,
    rows: int,
    seed: int,
) -> FloatArray:
    width = len(system.penalties) - len(nystrom)
    with single_blas_thread():
        for table, partition in zip(tables, partitions, strict=True):
            rng = task_rng(seed, _SOLVE_KEY, 2, partition)
            total = sign_embedding(nystrom, table.X, table.weights, width, rows, rng, total)
    assert total is not None
    return total


def _sketched_system(system: CGSystem, embedded: FloatArray, nystrom: NystromMap) -> CGSystem:
    with single_blas_thread():
        factor = embedded_factor(nystrom, embedded, system.penalties)
        return replace(system, factor=factor, least=least_eigenvalue(factor))


def _start_again(iterate: Iterate, system: CGSystem) -> CGState:
    """Start from where iterations are, or from the solution on the sample if they are nowhere."""
    theta = iterate.state.theta
    with single_blas_thread():
        return start_cg(theta if np.isfinite(theta).all() else system.theta, system.factor)


def _drift(origin: Origin, state: CGState, system: CGSystem, nystrom: NystromMap) -> float:
    """Return what rounding in the products has done to the relative residual at most.

    It adds ε ‖A‖ / sqrt(λ_min) to sqrt(rᵀ M⁻¹ r) per unit of a step where all errors add up; in
    trials it was a ninth to a 180th of that.
    """
    rounding = float(np.finfo(nystrom.points.dtype).eps) * system.norm / math.sqrt(system.least)
    moved = np.linalg.norm(state.theta - origin.state.theta, axis=0)
    scale = np.sqrt(np.where(state.start_energy > 0, state.start_energy, np.inf))
    return _DRIFT * float(rounding * np.max(moved / scale, initial=0.0))


def _square_after(origin: Origin, state: CGState, system: CGSystem) -> Float64Array:
    """Return Σ v (y − f)² after some steps δ: no pass, as the residuals hold Fᵀe and FᵀF δ."""
    start = origin.state
    step = state.theta - start.theta
    moment = start.residual + system.penalties * start.theta
    image = start.residual - state.residual - system.penalties * step
    change = np.einsum("ij,ij->j", step, image - 2 * moment)
    return np.maximum(origin.square + change, 0)


def _product(
    product: Float64Array | None,
    tables: list[EncodedTable],
    nystrom: NystromMap,
    iterate: Iterate,
) -> Float64Array:
    direction = iterate.coefficients
    total = np.zeros_like(direction) if product is None else product
    with single_blas_thread():
        for X, _, weights in _blocks(tables, nystrom):
            total = total + kernel_product(nystrom, X, direction, weights)
    return total


def _add(parts: list[Any]) -> Any:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _step(
    iterate: Iterate, products: list[Float64Array], nystrom: NystromMap, system: CGSystem
) -> Iterate:
    before = iterate.state
    with single_blas_thread():
        image = nystrom.features_of(_add(products)) + system.penalties * before.direction
        state = step_cg(before, image, system.factor)
        return Iterate(state, nystrom.coefficients(state.direction))


def _progress(
    origin: Origin, iterate: Iterate, system: CGSystem, nystrom: NystromMap
) -> IterationRecord:
    return IterationRecord(
        residual=_residual(iterate),
        train_square=_square_after(origin, iterate.state, system),
        drift=_drift(origin, iterate.state, system, nystrom),
    )


def _residual(iterate: Iterate) -> float:
    return iterate.state.relative_residual


def _solution(
    origin: Origin,
    iterate: Iterate,
    system: CGSystem,
    nystrom: NystromMap,
    dictionary: Dictionary,
    effective_dimension: float,
    residuals: tuple[float, ...],
) -> Solution:
    state, linear, m = iterate.state, system.linear, len(nystrom)
    with single_blas_thread():
        baseline_mu = mu_by_gcv(linear)
        coefficients = nystrom.coefficients(state.theta)
        freedom = degrees_of_freedom(system.factor, system.mu)
        square = _square_after(origin, state, system)
        return Solution(
            coefficients=on_dictionary(coefficients[:m], dictionary),
            slopes=coefficients[m:],
            column_range=system.column_range,
            baseline=solve_direct(linear, baseline_mu),
            mu=system.mu,
            train_square=square,
            freedom=freedom,
            noise_variance=noise_variance(square, linear.rows, freedom),
            posterior=system.factor,
            effective_dimension=effective_dimension,
            peak_bytes=max(peak_memory(), system.peak_bytes),
            residuals=residuals,
            baseline_mu=baseline_mu,
        )
