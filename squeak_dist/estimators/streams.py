"""What ``partial_fit`` of all estimators shares: the stream, and what may continue it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from squeak_dist.distributed import Source
from squeak_dist.errors import DataError, FitForgotten, InvalidParameterError, warn_user
from squeak_dist.estimators.base import SqueakEstimator, adopt_fit
from squeak_dist.stages import FitParameters, Stream


def open_stream(estimator: SqueakEstimator, parameters: FitParameters) -> Stream | None:
    """Return the stream that a further ``partial_fit`` continues; None where it begins.

    Parameters
    ----------
    estimator : SqueakEstimator
        Fitted or not.
    parameters : FitParameters
        Its parameters, now.

    Raises
    ------
    InvalidParameterError
        Where they were changed since the first call.

    Warns
    -----
    FitForgotten
        After a fit or a load, which keep no stream.
    """
    if not hasattr(estimator, "model_"):
        return None
    if not hasattr(estimator, "stream_"):
        warn_user(
            "partial_fit continues only what partial_fit began: the model that fit made, or "
            "that was loaded, is forgotten. Begin with sklearn.base.clone(model) to keep it",
            FitForgotten,
        )
        return None
    changed = [
        field.name
        for field in fields(FitParameters)
        if getattr(parameters, field.name) != getattr(estimator.stream_parameters_, field.name)
    ]
    if changed:
        raise InvalidParameterError(
            f"{', '.join(changed)} changed since the first partial_fit; set them back, or "
            f"begin with sklearn.base.clone(model)"
        )
    stream: Stream = estimator.stream_
    return stream


def go_on(
    estimator: SqueakEstimator,
    stream: Stream | None,
    source: Source,
    parameters: FitParameters,
    extend: Callable[[Stream | None, Source, FitParameters], tuple[Stream, Any]],
) -> None:
    """Pass a source through a stream, and make the estimator the face of its model.

    Parameters
    ----------
    estimator : SqueakEstimator
        Left as it is where anything is wrong.
    stream : Stream, optional
        As :func:`open_stream` returned it.
    source : Source
        Further rows.
    parameters : FitParameters
        As of the first call.
    extend : callable
        Makes of (stream, source, parameters) the stream with these rows, and the model.

    Raises
    ------
    DataError
        For other columns than those of the first call, or data that cannot be fitted.
    """
    if stream is not None:
        _check_same_columns(estimator.model_, source)
    stream, model = extend(stream, source, parameters)
    adopt_fit(estimator, model)
    estimator.stream_, estimator.stream_parameters_ = stream, parameters


def forget_stream(estimator: SqueakEstimator) -> None:
    """Forget the stream of an estimator that is fitted anew."""
    for name in ("stream_", "stream_parameters_"):
        estimator.__dict__.pop(name, None)


def _check_same_columns(model: Any, source: Source) -> None:
    encoding = model.encoding
    if source.unnamed_features != model.unnamed_features:
        raise DataError(
            "the first partial_fit had a table with column names and this one has none, or "
            "the other way round; pass the same kind"
        )
    if source.unnamed_features:
        expected, got = len(encoding.labels), len(source.schema.features)
        if expected != got:
            raise DataError(
                f"X has {got} features, but {model.estimator_name} is expecting {expected} "
                f"features as input"
            )
    else:
        encoding.check_columns(list(source.schema.features))
    targets = getattr(model, "target_names", ())
    if source.target_names != targets:
        raise DataError(
            f"the targets are {list(source.target_names)}, but were {list(targets)} in the first "
            f"partial_fit"
        )
