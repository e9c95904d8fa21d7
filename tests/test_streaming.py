"""partial_fit: one chain over all batches, and a model at any time."""

from __future__ import annotations

import pickle

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from sklearn.base import clone

from squeak_dist import SqueakClassifier, SqueakPCA, SqueakRegressor, SqueakTransformer
from squeak_dist.cli import main
from squeak_dist.errors import DataError, FitForgotten, InvalidParameterError
from squeak_dist.leverage import exact_rls
from squeak_dist.stages.dictionaries import _chain_end, _chain_step
from squeak_dist.store import load_dual_weights
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


# Every estimator on the same rows: how it is made, and what a further batch is given with.
KINDS = {
    "regressor": (SqueakRegressor, lambda y: {"y": y}),
    "classifier": (SqueakClassifier, lambda y: {"y": codes(y), "classes": [0, 1, 2]}),
    "transformer": (SqueakTransformer, lambda y: {}),
    "pca": (SqueakPCA, lambda y: {}),
}
each = pytest.mark.parametrize("kind", KINDS)


def codes(y):
    return np.digitize(y, [-0.5, 0.5])


def begun(kind, **settings):
    return KINDS[kind][0](**({"max_dictionary": 300} | settings))


def fed(model, kind, X, y):
    return model.partial_fit(X, **KINDS[kind][1](y))


def output(model, X):
    """What the model says of rows, as bits."""
    use = {"SqueakRegressor": "predict", "SqueakClassifier": "predict_proba"}
    return np.asarray(getattr(model, use.get(type(model).__name__, "transform"))(X)).tobytes()


@each
def test_ten_partial_fits_are_a_chain_of_ten_partitions(kind):
    X, y = made(BATCH * BATCHES)
    model = begun(kind)
    for part in batches(X, y):
        fed(model, kind, *part)
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


@each
def test_one_call_with_many_partitions_is_many_calls(kind):
    X, y = made(BATCH * BATCHES)
    features = ["a", "b", "c"]
    frame = pd.DataFrame(X, columns=features).assign(y=codes(y) if kind == "classifier" else y)
    given = {"features": features}
    if kind in ("regressor", "classifier"):
        given["target"] = "y"
    first = given | ({"classes": [0, 1, 2]} if kind == "classifier" else {})
    one = begun(kind).partial_fit(frame[:BATCH], **first)
    one.partial_fit(dd.from_pandas(frame[BATCH:], npartitions=BATCHES - 1), **given)
    many = begun(kind).partial_fit(frame[:BATCH], **first)
    for i in range(1, BATCHES):
        many.partial_fit(frame[i * BATCH : (i + 1) * BATCH], **given)
    assert output(one, frame) == output(many, frame)
    assert one.dictionary_.points.tobytes() == many.dictionary_.points.tobytes()
    assert one.report_["partitions"] == many.report_["partitions"] == BATCHES


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


@each
def test_a_stream_can_be_pickled_and_go_on(kind):
    X, y = made(1200)
    model = fed(begun(kind), kind, X[:600], y[:600])
    copy = pickle.loads(pickle.dumps(model))
    for one in (copy, model):
        fed(one, kind, X[600:], y[600:])
    assert output(copy, X) == output(model, X)
    assert output(clone(model).partial_fit(X, **KINDS[kind][1](y)), X) != output(model, X)


@each
def test_a_later_batch_may_be_anything(kind):
    """One row, equal rows, one class, rows of weight 0: what the first may not be."""
    X, y = made(600)
    model = fed(begun(kind, max_dictionary=100), kind, X[:400], y[:400])
    for rows in (slice(400, 401), np.repeat(401, 5), np.flatnonzero(y > 0.5)):
        fed(model, kind, X[rows], y[rows])
    given = KINDS[kind][1](y[:10])
    before = model.dictionary_.points.tobytes()
    model.partial_fit(X[:10], sample_weight=np.zeros(10), **given)
    assert model.dictionary_.points.tobytes() == before
    assert model.report_["rows"] == 416 + np.sum(y > 0.5)
    with pytest.raises(DataError, match="n_samples=0"):
        fed(model, kind, X[:0], y[:0])


def test_the_classifier_learns_from_a_stream():
    X, y = made(BATCH * BATCHES)
    X_new, y_new = made(2000, seed=1)
    labels = np.array(["low", "mid", "high"])
    model, scores = SqueakClassifier(max_dictionary=300), []
    for part, values in batches(X, y):
        model.partial_fit(part, labels[codes(values)], classes=["high", "low", "mid"])
        scores.append(model.score(X_new, labels[codes(y_new)]))
    whole = SqueakClassifier(max_dictionary=300).fit(X, labels[codes(y)])
    assert scores[-1] > scores[0]
    assert scores[-1] > whole.score(X_new, labels[codes(y_new)]) - 0.02
    assert list(model.classes_) == ["high", "low", "mid"]
    # Probabilities are those of held-out rows, as after a fit; the kernel is that of 400 rows.
    ours, theirs = (m.evaluate(X_new, labels[codes(y_new)]).model for m in (model, whole))
    assert ours.log_loss < theirs.log_loss + 0.08


