"""Fitted models and dual weights as zarr stores: saved atomically, verified when loaded.

A store is a zarr group (version 3 when written, 2 or 3 when read) that zarr alone can
read: no pickles, no object arrays, attributes in strict JSON. Each array of a model has a
checksum among the root attributes, and the attribute ``complete`` is written last.

====================================  ====================================================
``dictionary/points``                 (m, d): the encoded rows
``dictionary/indices``                (m,) int64: their global row numbers
``dictionary/probabilities``          (m,) float64: p
``dictionary/multiplicities``         (m,) int64: Q
``dictionary/row_weights``            (m,) float64: sample weights
``coefficients``                      (m, n_outputs) float64: c
``slopes``                            (w, n_outputs) float64: the linear part beside the
                                      kernel, its constant last, w = n_features + 1; the
                                      constant alone, w = 1; or none, w = 0
``column_range``                      (2, n_features) float64: range of each encoded column
``linear_coefficients``               (n_features + 1, n_outputs) float64: the baseline
``noise_variance``                    (n_outputs,) float64: σ²
``posterior``                         lower triangle, by rows, of the Cholesky factor of A
``target_mean``                       (n_outputs,) float64
``encoding/<name>``                   what the encoding of the columns needs
``sample/X``                          (s, d): a few encoded rows of the fit, for reports
``sample/targets``                    (s, n_outputs) float64: in the units of the user
``sample/weights``                    (s,) float64: sample weights
====================================  ====================================================

The attribute ``task`` says what is modelled. Beside predictors there are ``features``, which
have no arrays but the dictionary and the encoding, and ``components``, which have

====================================  ====================================================
``coefficients``                      (m', q) float64: a score is k(x, points) @ coefficients
                                      − offsets, of the m' distinct points
``offsets``                           (q,) float64: the scores of the mean
``eigenvalues``                       (q,) float64, descending
====================================  ====================================================

A prediction is k(x, points) @ coefficients + [clip(x), 1] @ slopes + target_mean for an encoded
row x, clip to the column range; of [clip(x), 1] the last w columns. The encoded value of a
number is (value − center) · scale, with
``encoding/center`` and ``encoding/scale``, one per column of the user. The checksum
of an array is the SHA-256 of :func:`array_checksum`; that of the attributes, under the name
``attributes``, is over the JSON, with sorted keys and without spaces, of all of them but
itself and ``complete``. Stores of format 2, which had no ``sample``, are read too.
"""

from __future__ import annotations

from squeak_dist.store.dual_weights import (
    DUAL_WEIGHTS_FORMAT,
    DualWeightsWriter,
    create_dual_weights,
    finish_dual_weights,
    load_dual_weights,
)
from squeak_dist.store.groups import FORMAT_VERSION
from squeak_dist.store.models import MODEL_FORMAT, check_writable, load_model, save_model
from squeak_dist.store.plain import array_checksum, to_plain

__all__ = [
    "DUAL_WEIGHTS_FORMAT",
    "FORMAT_VERSION",
    "MODEL_FORMAT",
    "DualWeightsWriter",
    "array_checksum",
    "check_writable",
    "create_dual_weights",
    "finish_dual_weights",
    "load_dual_weights",
    "load_model",
    "save_model",
    "to_plain",
]
