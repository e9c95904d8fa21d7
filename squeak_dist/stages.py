"""A fit as a chain of stages, written once for every executor.

profile → encoding → kernel and γ → dictionaries (chains, then the merge tree)
→ Nyström map → normal equations → model. The executor decides where a call
runs; :class:`PlainExecutor` runs it here and now, and is the reference that
every distributed result is compared with, bit by bit.
"""

from __future__ import annotations

import os
import resource
import socket
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np

from squeak_dist._typing import Float64Array
from squeak_dist.dictionary import Dictionary
from squeak_dist.encoding import EncodedTable, FeatureEncoding, encode_table, make_encoding
from squeak_dist.errors import EmptyDataError, FitStopped, GammaRaised, InvalidParameterError
from squeak_dist.kernels import Kernel, check_kernel, kernel_diag, make_kernel
from squeak_dist.leverage import theory_qbar
from squeak_dist.linalg import single_blas_thread
from squeak_dist.merge_tree import MergeTree, balanced_levels, group_rows, plan_merge_tree
from squeak_dist.model import FittedModel
from squeak_dist.nystrom import (
    NystromMap,
    projected_map,
    regularized_map,
    residual_rounding,
)
from squeak_dist.profile import (
    MISSING_POLICIES,
    Profile,
    Table,
    TableSchema,
    check_profile,
    merge_profiles,
    profile_table,
)
from squeak_dist.solvers import (
    NormalEquations,
    add_normal_equations,
    linear_equations,
    mu_by_gcv,
    normal_equations,
    solve_direct,
)
from squeak_dist.squeak import (
    SqueakParameters,
    SqueakState,
    dictionary_effective_dimension,
    finish,
    merge,
    squeak,
    start_state,
)
from squeak_dist.tuning import choose_gamma, median_length_scale, sample_spectrum
from squeak_dist.validation import check_choice, check_integer, check_real

SAMPLE_ROWS = 4096  # rows that the profile keeps
_TUNING_ROWS = 1000  # rows of these that γ and the length scale are chosen on
_KERNEL_CHECK_ROWS = 128
_STEP_ROWS = 65_536  # partitions below this size share the task of a chain step
_PROFILE_FAN_IN = 8
# First entries of the spawn keys of SeedSequence; the profile has 0.
_CHAIN_KEY, _FINISH_KEY, _MERGE_KEY = 1, 2, 3


@dataclass(frozen=True)
class FitParameters:
    """The parameters of a fit; those of :func:`squeak_dist.fit`, which documents them.

    Raises
    ------
    InvalidParameterError
        At construction, for a value outside its range.
    """

    kernel: str | Kernel = "rbf"
    length_scale: float | Sequence[float] | str = "auto"
    mu: float | str = "auto"
    gamma: float | str = "auto"
    epsilon: float = 0.3
    delta: float = 0.1
    qbar: int | str = 16
    max_dictionary: int | None = 2000
    on_overrun: str = "raise_gamma"
    solver: str = "auto"
    approximation: str = "projected"
    fan_in: int = 2
    missing: str = "raise"
    standardize: bool | str = "auto"
    dtype: str = "float32"
    seed: int = 0

    def __post_init__(self) -> None:
        auto = ', or "auto"'
        if not _is_auto(self.length_scale):
            scale = np.asarray(self.length_scale)
            make_kernel("rbf", _as_length_scale(scale.tolist()))
            if not isinstance(self.kernel, str):
                raise InvalidParameterError(
                    "length_scale is for kernels given by name; a kernel object has its own, so "
                    'leave length_scale="auto"'
                )
        make_kernel(self.kernel, 1.0)
        if not _is_auto(self.mu):
            check_real("mu", self.mu, above=0, hint=auto)
        if not _is_auto(self.gamma):
            check_real("gamma", self.gamma, above=0, hint=auto)
        check_real("epsilon", self.epsilon, above=0, below=1)
        check_real("delta", self.delta, above=0, below=1)
        if not (isinstance(self.qbar, str) and self.qbar == "theory"):
            check_integer("qbar", self.qbar, at_least=1, hint=', or "theory"')
        if self.max_dictionary is not None:
            check_integer("max_dictionary", self.max_dictionary, at_least=1, hint=", or None")
        check_integer("fan_in", self.fan_in, at_least=2)
        check_integer("random_state", self.seed, at_least=0)
        check_choice("on_overrun", self.on_overrun, ("raise_gamma", "stop"))
        check_choice("solver", self.solver, ("auto", "direct"))
        check_choice("approximation", self.approximation, ("projected", "regularized"))
        check_choice("missing", self.missing, MISSING_POLICIES)
        check_choice("standardize", self.standardize, ("auto", True, False))
        check_choice("dtype", self.dtype, ("float32", "float64"))

    @property
    def scales_columns(self) -> bool:
        """Whether numeric columns are divided by their standard deviation."""
        if isinstance(self.standardize, str):
            return _is_auto(self.length_scale) and isinstance(self.kernel, str)
        return bool(self.standardize)


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"


