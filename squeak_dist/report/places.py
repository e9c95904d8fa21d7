"""Where rows lie in a plane: a map, two columns, or the first two principal axes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from squeak_dist._typing import Float64Array, FloatArray
from squeak_dist.errors import MissingColumnsError
from squeak_dist.report.judged import AnyModel

_LONGITUDES = ("longitude", "lon", "long", "lng")
_LATITUDES = ("latitude", "lat")
_UNIT = 1e-3  # how far from 1 the length of a unit vector may be


@dataclass(frozen=True, eq=False)
class Plane:
    """Two coordinates of the rows of a sample and of a dictionary.

    Parameters
    ----------
    title, x_label, y_label : str
        What they are.
    rows : ndarray of float64, shape (s, 2)
        Of the sample.
    dictionary : ndarray of float64, shape (m, 2)
        Of the dictionary.
    is_map : bool
        Whether they are degrees of longitude and latitude.
    """

    title: str
    x_label: str
    y_label: str
    rows: Float64Array
    dictionary: Float64Array
    is_map: bool = False


def plane_of(
    model: AnyModel, rows: FloatArray, columns: Sequence[Hashable] | None = None
) -> Plane:
    """Choose a plane and place rows and dictionary in it.

    Parameters
    ----------
    model : FittedModel or FeatureModel
        Its encoding and dictionary.
    rows : ndarray of shape (s, d)
        Encoded rows of a sample; may be none.
    columns : two labels, optional
        Columns of the fit. Without them: longitude and latitude where there are such columns, or
        columns x, y, z that are a unit vector; else the first two principal axes.

    Raises
    ------
    MissingColumnsError
        If the fit has no such columns.
    """
    points = model.dictionary.points
    sampled, kept = (model.encoding.decode_points(X) for X in (rows, points))
    if columns is None:
        columns = _geographic(model.encoding.labels)
        if columns is None and _is_sphere(kept):
            return _map(*(_on_sphere(frame) for frame in (sampled, kept)))
    elif missing := [label for label in columns if label not in model.encoding.labels]:
        raise MissingColumnsError(
            f"the fit has no columns {missing}; choose two of {list(model.encoding.labels)}"
        )
    if columns is None:
        return _principal(rows, points)
    chosen = list(columns)
    places = [_coordinates(frame[chosen]) for frame in (sampled, kept)]
    if _geographic(chosen) is not None:
        return _map(*places)
    x, y = map(str, chosen)
    return Plane(f"Where the dictionary lies: {x} and {y}", x, y, places[0], places[1])


def _map(rows: Float64Array, dictionary: Float64Array) -> Plane:
    title = "Where the dictionary lies: a map"
    return Plane(title, "longitude (°)", "latitude (°)", rows, dictionary, is_map=True)


def _coordinates(frame: pd.DataFrame) -> Float64Array:
    """Return columns as numbers: places of levels for text, seconds for times."""
    columns = [
        column.to_numpy(np.float64)
        if pd.api.types.is_numeric_dtype(column)
        else pd.factorize(column, sort=True)[0].astype(np.float64)
        for _, column in frame.items()
    ]
    return np.column_stack(columns)


def _geographic(labels: Sequence[Hashable]) -> list[Hashable] | None:
    """Return the labels of longitude and latitude, where both are there."""
    lower = {str(label).lower(): label for label in labels}
    found = [
        next((lower[n] for n in names if n in lower), None) for names in (_LONGITUDES, _LATITUDES)
    ]
    return None if None in found else found


def _is_sphere(frame: pd.DataFrame) -> bool:
    if not {"x", "y", "z"} <= set(frame.columns) or not len(frame):
        return False
    vectors = frame[["x", "y", "z"]]
    if not all(pd.api.types.is_numeric_dtype(column) for _, column in vectors.items()):
        return False
    lengths = np.linalg.norm(vectors.to_numpy(np.float64), axis=1)
    return bool(np.all(np.abs(lengths - 1) < _UNIT))


def _on_sphere(frame: pd.DataFrame) -> Float64Array:
    x, y, z = frame[["x", "y", "z"]].to_numpy(np.float64).T
    degrees = np.degrees([np.arctan2(y, x) % (2 * np.pi), np.arctan2(z, np.hypot(x, y))])
    return np.ascontiguousarray(degrees.T)


def _principal(rows: FloatArray, points: FloatArray) -> Plane:
    """Project on the first two principal axes of the sample (of the dictionary without one)."""
    base = (rows if len(rows) > 1 else points).astype(np.float64)
    centre = base.mean(axis=0)
    _, s, axes = np.linalg.svd(base - centre, full_matrices=False)
    axes = np.vstack([axes, np.zeros((2, base.shape[1]))])[:2]
    # The sign of an axis is arbitrary: its largest entry is made positive.
    axes *= np.where(axes[np.arange(2), np.abs(axes).argmax(axis=1)] < 0, -1, 1)[:, None]
    shares = np.append(s, [0.0, 0.0])[:2] ** 2 / max(float(np.sum(s**2)), 1e-300)
    x_label, y_label = (
        f"principal axis {i + 1} ({share:.0%} of the variance)" for i, share in enumerate(shares)
    )
    placed, kept = ((X.astype(np.float64) - centre) @ axes.T for X in (rows, points))
    return Plane("Where the dictionary lies: principal axes", x_label, y_label, placed, kept)
