"""Fits without a target: the features of a dictionary, and their principal components."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

from squeak_dist._typing import Float64Array
from squeak_dist.dictionary import Dictionary
from squeak_dist.encoded_sample import encoded_sample
from squeak_dist.encoding import EncodedTable
from squeak_dist.feature_model import ComponentModel, FeatureModel
from squeak_dist.kernels import Kernel
from squeak_dist.linalg import single_blas_thread
from squeak_dist.nystrom import NystromMap, in_double
from squeak_dist.principal import (
    Components,
    Scatter,
    add_rows,
    add_scatters,
    principal_components,
)
from squeak_dist.squeak import dictionary_effective_dimension
from squeak_dist.stages.executors import Executor
from squeak_dist.stages.learning import Learned, dictionary_report, learn_dictionary
from squeak_dist.stages.parameters import FitParameters
from squeak_dist.stages.planning import Plan, sum_rows
from squeak_dist.stages.records import peak_memory
from squeak_dist.stages.solving import map_task
from squeak_dist.stages.streaming import (
    Stream,
    Summing,
    extend_stream,
    moved_equations,
    stream_report,
)


@dataclass(frozen=True, eq=False)
class _Sums:
    scatter: Scatter
    peak_bytes: int


@dataclass(frozen=True, eq=False)
class _Facts:
    """What the last task of a fit returns to the driver."""

    effective_dimension: float
    peak_bytes: int
    components: Components | None = None


def fit_features(
    executor: Executor,
    tables: Sequence[Any],
    parameters: FitParameters,
    *,
    unnamed_features: bool = False,
) -> FeatureModel:
    """Fit the features of a dictionary to the partitions of a table.

    Parameters
    ----------
    executor : Executor
        Where the work runs.
    tables : sequence of handles on Table
        One per partition, in order; without targets.
    parameters : FitParameters
        All parameters.
    unnamed_features : bool, default False
        Whether the features came as an array.

    Returns
    -------
    FeatureModel
        The same bits for every executor.

    Raises
    ------
    DataError, InsufficientMemoryError
        As :func:`~squeak_dist.stages.learning.learn_dictionary`.

    Notes
    -----
    Two passes over the data: profile and dictionaries.
    """
    learned = learn_dictionary(executor, tables, parameters, n_outputs=0)
    kernel, dictionary = executor.share(learned.plan.kernel), learned.root.dictionary
    shared = executor.share(dictionary)
    nystrom = executor.call(_map_task, kernel, shared, parameters.approximation)
    facts: _Facts = executor.gather(
        "solve", executor.call(_map_facts_task, nystrom, kernel, shared)
    )
    learned.clock.lap("solve")
    return FeatureModel(
        **_common(learned.plan, learned.root.dictionary, parameters, unnamed_features),
        sample=encoded_sample(learned.plan.encoding, learned.profile.sample),
        report=_report(learned, parameters, facts, "features"),
    )


def fit_components(
    executor: Executor,
    tables: Sequence[Any],
    parameters: FitParameters,
    *,
    n_components: int | None,
    unnamed_features: bool = False,
) -> ComponentModel:
    """Fit principal components in feature space to the partitions of a table.

    Parameters
    ----------
    executor, tables, parameters
        As in :func:`fit_features`.
    n_components : int or None
        How many; None for all.
    unnamed_features : bool, default False
        Whether the features came as an array.

    Returns
    -------
    ComponentModel
        The same bits for every executor.

    Raises
    ------
    DataError, InsufficientMemoryError
        As :func:`~squeak_dist.stages.learning.learn_dictionary`.

    Notes
    -----
    Three passes over the data: profile, dictionaries, and the covariance of the features.
    """
    learned = learn_dictionary(executor, tables, parameters, n_outputs=0)
    facts = _solve(executor, learned, parameters, n_components)
    learned.clock.lap("solve")
    return ComponentModel(
        **_common(learned.plan, learned.root.dictionary, parameters, unnamed_features),
        sample=encoded_sample(learned.plan.encoding, learned.profile.sample),
        **_components(facts, _report(learned, parameters, facts, "components")),
    )


def fit_features_stream(
    executor: Executor,
    stream: Stream | None,
    tables: Sequence[Any],
    parameters: FitParameters,
    *,
    unnamed_features: bool = False,
) -> tuple[Stream, FeatureModel]:
    """Pass further partitions through a stream; return it, and the features of its dictionary.

    Parameters
    ----------
    executor : Executor
        Where the work runs.
    stream : Stream, optional
        So far.
    tables, parameters, unnamed_features
        As in :func:`fit_features`.
    """
    stream, facts = extend_stream(executor, stream, tables, parameters, None, _stream_facts)
    return stream, FeatureModel(
        **_common(stream.plan, stream.dictionary, parameters, unnamed_features),
        sample=stream.few_rows(),
        report=_stream_report(stream, parameters, facts, "features"),
    )


def fit_components_stream(
    executor: Executor,
    stream: Stream | None,
    tables: Sequence[Any],
    parameters: FitParameters,
    *,
    n_components: int | None,
    unnamed_features: bool = False,
) -> tuple[Stream, ComponentModel]:
    """Pass further partitions through a stream; return it, and the components of all its rows.

    Parameters
    ----------
    executor, stream, tables, parameters
        As in :func:`fit_features_stream`.
    n_components : int or None
        How many; None for all.
    unnamed_features : bool, default False
        Whether the features came as an array.
    """
    solve = partial(_stream_components, n_components=n_components)
    stream, facts = extend_stream(executor, stream, tables, parameters, _SCATTER, solve)
    return stream, ComponentModel(
        **_common(stream.plan, stream.dictionary, parameters, unnamed_features),
        sample=stream.few_rows(),
        **_components(facts, _stream_report(stream, parameters, facts, "components")),
    )


def _solve(
    executor: Executor, learned: Learned, parameters: FitParameters, n_components: int | None
) -> _Facts:
    plan = learned.plan
    kernel, shared = executor.share(plan.kernel), executor.share(learned.root.dictionary)
    nystrom = executor.call(_map_task, kernel, shared, parameters.approximation)
    sums = sum_rows(
        executor,
        learned.encoded,
        plan,
        lambda sums, tables, step: (_sums_task, sums, tables, nystrom),
        _add_sums,
    )
    handle = executor.call(_components_task, sums, nystrom, kernel, shared, n_components)
    facts: _Facts = executor.gather("solve", handle)
    return facts


def _common(
    plan: Plan, dictionary: Dictionary, parameters: FitParameters, unnamed_features: bool
) -> dict[str, Any]:
    return {
        "kernel": plan.kernel,
        "dictionary": dictionary,
        "encoding": plan.encoding,
        "unnamed_features": unnamed_features,
        "epsilon": parameters.epsilon,
        "seed": parameters.seed,
        "approximation": parameters.approximation,
    }


def _report(
    learned: Learned, parameters: FitParameters, facts: _Facts, task: str
) -> dict[str, Any]:
    return dictionary_report(learned, parameters) | {
        "task": task,
        "effective_dimension": facts.effective_dimension,
        "seconds": dict(learned.clock.seconds),
        "peak_worker_bytes": max(facts.peak_bytes, learned.root.peak_bytes),
        "peak_bytes": {"dictionary": learned.root.peak_bytes, "solve": facts.peak_bytes},
    }


def _components(facts: _Facts, report: dict[str, Any]) -> dict[str, Any]:
    """Return what a ComponentModel has beside the features."""
    found = facts.components
    assert found is not None
    own = {f.name: getattr(found, f.name) for f in fields(found)}
    return own | {"report": report | {"components": len(found.eigenvalues)}}


def _stream_report(
    stream: Stream, parameters: FitParameters, facts: _Facts, task: str
) -> dict[str, Any]:
    own = {"task": task, "effective_dimension": facts.effective_dimension}
    return stream_report(stream, parameters) | own


def _map_task(kernel: Kernel, dictionary: Dictionary, approximation: str) -> NystromMap:
    return map_task(kernel, in_double(dictionary), approximation)


def _map_facts_task(nystrom: NystromMap, kernel: Kernel, dictionary: Dictionary) -> _Facts:
    """Return what there is to report; ``nystrom`` is there to fail now, not at transform."""
    with single_blas_thread():
        return _Facts(dictionary_effective_dimension(kernel, dictionary), peak_memory())


def _sums_task(sums: _Sums | None, tables: list[EncodedTable], nystrom: NystromMap) -> _Sums:
    scatter = None if sums is None else sums.scatter
    with single_blas_thread():
        for table in tables:
            scatter = add_rows(nystrom, table.X, table.weights, scatter)
    assert scatter is not None
    return _Sums(scatter, peak_memory())


def _add_sums(parts: list[_Sums]) -> _Sums:
    return _Sums(
        add_scatters(*(part.scatter for part in parts)),
        max(peak_memory(), *(part.peak_bytes for part in parts)),
    )


def _components_task(
    sums: _Sums,
    nystrom: NystromMap,
    kernel: Kernel,
    dictionary: Dictionary,
    n_components: int | None,
) -> _Facts:
    with single_blas_thread():
        components = principal_components(nystrom, sums.scatter, n_components)
        dimension = dictionary_effective_dimension(kernel, dictionary)
    return _Facts(dimension, max(peak_memory(), sums.peak_bytes), components)


def _stream_facts(stream: Stream, parameters: FitParameters) -> _Facts:
    kernel, dictionary = stream.plan.kernel, stream.dictionary
    nystrom = _map_task(kernel, dictionary, parameters.approximation)
    return _map_facts_task(nystrom, kernel, dictionary)


def _stream_components(
    stream: Stream, parameters: FitParameters, *, n_components: int | None
) -> _Facts:
    nystrom = stream.nystrom
    assert nystrom is not None
    sums = _Sums(stream.sums, 0)
    return _components_task(sums, nystrom, stream.plan.kernel, stream.dictionary, n_components)


def _add_scatter(nystrom: NystromMap, encoded: EncodedTable, sums: Scatter | None) -> Scatter:
    return add_rows(nystrom, encoded.X, encoded.weights, sums)


def _move_scatter(sums: Scatter, C: Float64Array) -> Scatter:
    return replace(sums, equations=moved_equations(sums.equations, C))


_SCATTER = Summing(_map_task, _add_scatter, _move_scatter)