def _as_length_scale(value: Any) -> float | tuple[float, ...]:
    try:
        return tuple(map(float, value)) if isinstance(value, list) else float(value)
    except (TypeError, ValueError) as error:
        raise InvalidParameterError(
            f'length_scale must be a positive number, one per feature, or "auto"; got {value!r}'
        ) from error


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

    def gather(self, stage: str, handle: Any) -> Any:
        """Return the value of a handle: the end of a stage."""
        ...

    def check_memory(self, needed: int, explanation: str) -> None:
        """Raise InsufficientMemoryError if a task of that many bytes does not fit."""
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

    def gather(self, stage: str, handle: Any) -> Any:
        """Return the handle, which is a value already."""
        return handle

    def check_memory(self, needed: int, explanation: str) -> None:
        """Accept any size."""


@dataclass(frozen=True)
class TaskRecord:
    """What one node of the merge tree did; a chain is a node of level 0.

    Parameters
    ----------
    level, index : int
        Place in the tree.
    rows : int
        Rows of the data that the dictionary stands for.
    size_in, size_out : int
        Rows of the dictionaries before and after.
    gamma : float
        γ after.
    seconds : float
        Time in this node alone.
    worker : str
        Host and process.
    """

    level: int
    index: int
    rows: int
    size_in: int
    size_out: int
    gamma: float
    seconds: float
    worker: str


@dataclass(frozen=True, eq=False)
class Branch:
    """A dictionary in the merge tree, with the records of all nodes below it."""

    state: SqueakState
    records: tuple[TaskRecord, ...] = ()
    seconds: float = 0.0
    peak_bytes: int = 0

    @property
    def dictionary(self) -> Dictionary:
        """The dictionary."""
        return self.state.dictionary


@dataclass(frozen=True, eq=False)
class Sums:
    """Normal equations of the kernel model and of its linear baseline."""

    kernel: NormalEquations
    linear: NormalEquations
    peak_bytes: int = 0


@dataclass(frozen=True, eq=False)
class Solution:
    """What the root of the solve returns to the driver."""

    coefficients: Float64Array
    linear_coefficients: Float64Array
    mu: float
    train_square: Float64Array
    effective_dimension: float
    peak_bytes: int


@dataclass(frozen=True, eq=False)
class _Plan:
    """What is decided on the driver after the profile."""

    encoding: FeatureEncoding
    kernel: Kernel
    squeak: SqueakParameters
    tree: MergeTree
    partition_rows: tuple[int, ...]
    partition_kept: tuple[int, ...]


def fit_tables(
    executor: Executor,
    tables: Sequence[Any],
    schema: TableSchema,
    parameters: FitParameters,
    *,
    target_names: tuple[str, ...],
    single_output: bool,
    unnamed_features: bool = False,
) -> FittedModel:
    """Fit a model to the partitions of a table.

    Parameters
    ----------
    executor : Executor
        Where the work runs.
    tables : sequence of handles on Table
        One per partition, in order.
    schema : TableSchema
        What the columns are.
    parameters : FitParameters
        All parameters.
    target_names : tuple of str
        What the user calls the targets.
    single_output : bool
        Whether predictions are one-dimensional.
    unnamed_features : bool, default False
        Whether the features came as an array.

    Returns
    -------
    FittedModel
        The same bits for every executor.

    Raises
    ------
    DataError
        If the profile finds data that cannot be fitted.
    InsufficientMemoryError
        If the executor cannot hold the largest task.

    Notes
    -----
    Three passes over the data, one per gather: profile, dictionaries, solve.
    """
    clock = _Clock()
    profile = executor.gather("profile", _profile_tree(executor, tables, parameters))
    plan = _plan(profile, len(tables), parameters)
    clock.lap("profile")

    largest = max(plan.partition_rows)
    executor.check_memory(*projected_bytes(plan, parameters, largest, len(schema.targets)))
    encoded = _encode(executor, tables, plan, profile.target_mean)
    root: Branch = executor.gather(
        "dictionary", _dictionary_tree(executor, encoded, plan, parameters)
    )
    _warn_of_overrun(root, plan, parameters)
    clock.lap("dictionary")

    solution: Solution = executor.gather(
        "solve", _solve_tree(executor, encoded, root.dictionary, plan, parameters)
    )
    clock.lap("solve")
    return FittedModel(
        kernel=plan.kernel,
        dictionary=root.dictionary,
        coefficients=solution.coefficients,
        linear_coefficients=solution.linear_coefficients,
        target_mean=profile.target_mean,
        encoding=plan.encoding,
        target_names=target_names,
        single_output=single_output,
        unnamed_features=unnamed_features,
        mu=solution.mu,
        epsilon=parameters.epsilon,
        seed=parameters.seed,
        approximation=parameters.approximation,
        report=_report(profile, plan, root, solution, clock),
    )