def test_classes_that_come_late():
    X, y = made(900)
    late = codes(y)
    early = late < 2
    model = SqueakClassifier(max_dictionary=200)
    model.partial_fit(X[early], late[early], classes=[0, 1, 2])
    assert set(model.predict(X)) <= {0, 1}
    model.partial_fit(X[~early], late[~early])
    assert model.score(X, late) > 0.7
    assert model.predict_proba(X).shape == (900, 3)


def test_class_weights_in_a_stream():
    X, y = made(800)
    given = {"classes": [0, 1, 2]}
    weights = {0: 1.0, 1: 5.0}
    model = SqueakClassifier(max_dictionary=200, class_weight=weights)
    by_hand = SqueakClassifier(max_dictionary=200)
    for rows in (slice(0, 400), slice(400, 800)):
        model.partial_fit(X[rows], codes(y[rows]), **given)
        by_row = np.where(codes(y[rows]) == 1, 5.0, 1.0)
        by_hand.partial_fit(X[rows], codes(y[rows]), sample_weight=by_row, **given)
    assert output(model, X) == output(by_hand, X)
    assert model.report_["class_weights"] == [1.0, 5.0, 1.0]
    with pytest.raises(InvalidParameterError, match="compute_class_weight"):
        SqueakClassifier(class_weight="balanced").partial_fit(X, codes(y), **given)


def test_what_a_stream_of_classes_refuses():
    X, y = made(600)
    labels = codes(y)
    with pytest.raises(InvalidParameterError, match="classes must be passed on the first call"):
        SqueakClassifier().partial_fit(X, labels)
    with pytest.raises(DataError, match="one class is present"):
        SqueakClassifier().partial_fit(X, labels, classes=[0])
    with pytest.raises(DataError, match="one class is present"):
        SqueakClassifier().partial_fit(X[labels == 0], labels[labels == 0], classes=[0, 1, 2])
    with pytest.raises(DataError, match=r"not among the classes \(0, 1\)"):
        SqueakClassifier().partial_fit(X, labels, classes=[0, 1])
    model = SqueakClassifier(max_dictionary=50).partial_fit(X, labels, classes=[0, 1, 2])
    before = output(model, X)
    with pytest.raises(InvalidParameterError, match=r"classes are 0, 1, but were 0, 1, 2"):
        model.partial_fit(X, labels, classes=[0, 1])
    with pytest.raises(DataError, match="not among the classes"):
        model.partial_fit(X, labels + 1)
    assert output(model, X) == before
    fitted = SqueakClassifier(max_dictionary=50).fit(X, labels)
    with pytest.warns(FitForgotten):  # which knows its classes
        fitted.partial_fit(X, labels)
    assert list(fitted.classes_) == [0, 1, 2]


def test_components_of_a_stream_are_those_of_all_rows():
    X, _ = made(BATCH * BATCHES)
    settings = {"max_dictionary": 300, "length_scale": 2.0, "standardize": False}
    whole = SqueakPCA(5, **settings).fit(X)
    model = SqueakPCA(5, **settings)
    for part in range(0, len(X), BATCH):
        model.partial_fit(X[part : part + BATCH])
    np.testing.assert_allclose(model.explained_variance_, whole.explained_variance_, rtol=0.02)
    ours, theirs = model.transform(X), whole.transform(X)
    for j in range(3):
        assert abs(np.corrcoef(ours[:, j], theirs[:, j])[0, 1]) > 0.99
    np.testing.assert_allclose(
        model.explained_variance_ratio_, whole.explained_variance_ratio_, rtol=0.02
    )


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


def test_a_model_of_a_stream_is_saved_inspected_and_has_dual_weights(tmp_path):
    X, y = made(900)
    model = SqueakRegressor(max_dictionary=100).partial_fit(X[:500], y[:500])
    model.partial_fit(X[500:], y[500:])
    assert model.report_["partition_rows"] == [500, 400]
    assert model.report_["target_std"] == pytest.approx([y.std()])
    assert model.report_["train_rmse"][0] == pytest.approx(
        np.sqrt(np.mean((y - model.predict(X)) ** 2)), rel=0.05
    )
    model.save(tmp_path / "m.zarr")
    done = CliRunner().invoke(main, ["inspect", str(tmp_path / "m.zarr")])
    assert done.exit_code == 0, done.output
    frame = dd.from_map(lambda rows: pd.DataFrame(X[rows]).assign(y=y[rows]),
                        [slice(0, 500), slice(500, 900)])  # fmt: skip
    model.save_dual_weights(tmp_path / "w.zarr", frame.to_dask_array(lengths=True)[:, :3],
                            frame["y"].to_dask_array(lengths=True))  # fmt: skip
    weights = load_dual_weights(tmp_path / "w.zarr")
    np.testing.assert_allclose(weights[:, 0], (y - model.predict(X)) / model.mu_, atol=1e-4)
