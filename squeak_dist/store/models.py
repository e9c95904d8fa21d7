"""Fitted models in a store: what is saved of one, and how it is put together again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from squeak_dist.classes import Classes
from squeak_dist.dictionary import Dictionary
from squeak_dist.encoded_sample import EncodedSample
from squeak_dist.encoding import FeatureEncoding
from squeak_dist.errors import InvalidKernelError, InvalidParameterError
from squeak_dist.feature_model import ComponentModel, FeatureModel
from squeak_dist.kernels import Kernel, kernel_config, kernel_from_config
from squeak_dist.model import FittedModel
from squeak_dist.store.failures import store_errors
from squeak_dist.store.groups import (
    check_replaceable,
    checked_array,
    checked_checksums,
    format_header,
    open_root,
    read_array,
    store_files,
)
from squeak_dist.store.places import (
    PathLike,
    StorageOptions,
    discard,
    existing,
    locate,
    make_parent,
    opened,
)
from squeak_dist.store.plain import array_checksum, attributes_checksum, strict, to_plain
from squeak_dist.store.swap import install

MODEL_FORMAT = "squeak_dist-model"

_DICTIONARY_ARRAYS = ("points", "indices", "probabilities", "multiplicities", "row_weights")
_SAMPLE_ARRAYS = ("X", "targets", "weights")
_MODEL_PARTS = ("kernel", "dictionary", "encoding", "report", "classes", "sample")


@dataclass(frozen=True)
class _Layout:
    """How the fields of a kind of model are stored."""

    model: type[Any]
    arrays: tuple[str, ...]

    @property
    def scalars(self) -> tuple[str, ...]:
        """Names, numbers and switches: each is an attribute of its own."""
        names = (f.name for f in fields(self.model))
        return tuple(n for n in names if n not in (*self.arrays, *_MODEL_PARTS))


_PREDICTOR = _Layout(
    FittedModel,
    (
        *("coefficients", "linear_coefficients", "slopes", "column_range", "target_mean"),
        *("noise_variance", "posterior"),
    ),
)
_LAYOUTS = {  # by the attribute ``task``; all other tasks are those of predictors
    "features": _Layout(FeatureModel, ()),
    "components": _Layout(ComponentModel, ("coefficients", "offsets", "eigenvalues")),
}


def save_model(
    model: FittedModel | FeatureModel,
    path: PathLike,
    *,
    storage_options: StorageOptions = None,
    zarr_format: Literal[2, 3] = 3,
    overwrite: bool = True,
) -> None:
    """Save a model, so that there is at every moment a whole store at ``path``, or none.

    Parameters
    ----------
    model : FittedModel or FeatureModel
        The model to save. Its report may hold numpy scalars, arrays and
        non-finite numbers: see :func:`to_plain`.
    path : str or path-like
        A directory (``model.zarr``), a local zip file (``model.zarr.zip``) or
        any fsspec URL (``s3://bucket/model.zarr``). Missing local parent
        directories are made.
    storage_options : mapping, optional
        For the fsspec file system: credentials, endpoints.
    zarr_format : {3, 2}, default 3
        Version of the zarr specification to write.
    overwrite : bool, default True
        Replace a model that is there. Anything but a model is never replaced.

    Raises
    ------
    StoreFormatError
        If there is something at ``path`` that is not a squeak_dist model.
    StoreError
        If it exists and ``overwrite`` is false, if the model holds something
        that has no place in a store, or if the file system fails. An earlier
        model at ``path`` is then still there.
    InvalidParameterError
        For another ``zarr_format``.

    Notes
    -----
    The store is written to a sibling ``<path>.tmp-<hex>`` and then swapped in:
    by two renames on a local disk (one for a zip file), by copies elsewhere,
    where the earlier model waits at ``<path>.old-<hex>`` meanwhile. A process
    killed in between leaves such a sibling behind. Cost: m (d + n_outputs)
    numbers and about thirty files; twice that on object stores.
    """
    if zarr_format not in (2, 3):
        raise InvalidParameterError(f"zarr_format must be 2 or 3, got {zarr_format!r}")
    with store_errors("save to", path):
        place = locate(path, storage_options)
        check_replaceable(place, MODEL_FORMAT, overwrite)
        install(place, store_files(*_model_contents(model), zarr_format))


def check_writable(
    path: PathLike, storage_options: StorageOptions = None, *, overwrite: bool = True
) -> None:
    """Check that a model can be saved at a path, before the work that makes it.

    Parameters
    ----------
    path : str or path-like
        As for :func:`save_model`.
    storage_options : mapping, optional
        For the fsspec file system.
    overwrite : bool, default True
        As for :func:`save_model`.

    Raises
    ------
    StoreFormatError
        If there is something that is not a model.
    StoreError
        If nothing can be written there, or there is a model and ``overwrite`` is false.
    """
    with store_errors("save to", path):
        place = locate(path, storage_options)
        check_replaceable(place, MODEL_FORMAT, overwrite)
        probe = place.sibling("tmp")
        make_parent(place)
        try:
            place.fs.pipe_file(probe.root, b"")
        finally:
            discard(probe)


def load_model(
    path: PathLike, *, storage_options: StorageOptions = None, kernel: Kernel | None = None
) -> FittedModel | FeatureModel:
    """Load a model and verify every checksum.

    Parameters
    ----------
    path : str or path-like
        As in :func:`save_model`.
    storage_options : mapping, optional
        For the fsspec file system.
    kernel : Kernel, optional
        Needed for a model with a kernel of your own, which the store knows by
        its class only: give it the parameters it had. For a built-in kernel
        leave it out.

    Returns
    -------
    FittedModel, FeatureModel or ComponentModel
        What was saved; it predicts the same bits.

    Raises
    ------
    StoreNotFoundError
        If there is nothing at ``path``.
    StoreFormatError
        If it is not a squeak_dist model, or one of a newer format.
    StoreCorruptedError
        If it is incomplete, damaged or was edited.
    StoreError
        If the file system fails, or the protocol is unknown.
    InvalidKernelError
        If the kernel is not built in and ``kernel`` is missing, or is of
        another class.
    """
    with store_errors("load", path):
        place = existing(locate(path, storage_options))
        with opened(place) as store:
            root = open_root(store, place, MODEL_FORMAT)
            checksums = checked_checksums(root, place)
            arrays = {name: read_array(root, name, sha, place) for name, sha in checksums}
            attributes = dict(root.attrs)
        return _restored_model(attributes, arrays, kernel)


def _model_contents(
    model: FittedModel | FeatureModel,
) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Return the root attributes and the arrays of a model, both checked."""
    layout = next((each for each in _LAYOUTS.values() if each.model is type(model)), _PREDICTOR)
    encoding, encoding_arrays = model.encoding.to_config()
    arrays: dict[str, npt.NDArray[Any]] = {
        **{f"dictionary/{name}": getattr(model.dictionary, name) for name in _DICTIONARY_ARRAYS},
        **{name: getattr(model, name) for name in layout.arrays},
        **{f"encoding/{name}": array for name, array in encoding_arrays.items()},
        **_of_sample(model.sample),
    }
    arrays = {name: checked_array(name, array) for name, array in arrays.items()}
    attributes = strict(_model_attributes(model, layout, encoding))
    checksums = {name: array_checksum(array) for name, array in arrays.items()}
    attributes["checksums"] = checksums
    checksums["attributes"] = attributes_checksum(attributes)
    return attributes, arrays


def _of_sample(sample: EncodedSample | None) -> dict[str, npt.NDArray[Any]]:
    if sample is None:
        return {}
    return {f"sample/{name}": getattr(sample, name) for name in _SAMPLE_ARRAYS}


def _restored_sample(arrays: Mapping[str, npt.NDArray[Any]]) -> EncodedSample | None:
    """Return the sample of a store, where it has one."""
    found = {name: arrays.get(f"sample/{name}") for name in _SAMPLE_ARRAYS}
    present = {name: array for name, array in found.items() if array is not None}
    return EncodedSample(**present) if len(present) == len(found) else None


def _model_attributes(
    model: FittedModel | FeatureModel, layout: _Layout, encoding: Mapping[str, Any]
) -> dict[str, Any]:
    report = to_plain(model.report, "report")
    scalars = {name: getattr(model, name) for name in layout.scalars}
    scalars |= {"gamma": model.dictionary.gamma, "qbar": model.dictionary.qbar}
    return {
        **format_header(MODEL_FORMAT),
        **{k: v.item() if isinstance(v, np.generic) else v for k, v in scalars.items()},
        "kernel": kernel_config(model.kernel),
        "task": report.get("task"),
        **(_class_attributes(model) if isinstance(model, FittedModel) else {}),
        "feature_names": list(model.encoding.feature_names),
        "encoding": encoding,
        "report": report,
    }


def _class_attributes(model: FittedModel) -> dict[str, Any]:
    """Return the labels in the open, and what else is known of them."""
    config = {"labels": None} if model.classes is None else model.classes.to_config()
    return {"classes": config.pop("labels"), "labelling": config or None}


def _restored_classes(attributes: Mapping[str, Any]) -> Classes | None:
    labels, config = attributes["classes"], attributes.get("labelling")
    return None if config is None else Classes.from_config({"labels": labels, **config})


def _restored_model(
    attributes: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]], kernel: Kernel | None
) -> FittedModel | FeatureModel:
    layout = _LAYOUTS.get(attributes["task"], _PREDICTOR)
    parts: dict[str, Any] = {name: arrays[name] for name in layout.arrays}
    for name in layout.scalars:
        value = attributes[name]
        parts[name] = tuple(value) if isinstance(value, list) else value
    columns = {name: arrays[f"dictionary/{name}"] for name in _DICTIONARY_ARRAYS}
    encoding_arrays = {
        name.removeprefix("encoding/"): array
        for name, array in arrays.items()
        if name.startswith("encoding/")
    }
    model: FittedModel | FeatureModel = layout.model(
        **parts,
        kernel=_restored_kernel(attributes["kernel"], kernel),
        dictionary=Dictionary(**columns, gamma=attributes["gamma"], qbar=attributes["qbar"]),
        encoding=FeatureEncoding.from_config(attributes["encoding"], encoding_arrays),
        report=attributes["report"],
        sample=_restored_sample(arrays),
        **({"classes": _restored_classes(attributes)} if layout is _PREDICTOR else {}),
    )
    return model


def _restored_kernel(config: Mapping[str, Any], kernel: Kernel | None) -> Kernel:
    if kernel is None:
        return kernel_from_config(config)
    given = kernel_config(kernel)
    if _kernel_identity(given) != _kernel_identity(config):
        raise InvalidKernelError(
            f"the model was fitted with the kernel {config}, but kernel= is {given}; pass a "
            f"kernel of that class, or leave kernel= out for a built-in one"
        )
    return kernel


def _kernel_identity(config: Mapping[str, Any]) -> Any:
    # A class moves between modules (out of a notebook's __main__, say), so its name decides.
    return config["class"].rpartition(".")[2] if config["name"] == "custom" else dict(config)