def projected_bytes(
    plan: Any, parameters: FitParameters, partition_rows: int, n_outputs: int
) -> tuple[int, str]:
    """Return the bytes of the largest task of a fit, and what they are made of.

    A merge of ``fan_in`` dictionaries of m rows holds three float64 matrices of
    (fan_in · m)²; a normal-equation task holds its sums twice, the map, one block
    of features and one partition. Neither depends on the number of rows.
    """
    m = min(parameters.max_dictionary or sum(plan.partition_kept), sum(plan.partition_kept))
    d = plan.encoding.n_features
    union = m * (parameters.fan_in if len(plan.tree.chains) > 1 else 1)
    merging = 3 * 8 * union**2
    solving = (4 * 8 + 4) * m**2 + 4 * 4 * 2048 * m
    partition = partition_rows * (4 * 8 * d + 8 * n_outputs + 16)
    explanation = (
        f"dictionaries of up to {m:,} rows merged {parameters.fan_in} at a time, partitions of up "
        f"to {partition_rows:,} rows × {d} encoded columns"
    )
    return max(merging, solving) + partition, explanation


def _profile_tree(executor: Executor, tables: Sequence[Any], parameters: FitParameters) -> Any:
    if not tables:
        raise EmptyDataError(
            "the table has no partitions (n_samples=0); at least 2 rows are needed"
        )
    leaves = [
        executor.call(_profile_task, table, i, parameters.missing, parameters.seed)
        for i, table in enumerate(tables)
    ]
    levels = balanced_levels(len(leaves), _PROFILE_FAN_IN)
    return _reduce(executor, leaves, levels, lambda nodes, level, index: (_merge_profiles, nodes))


def _profile_task(table: Table, partition: int, missing: str, seed: int) -> Profile:
    return profile_table(
        table, partition=partition, missing=missing, seed=seed, sample_rows=SAMPLE_ROWS
    )


def _merge_profiles(profiles: list[Profile]) -> Profile:
    return merge_profiles(profiles)


def _reduce(
    executor: Executor,
    leaves: Sequence[Any],
    levels: tuple[tuple[tuple[int, ...], ...], ...],
    combine: Callable[[list[Any], int, int], tuple[Any, ...]],
) -> Any:
    """Reduce handles along the levels of a tree; ``combine`` names each call."""
    nodes = list(leaves)
    for level, groups in enumerate(levels):
        nodes = [
            nodes[group[0]]
            if len(group) == 1
            else executor.call(*combine([nodes[i] for i in group], level, index))
            for index, group in enumerate(groups)
        ]
    return nodes[0]


