"""partial_fit: one chain over all batches, and a model at any time."""

from __future__ import annotations

import pickle

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from squeak_dist import SqueakRegressor
from squeak_dist.errors import DataError, FitForgotten, InvalidParameterError
from squeak_dist.leverage import exact_rls
from squeak_dist.stages.dictionaries import _chain_end, _chain_step
from squeak_dist.table import Table, TableSchema, cut_table

BATCH, BATCHES = 400, 10


def made(n, seed=0):
    rng = np.random.default_rng([seed, n])
    X = rng.normal(size=(n, 3))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=n)


def batches(X, y):
    return [(X[i : i + BATCH], y[i : i + BATCH]) for i in range(0, len(X), BATCH)]


def streamed(X, y, **settings):
    model = SqueakRegressor(max_dictionary=300, **settings)
    for part in batches(X, y):
        model.partial_fit(*part)
    return model


def bits(model):
    found = model.model_
    arrays = (found.dictionary.points, found.dictionary.probabilities, found.coefficients)
    return b"".join(array.tobytes() for array in arrays)


def test_ten_partial_fits_are_a_chain_of_ten_partitions():
    X, y = made(BATCH * BATCHES)
    model = streamed(X, y)
    plan = model.stream_.plan
    labels = plan.encoding.labels
    schema = TableSchema(tuple(labels), ("y",))
    tables = [
        cut_table(pd.DataFrame(a, columns=list(labels)).assign(y=b), schema)
        for a, b in batches(X, y)
    ]
    assert isinstance(tables[0], Table)
    offsets = np.arange(BATCHES) * BATCH
    chain = None
    for i, table in enumerate(tables):
        X_encoded, _ = plan.encoding.encode(table.features)
        chain = _chain_step(chain, [Encoded(X_encoded, offsets[i])], (i,), plan.kernel,
                            plan.squeak, 0)  # fmt: skip
    chain = _chain_end(chain, 0, plan.kernel, plan.squeak, 0)
    ours, theirs = model.dictionary_, chain.dictionary
    assert ours.points.tobytes() == theirs.points.tobytes()
    assert ours.probabilities.tobytes() == theirs.probabilities.tobytes()
    assert ours.multiplicities.tobytes() == theirs.multiplicities.tobytes()
    assert ours.indices.tobytes() == theirs.indices.tobytes()
    assert ours.gamma == theirs.gamma


class Encoded:
    weights = None

    def __init__(self, X, offset):
        self.X = X
        self.indices = np.arange(offset, offset + len(X))


def test_one_call_with_many_partitions_is_many_calls():
    X, y = made(BATCH * BATCHES)
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=y)
    first, rest = frame[:BATCH], frame[BATCH:]
    one = SqueakRegressor(max_dictionary=300).partial_fit(first, target="y")
    one.partial_fit(dd.from_pandas(rest, npartitions=BATCHES - 1), target="y")
    many = SqueakRegressor(max_dictionary=300)
    for i in range(BATCHES):
        many.partial_fit(frame[i * BATCH : (i + 1) * BATCH], target="y")
    assert bits(one) == bits(many)


def test_it_is_as_accurate_as_a_fit_of_all():
    X, y = made(BATCH * BATCHES)
    X_new, y_new = made(2000, seed=1)
    whole = SqueakRegressor(max_dictionary=300).fit(X, y)
    model = streamed(X, y)
    ours, theirs = model.score(X_new, y_new), whole.score(X_new, y_new)
    assert ours > theirs - 0.02
    assert model.report_["rows"] == len(X)


def test_every_model_on_the_way_is_better_than_those_long_before():
    X, y = made(BATCH * BATCHES)
    X_new, y_new = made(2000, seed=1)
    model, scores = SqueakRegressor(max_dictionary=300), []
    for part in batches(X, y):
        scores.append(model.partial_fit(*part).score(X_new, y_new))
    assert scores[-1] > scores[4] > scores[0] - 0.01
    assert scores[-1] > 0.9


def test_with_every_row_it_is_the_fit():
    X, y = made(300)
    settings = {
        "gamma": 1e-10, "max_dictionary": None, "dtype": "float64", "length_scale": 1.0,
        "mu": 0.1, "linear_part": False,
    }  # fmt: skip
    model = SqueakRegressor(**settings)
    for i in range(0, 300, 100):
        model.partial_fit(X[i : i + 100], y[i : i + 100])
    whole = SqueakRegressor(**settings).fit(X, y)
    assert len(model.dictionary_) == 300
    # The targets of the stream are centred by their mean in the first batch.
    shift = y[:100].mean() - y.mean()
    assert np.abs(model.predict(X) - whole.predict(X)).max() < abs(shift) + 1e-6


def test_the_dictionary_is_accurate_at_every_time():
    X, y = made(800)
    model = SqueakRegressor(gamma=2.0, qbar=200, length_scale=1.0, dtype="float64")
    for i in range(0, 800, 200):
        model.partial_fit(X[i : i + 200], y[i : i + 200])
        rows, _ = model.model_.encoding.encode(X[: i + 200])
        tau = exact_rls(model.kernel_(rows, rows), 2.0)
        kept = model.dictionary_
        # p is at most τ and, at this q̄, not far below the lemma's bound τ (1 − ε)/(1 + ε).
        p, bound = kept.probabilities, tau[kept.indices] * (1 - 0.3) / (1 + 0.3)
        assert (p <= tau[kept.indices] + 1e-9).mean() > 0.99
        assert (p >= bound).mean() > 0.9


def test_weights_and_several_targets():
    X, y = made(1200)
    Y = np.column_stack([y, -2 * y])
    weights = np.where(np.arange(1200) % 3 == 0, 0.0, 1.0)
    Y[weights == 0] = 1e3
    model = SqueakRegressor(max_dictionary=200)
    for i in range(0, 1200, 400):
        model.partial_fit(X[i : i + 400], Y[i : i + 400], weights[i : i + 400])
    predicted = model.predict(X)
    np.testing.assert_allclose(predicted[:, 1], -2 * predicted[:, 0], atol=1e-3)
    assert np.sqrt(np.mean((predicted[weights > 0, 0] - y[weights > 0]) ** 2)) < 0.5 * y.std()


def test_a_stream_can_be_pickled_and_go_on():
    X, y = made(1200)
    model = SqueakRegressor(max_dictionary=200).partial_fit(X[:600], y[:600])
    copy = pickle.loads(pickle.dumps(model))
    assert bits(copy.partial_fit(X[600:], y[600:])) == bits(model.partial_fit(X[600:], y[600:]))


def test_what_does_not_go_on():
    X, y = made(600)
    model = SqueakRegressor(max_dictionary=100).fit(X, y)
    with pytest.warns(FitForgotten, match="clone"):
        model.partial_fit(X[:300], y[:300])
    model.set_params(epsilon=0.2)
    with pytest.raises(InvalidParameterError, match="epsilon changed"):
        model.partial_fit(X, y)
    fresh = clone(model).partial_fit(X, y)
    with pytest.raises(DataError, match="X has 2 features"):
        fresh.partial_fit(X[:, :2], y)
    with pytest.raises(DataError, match="column names"):
        fresh.partial_fit(pd.DataFrame(X), y)
    with pytest.raises(DataError, match="NaN"):
        fresh.partial_fit(np.where(X > 1, np.nan, X), y)
    before = bits(fresh)
    assert bits(fresh) == before
    assert fresh.partial_fit(X, y).report_["rows"] == 1200
