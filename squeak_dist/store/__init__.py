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
``linear_coefficients``               (n_features, n_outputs) float64: the baseline
``target_mean``                       (n_outputs,) float64
``encoding/<name>``                   what the encoding of the columns needs
====================================  ====================================================

A prediction is k(x, points) @ coefficients + target_mean for an encoded row x. The checksum
of an array is the SHA-256 of :func:`array_checksum`; that of the attributes, under the name
``attributes``, is over the JSON, with sorted keys and without spaces, of all of them but
itself and ``complete``.
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