def _plan(profile: Profile, n_partitions: int, parameters: FitParameters) -> _Plan:
    """Decide encoding, kernel, γ and tree, from the profile alone."""
    check_profile(profile, missing=parameters.missing)
    encoding = make_encoding(
        profile,
        standardize=parameters.scales_columns,
        missing=parameters.missing,
        dtype=parameters.dtype,
    )
    with single_blas_thread():
        kernel, gamma = _kernel_and_gamma(profile, encoding, parameters)
    kept = tuple(profile.partition_kept[i] for i in range(n_partitions))
    # The stop of a stream is defined for one stream only.
    one_chain = parameters.on_overrun == "stop"
    tree = plan_merge_tree(
        kept,
        fan_in=parameters.fan_in,
        **({"rows_per_chain": sys.maxsize, "min_chains": 1} if one_chain else {}),
    )
    return _Plan(
        encoding=encoding,
        kernel=kernel,
        squeak=SqueakParameters(
            gamma=gamma,
            epsilon=parameters.epsilon,
            qbar=_qbar(parameters, profile.kept),
            max_dictionary=parameters.max_dictionary,
            on_overrun=parameters.on_overrun,
        ),
        tree=tree,
        partition_rows=tuple(profile.partition_rows[i] for i in range(n_partitions)),
        partition_kept=kept,
    )


def _kernel_and_gamma(
    profile: Profile, encoding: FeatureEncoding, parameters: FitParameters
) -> tuple[Kernel, float]:
    X, kept = encoding.encode(profile.sample.features)
    X = X[:_TUNING_ROWS]
    targets = profile.sample.targets[kept][:_TUNING_ROWS]
    weights = profile.sample.weights
    weights = None if weights is None else weights[kept][:_TUNING_ROWS]
    kernel = _resolve_kernel(X, encoding, parameters)
    check_kernel(kernel, X[:_KERNEL_CHECK_ROWS])
    if not isinstance(parameters.gamma, str):
        return kernel, float(parameters.gamma)
    gamma = choose_gamma(
        sample_spectrum(kernel, X, profile.kept, weights),
        targets,
        mu=None if isinstance(parameters.mu, str) else float(parameters.mu),
        epsilon=parameters.epsilon,
        qbar=_qbar(parameters, profile.kept),
        max_dictionary=parameters.max_dictionary,
        resolution=residual_rounding(X.dtype) * float(np.max(kernel_diag(kernel, X))),
    )
    return kernel, gamma


def _resolve_kernel(
    X: np.ndarray[Any, Any], encoding: FeatureEncoding, parameters: FitParameters
) -> Kernel:
    if not isinstance(parameters.kernel, str):
        return parameters.kernel
    if not _is_auto(parameters.length_scale):
        scale = _as_length_scale(np.asarray(parameters.length_scale).tolist())
        if isinstance(scale, tuple) and len(scale) != encoding.n_features:
            raise InvalidParameterError(
                f"length_scale has {len(scale)} values, but the columns encode to "
                f"{encoding.n_features} features ({', '.join(encoding.encoded_names[:20])}); give "
                f"one number or one per encoded feature"
            )
        return make_kernel(parameters.kernel, scale)
    return make_kernel(parameters.kernel, median_length_scale(X))


def _qbar(parameters: FitParameters, rows: int) -> int:
    if isinstance(parameters.qbar, str):
        return theory_qbar(rows, parameters.epsilon, parameters.delta)
    return int(parameters.qbar)


def _encode(
    executor: Executor, tables: Sequence[Any], plan: _Plan, target_mean: Float64Array
) -> list[Any]:
    offsets = np.cumsum((0, *plan.partition_rows[:-1]))
    encoding, mean = executor.share(plan.encoding), executor.share(target_mean)
    handles = [
        executor.call(_encode_task, encoding, table, mean, int(offset))
        for table, offset in zip(tables, offsets, strict=True)
    ]
    per_row = plan.encoding.n_features * np.dtype(plan.encoding.dtype).itemsize + 24
    return executor.persist(handles, sum(plan.partition_kept) * per_row)


def _encode_task(
    encoding: FeatureEncoding, table: Table, target_mean: Float64Array, offset: int
) -> EncodedTable:
    return encode_table(encoding, table, target_mean=target_mean, offset=offset)


def _dictionary_tree(
    executor: Executor, encoded: Sequence[Any], plan: _Plan, parameters: FitParameters
) -> Any:
    kernel, settings = executor.share(plan.kernel), executor.share(plan.squeak)
    branches = []
    for index, chain in enumerate(plan.tree.chains):
        branch: Any = None
        for step in _steps(chain, plan):
            tables = [encoded[i] for i in step]
            branch = executor.call(
                _chain_step, branch, tables, step, kernel, settings, parameters.seed
            )
        branches.append(
            executor.call(_chain_end, branch, index, kernel, settings, parameters.seed)
        )
    return _reduce(
        executor,
        branches,
        plan.tree.levels,
        lambda nodes, level, index: (
            _merge_task, nodes, level + 1, index, kernel, settings, parameters.seed,
        ),
    )  # fmt: skip


