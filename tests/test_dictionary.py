from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, fields, replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from squeak_dist.dictionary import Dictionary, concatenate, empty_dictionary
from squeak_dist.errors import InvalidParameterError


def dictionary(m=5, d=2, first=0, gamma=1.0, qbar=8, dtype=np.float64, seed=0):
    rng = np.random.default_rng([seed, m, d])
    return Dictionary(
        points=rng.normal(size=(m, d)).astype(dtype),
        indices=np.arange(first, first + m, dtype=np.int64),
        probabilities=rng.uniform(0.1, 1.0, m),
        multiplicities=rng.integers(1, qbar + 1, m),
        row_weights=rng.uniform(0.5, 2.0, m),
        gamma=gamma,
        qbar=qbar,
    )


def test_selection_weights_are_definition_1():
    D = replace(
        dictionary(3),
        probabilities=np.array([1.0, 0.5, 0.1]),
        multiplicities=np.array([8, 2, 1]),
        row_weights=np.array([1.0, 4.0, 0.25]),
    )
    assert_allclose(D.selection_weights, np.sqrt([1.0, 2 / (8 * 0.5), 1 / (8 * 0.1)]))
    assert_allclose(D.column_weights, D.selection_weights * [1.0, 2.0, 0.5])


def test_all_copies_at_probability_one_weigh_one():
    D = replace(dictionary(4), probabilities=np.ones(4), multiplicities=np.full(4, 8))
    assert_array_equal(D.selection_weights, np.ones(4))


def test_take_reorders_every_column():
    D = dictionary(5)
    rows = np.array([3, 0, 4])
    taken = D.take(rows)
    assert len(taken) == 3
    for name in ("points", "indices", "probabilities", "multiplicities", "row_weights"):
        assert_array_equal(getattr(taken, name), getattr(D, name)[rows])
    assert (taken.gamma, taken.qbar) == (D.gamma, D.qbar)
    assert len(D) == 5


def test_the_empty_dictionary_has_shape_and_dtype():
    D = empty_dictionary(3, np.dtype(np.float32), 0.5, 16)
    assert len(D) == 0
    assert D.points.shape == (0, 3)
    assert D.points.dtype == np.float32
    assert D.indices.dtype == D.multiplicities.dtype == np.int64
    assert D.selection_weights.shape == D.column_weights.shape == (0,)
    assert (D.gamma, D.qbar) == (0.5, 16)


def test_concatenate_keeps_order_and_takes_the_largest_gamma():
    parts = [dictionary(3, gamma=1.0), dictionary(2, first=3, gamma=4.0), dictionary(4, first=5)]
    D = concatenate(parts)
    assert len(D) == 9
    assert D.gamma == 4.0
    assert_array_equal(D.indices, np.arange(9))
    for name in ("points", "probabilities", "multiplicities", "row_weights"):
        assert_array_equal(getattr(D, name), np.concatenate([getattr(p, name) for p in parts]))


def test_concatenate_with_the_empty_dictionary_changes_nothing():
    D = dictionary(4, dtype=np.float32)
    joined = concatenate([empty_dictionary(2, np.dtype(np.float32), 0.1, 8), D])
    for field in fields(D):
        assert_array_equal(getattr(joined, field.name), getattr(D, field.name))
    assert joined.points.dtype == np.float32


def test_concatenate_refuses_nothing_and_unequal_copies():
    with pytest.raises(InvalidParameterError, match="at least one"):
        concatenate([])
    with pytest.raises(InvalidParameterError, match=r"different qbar.*\[8, 16\]"):
        concatenate([dictionary(qbar=16), dictionary(qbar=8)])


@pytest.mark.parametrize(
    "wrong",
    [
        {"points": np.ones(5)},
        {"points": np.ones((4, 2))},
        {"indices": np.arange(4)},
        {"probabilities": np.ones((5, 1))},
        {"multiplicities": np.ones(6, np.int64)},
        {"row_weights": np.ones(0)},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_shapes_that_do_not_fit_are_refused(wrong):
    with pytest.raises(InvalidParameterError, match="four columns of length m"):
        replace(dictionary(5), **wrong)


def test_a_dictionary_is_frozen_and_survives_a_pickle():
    D = dictionary()
    with pytest.raises(FrozenInstanceError):
        D.gamma = 2.0
    copy = pickle.loads(pickle.dumps(D))
    for field in fields(D):
        assert_array_equal(getattr(copy, field.name), getattr(D, field.name))