def _steps(chain: tuple[int, ...], plan: _Plan) -> list[tuple[int, ...]]:
    groups = group_rows([plan.partition_kept[i] for i in chain], _STEP_ROWS)
    return [tuple(chain[position] for position in group) for group in groups]


def _rng(seed: int, *key: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def _chain_step(
    branch: Branch | None,
    tables: list[EncodedTable],
    partitions: tuple[int, ...],
    kernel: Kernel,
    settings: SqueakParameters,
    seed: int,
) -> Branch:
    """Pass partitions through a chain; the grouping into steps does not change a bit."""
    began = time.perf_counter()
    if branch is None:
        X = tables[0].X
        branch = Branch(start_state(X.shape[1], X.dtype, settings))
    state = branch.state
    with single_blas_thread():
        for table, partition in zip(tables, partitions, strict=True):
            state = squeak(
                kernel,
                table.X,
                settings,
                _rng(seed, _CHAIN_KEY, 0, partition),
                start=state,
                indices=table.indices,
                row_weights=table.weights,
            )
    seconds = branch.seconds + time.perf_counter() - began
    return Branch(state, seconds=seconds, peak_bytes=peak_memory())


def _chain_end(
    branch: Branch, index: int, kernel: Kernel, settings: SqueakParameters, seed: int
) -> Branch:
    began = time.perf_counter()
    with single_blas_thread():
        state = finish(kernel, branch.state, settings, _rng(seed, _FINISH_KEY, 0, index))
    seconds = branch.seconds + time.perf_counter() - began
    return _recorded(state, (branch,), 0, index, len(branch.dictionary), seconds)


def _merge_task(
    branches: list[Branch],
    level: int,
    index: int,
    kernel: Kernel,
    settings: SqueakParameters,
    seed: int,
) -> Branch:
    began = time.perf_counter()
    dictionaries = [branch.dictionary for branch in branches if len(branch.dictionary)]
    with single_blas_thread():
        merged = (
            merge(kernel, dictionaries, settings, _rng(seed, _MERGE_KEY, level, index))
            if dictionaries
            else branches[0].dictionary
        )
    rows = sum(branch.state.rows_seen for branch in branches)
    state = SqueakState(merged, len(merged), rows, rows)
    size_in = sum(map(len, dictionaries))
    seconds = time.perf_counter() - began
    return _recorded(state, tuple(branches), level, index, size_in, seconds)


def _recorded(
    state: SqueakState,
    below: tuple[Branch, ...],
    level: int,
    index: int,
    size_in: int,
    seconds: float,
) -> Branch:
    record = TaskRecord(
        level=level,
        index=index,
        rows=state.rows_seen,
        size_in=size_in,
        size_out=len(state.dictionary),
        gamma=state.dictionary.gamma,
        seconds=seconds,
        worker=f"{socket.gethostname()}:{os.getpid()}",
    )
    records = tuple(r for branch in below for r in branch.records)
    peak = max(peak_memory(), *(branch.peak_bytes for branch in below))
    return Branch(state, (*records, record), peak_bytes=peak)


def _warn_of_overrun(root: Branch, plan: _Plan, parameters: FitParameters) -> None:
    if root.state.stopped:
        warnings.warn(
            f"the dictionary reached max_dictionary={parameters.max_dictionary} after "
            f"{root.state.rows_seen:,} of {sum(plan.partition_kept):,} rows, and "
            f'on_overrun="stop" ended it there: it is accurate for these rows only',
            FitStopped,
            stacklevel=4,
        )
    if not isinstance(parameters.gamma, str) and root.dictionary.gamma > plan.squeak.gamma:
        warnings.warn(
            f"gamma was raised from {plan.squeak.gamma:g} to {root.dictionary.gamma:g} to hold "
            f"max_dictionary={parameters.max_dictionary}; the guarantee is for the raised gamma. "
            f"Raise max_dictionary to keep the one you gave",
            GammaRaised,
            stacklevel=4,
        )


def _solve_tree(
    executor: Executor,
    encoded: Sequence[Any],
    dictionary: Dictionary,
    plan: _Plan,
    parameters: FitParameters,
) -> Any:
    kernel = executor.share(plan.kernel)
    shared = executor.share(dictionary)
    nystrom = executor.call(_map_task, kernel, shared, parameters.approximation)
    branches = []
    for chain in plan.tree.chains:
        sums: Any = None
        for step in _steps(chain, plan):
            sums = executor.call(_sums_task, sums, [encoded[i] for i in step], nystrom)
        branches.append(sums)
    total = _reduce(
        executor, branches, plan.tree.levels, lambda nodes, level, index: (_add_sums, nodes)
    )
    mu = None if isinstance(parameters.mu, str) else float(parameters.mu)
    return executor.call(_solve_task, total, nystrom, kernel, shared, mu)


def _map_task(kernel: Kernel, dictionary: Dictionary, approximation: str) -> NystromMap:
    if not len(dictionary):
        raise EmptyDataError(
            "the dictionary is empty: k(x, x) or the sample weight is 0 on every row, so there "
            "is nothing to fit"
        )
    with single_blas_thread():
        if approximation == "regularized":
            return regularized_map(kernel, dictionary)
        return projected_map(kernel, dictionary.points)


def _sums_task(sums: Sums | None, tables: list[EncodedTable], nystrom: NystromMap) -> Sums:
    kernel, linear = (None, None) if sums is None else (sums.kernel, sums.linear)
    with single_blas_thread():
        for table in tables:
            kernel = normal_equations(nystrom, table.X, table.targets, table.weights, kernel)
            linear = linear_equations(table.X, table.targets, table.weights, linear)
    assert kernel is not None
    assert linear is not None
    return Sums(kernel, linear, peak_memory())


def _add_sums(parts: list[Sums]) -> Sums:
    return Sums(
        add_normal_equations(*(part.kernel for part in parts)),
        add_normal_equations(*(part.linear for part in parts)),
        max(peak_memory(), *(part.peak_bytes for part in parts)),
    )


def _solve_task(
    sums: Sums, nystrom: NystromMap, kernel: Kernel, dictionary: Dictionary, mu: float | None
) -> Solution:
    with single_blas_thread():
        chosen = mu_by_gcv(sums.kernel) if mu is None else mu
        theta = solve_direct(sums.kernel, chosen)
        linear = solve_direct(sums.linear, mu_by_gcv(sums.linear))
        return Solution(
            coefficients=nystrom.coefficients(theta),
            linear_coefficients=linear,
            mu=chosen,
            train_square=_train_square(sums.kernel, theta),
            effective_dimension=dictionary_effective_dimension(kernel, dictionary),
            peak_bytes=max(peak_memory(), sums.peak_bytes),
        )


def _train_square(equations: NormalEquations, theta: Float64Array) -> Float64Array:
    """Weighted sum of squared errors on the rows fitted, from the sums alone."""
    lower = np.tril(equations.gram, -1)
    product = lower @ theta + lower.T @ theta + np.diagonal(equations.gram)[:, None] * theta
    explained = np.einsum("ij,ij->j", theta, 2 * equations.moment - product)
    return np.maximum(equations.target_square - explained, 0)


class _Clock:
    """Seconds of each stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, stage: str) -> None:
        now = time.perf_counter()
        self.seconds[stage] = now - self._last
        self._last = now


def peak_memory() -> int:
    """Return the peak resident memory of this process in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _report(
    profile: Profile, plan: _Plan, root: Branch, solution: Solution, clock: _Clock
) -> dict[str, Any]:
    return {
        "task": "regression",
        "rows": profile.rows,
        "rows_fitted": profile.kept,
        "rows_dropped": profile.rows - profile.kept,
        "rows_in_dictionary_pass": root.state.rows_seen,
        "partition_rows": list(plan.partition_rows),
        "chains": len(plan.tree.chains),
        "encoded_features": plan.encoding.n_features,
        "dictionary_size": len(root.dictionary),
        "gamma_requested": plan.squeak.gamma,
        "gamma": root.dictionary.gamma,
        "mu": solution.mu,
        "effective_dimension": solution.effective_dimension,
        "target_mean": profile.target_mean.tolist(),
        "target_std": np.sqrt(profile.target_variance).tolist(),
        "train_rmse": np.sqrt(solution.train_square / profile.weight_sum).tolist(),
        "stopped": root.state.stopped,
        "seconds": dict(clock.seconds),
        "peak_worker_bytes": max(solution.peak_bytes, root.peak_bytes),
        "merges": [asdict(record) for record in root.records],
    }
