"""The table of bad inputs × faces: each cell an error of the right class, in time, in one line.

``docs/bad_input.md`` is this table for people; a test compares them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import squeak_dist
from squeak_dist.cli import main
from squeak_dist.errors import (
    ColumnTypeError,
    ConstantTargetError,
    DataError,
    EmptyDataError,
    InfiniteValuesError,
    InvalidKernelError,
    InvalidParameterError,
    LengthMismatchError,
    MissingColumnsError,
    MissingValuesError,
    SqueakError,
)

ROWS = 60
HALF = np.arange(ROWS) % 2 == 0
DOCS = Path(__file__).parents[2] / "docs" / "bad_input.md"


def made():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(ROWS, 3)), columns=list("abc"))
    frame = frame.assign(s=np.where(HALF, "p", "q"), y=np.sin(frame.a) + frame.b)
    return frame.assign(w=rng.uniform(1, 2, ROWS))


F = made()
C = F.assign(y=(F.y > 0) * 1.0)  # labels of two classes
FEATURES = ["a", "b", "c", "s"]
NESTED = pd.Series([[1]] * ROWS)


@dataclass(frozen=True)
class Bad:
    """One bad input.

    ``change`` spoils the table, ``options`` the call of a fit; ``early`` is True where
    it is known before a partition is read. ``predict`` and ``evaluate`` are what these
    faces do with the same table: an error, or "fine" where it does not concern them.
    """

    name: str
    error: type[SqueakError]
    says: str
    change: Any = None
    options: Any = None
    early: bool = False
    predict: Any = "fine"
    evaluate: Any = "fine"

    @property
    def weighted(self) -> bool:
        """Whether it is about weights, which an evaluation takes too."""
        return isinstance(self.options, dict) and "sample_weight" in self.options

    def of(self, face: str) -> Any:
        """What a face does."""
        if face in ("fit", "classes", "features"):
            expected = OTHER_FITS[face].get(self.name, self.error)
            return "fine" if self.options == "unfit" else expected
        if face == "evaluate" and self.weighted:
            return DataError if "all zero" in self.name else self.error
        return getattr(self, face)


def put(**columns):
    return lambda f: f.assign(**{k: v(f) if callable(v) else v for k, v in columns.items()})


def half(value, label):
    return lambda f: f.assign(**{label: np.where(HALF, value, f[label])})


TABLE = [
    Bad(
        "a feature is not there",
        MissingColumnsError,
        "'a'",
        lambda f: f.drop(columns="a"),
        {"features": ["a", "b"]},
        True,
        MissingColumnsError,
        MissingColumnsError,
    ),
    Bad(
        "the target is not there",
        MissingColumnsError,
        "'y'",
        lambda f: f.drop(columns="y"),
        None,
        True,
        "fine",
        MissingColumnsError,
    ),
    Bad(
        "the weights are not there", MissingColumnsError, "'v'", None, {"sample_weight": "v"}, True
    ),
    Bad(
        "a name stands twice",
        DataError,
        "more than once: 'a'",
        lambda f: f.rename(columns={"b": "a"}),
        {"features": ["a", "c"]},
        True,
        MissingColumnsError,
        MissingColumnsError,
    ),
    Bad(
        "no rows",
        EmptyDataError,
        "n_samples=0",
        lambda f: f.iloc[:0],
        None,
        False,
        "fine",
        DataError,
    ),
    Bad("one row", EmptyDataError, "n_samples=1", lambda f: f.iloc[:1]),
    Bad(
        "no columns to learn from",
        DataError,
        "no columns are left",
        lambda f: f[["y"]],
        None,
        True,
        MissingColumnsError,
        MissingColumnsError,
    ),
    Bad(
        "only constant columns",
        DataError,
        "no feature is left",
        put(a=1.0, b=1.0, c=1.0, s="p"),
        {"features": ["a", "b", "c", "s"]},
    ),
    Bad(
        "a feature of complex numbers",
        ColumnTypeError,
        "'a'.*complex",
        put(a=lambda f: f.a + 1j),
        None,
        True,
        ColumnTypeError,
        ColumnTypeError,
    ),
    Bad(
        "a feature of lists",
        ColumnTypeError,
        "'a'.*list",
        put(a=lambda f: NESTED),
        None,
        False,
        ColumnTypeError,
        ColumnTypeError,
    ),
    Bad(
        "a feature of periods",
        ColumnTypeError,
        "'a'.*period",
        put(a=lambda f: pd.Series(pd.period_range("2024", periods=len(f), freq="D"), f.index)),
        None,
        True,
        ColumnTypeError,
        ColumnTypeError,
    ),
    Bad(
        "text where numbers were",
        ColumnTypeError,
        "'a' was numeric",
        put(a="word"),
        "unfit",
        True,
        ColumnTypeError,
        ColumnTypeError,
    ),
    Bad(
        "numbers where text was",
        ColumnTypeError,
        r"'s' was text \(levels 'p', 'q'",
        put(s=7),
        "unfit",
        True,
        ColumnTypeError,
        ColumnTypeError,
    ),
    Bad(
        "dates where numbers were",
        ColumnTypeError,
        "'a' was numeric",
        put(a=pd.Timestamp("2026")),
        "unfit",
        True,
        ColumnTypeError,
        ColumnTypeError,
    ),
    Bad(
        "missing values, missing='raise'",
        MissingValuesError,
        r"'a' \(30 rows\)",
        half(np.nan, "a"),
        None,
        False,
        MissingValuesError,
        MissingValuesError,
    ),
    Bad(
        "infinite values",
        InfiniteValuesError,
        r"'a' \(30 rows\)",
        half(np.inf, "a"),
        None,
        False,
        InfiniteValuesError,
        InfiniteValuesError,
    ),
    Bad(
        "values beyond float64 when squared",
        InfiniteValuesError,
        "too large",
        put(a=lambda f: f.a * 1e300),
        None,
        False,
        InfiniteValuesError,
        InfiniteValuesError,
    ),
    Bad(
        "a target of text",
        ColumnTypeError,
        "the target 'y' is text",
        put(y="word"),
        None,
        True,
        "fine",
        ColumnTypeError,
    ),
    Bad(
        "a target of dates",
        ColumnTypeError,
        "the target 'y' is datetime",
        put(y=pd.Timestamp("2026")),
        None,
        True,
        "fine",
        ColumnTypeError,
    ),
    Bad("a constant target", ConstantTargetError, "constant", put(y=3.0)),
    Bad(
        "a target with missing values, missing='raise'",
        MissingValuesError,
        r"the target \(30 rows\)",
        half(np.nan, "y"),
    ),
    Bad(
        "a target missing throughout",
        EmptyDataError,
        "60 of 60 were dropped",
        put(y=np.nan),
        {"missing": "drop"},
        False,
        "fine",
        DataError,
    ),
    Bad(
        "an infinite target",
        InfiniteValuesError,
        "the target",
        half(np.inf, "y"),
        None,
        False,
        "fine",
        InfiniteValuesError,
    ),
    Bad(
        "a target beyond float64 when squared",
        InfiniteValuesError,
        "too large",
        put(y=lambda f: f.y * 1e300),
        None,
        False,
        "fine",
        InfiniteValuesError,
    ),
    Bad(
        "weights of text",
        ColumnTypeError,
        "sample weight 't' is text",
        put(t="word"),
        {"sample_weight": "t"},
        True,
    ),
    Bad(
        "negative weights",
        InvalidParameterError,
        "negative",
        half(-1.0, "w"),
        {"sample_weight": "w"},
    ),
    Bad(
        "missing weights",
        MissingValuesError,
        "sample weights",
        half(np.nan, "w"),
        {"sample_weight": "w"},
    ),
    Bad(
        "infinite weights",
        InfiniteValuesError,
        "sample weights",
        half(np.inf, "w"),
        {"sample_weight": "w"},
    ),
    Bad(
        "weights that are all zero",
        InvalidParameterError,
        "all sample weights are zero",
        put(w=0.0),
        {"sample_weight": "w"},
    ),
    Bad(
        "the target among the features",
        InvalidParameterError,
        "both a feature and the target",
        None,
        {"features": ["a", "y"]},
        True,
    ),
    Bad(
        "a feature named twice",
        InvalidParameterError,
        "names 'a' 2 times",
        None,
        {"features": ["a", "a"]},
        True,
    ),
    Bad(
        "a parameter out of range",
        InvalidParameterError,
        "gamma must be",
        None,
        {"gamma": -1.0},
        True,
    ),
    Bad("a kernel that is none", InvalidParameterError, "kernel", None, {"kernel": "magic"}, True),
    Bad(
        "a length scale for each of other columns",
        InvalidParameterError,
        "length_scale has 2 values",
        None,
        {"length_scale": [1.0, 2.0]},
    ),
    Bad(
        "a kernel that returns a wrong shape",
        InvalidKernelError,
        "returned shape",
        None,
        {"kernel": "Wrong"},
    ),
    Bad(
        "nothing at the path",
        DataError,
        "nothing found at",
        "nowhere",
        None,
        True,
        DataError,
        DataError,
    ),
    Bad(
        "a file that is no parquet",
        DataError,
        "cannot read .* as parquet",
        "text",
        None,
        True,
        DataError,
        DataError,
    ),
    Bad(
        "a Series",
        ColumnTypeError,
        "Series",
        "series",
        None,
        True,
        ColumnTypeError,
        ColumnTypeError,
    ),
    Bad(
        "nothing",
        ColumnTypeError,
        "NoneType",
        "none",
        None,
        True,
        ColumnTypeError,
        ColumnTypeError,
    ),
    Bad(
        "a target of another length",
        LengthMismatchError,
        "X has 60 rows, but y has 59",
        None,
        "short y",
        True,
        "fine",
        LengthMismatchError,
    ),
]
BY_NAME = {bad.name: bad for bad in TABLE}
# Where a classifier, or a fit without a target, does something else than a regression.
OTHER_FITS: dict[str, dict[str, Any]] = {
    "fit": {},
    "classes": {
        "one row": DataError,  # one class
        "a target of text": DataError,
        "a constant target": DataError,
        "a target beyond float64 when squared": "fine",
    },
    "features": {
        "the target is not there": "fine",
        "no columns to learn from": MissingColumnsError,
        "a target of text": "fine",
        "a target of dates": "fine",
        "a constant target": "fine",
        "a target with missing values, missing='raise'": "fine",
        "a target missing throughout": "fine",
        "an infinite target": "fine",
        "a target beyond float64 when squared": "fine",
        "the target among the features": "fine",
        "a target of another length": "fine",
    },
}
READ_BY_A_CLASSIFIER = {"a target of text", "a target of dates"}  # known when labels are counted
SAYS_A_CLASSIFIER = {
    "one row": "one class is present",
    "a target of text": "one class is present",
    "a target of dates": "Unknown label type.*'y' holds a Timestamp",
    "a constant target": "one class is present",
    "a target with missing values, missing='raise'": r"the target 'y' \(30 of 60 rows\)",
    "a target missing throughout": "none of 60 rows has a label in 'y'",
}


class Wrong:
    def __call__(self, A, B):
        return np.ones((1, 1))

    def diag(self, A):
        return np.ones(len(A))


# --- faces ------------------------------------------------------------------------------------


def spoil(bad, place, table=F):
    """The bad table, or what stands in its place."""
    if bad.change is None:
        return table
    if callable(bad.change):
        return bad.change(table)
    (place / "text.parquet").write_text("no parquet")
    return {
        "nowhere": str(place / "nowhere"),
        "text": str(place / "text.parquet"),
        "series": dd.from_pandas(F.a, npartitions=2),
        "none": None,
    }[bad.change]


def call_of_fit(bad):
    options = {} if bad.options is None or isinstance(bad.options, str) else dict(bad.options)
    if options.get("kernel") == "Wrong":
        options["kernel"] = Wrong()
    own = {k: options.pop(k) for k in ("features", "sample_weight") if k in options}
    return {"target": "y"} | own, options


@pytest.fixture(scope="module")
def model():
    return squeak_dist.fit(F, target="y", features=FEATURES, max_dictionary=20)


@pytest.fixture(scope="module")
def others():
    """A classifier and a transformer, each with what it says of rows."""
    classifier = squeak_dist.SqueakClassifier(max_dictionary=20)
    classifier.fit(C, target="y", features=FEATURES)
    transformer = squeak_dist.SqueakTransformer(max_dictionary=20).fit(F, features=FEATURES)
    return {"classifier": classifier.predict_proba, "transformer": transformer.transform}


def explode(part):
    raise AssertionError("a partition was read")


def in_three(table):
    """The table as a Dask frame, whose objects stay what they are."""
    parts = [table.iloc[:20], table.iloc[20:20], table.iloc[20:]]
    with dask.config.set({"dataframe.convert-string": False}):  # lists would become text
        return dd.from_map(lambda part: part, parts, meta=table.iloc[:0])


def unread(table):
    """The table as a Dask frame whose partitions must not be read."""
    if not isinstance(table, pd.DataFrame):
        return table
    return dd.from_map(explode, range(3), meta=table.iloc[:0])


def assert_told(error, says, call):
    with pytest.raises(error, match=says) as caught:
        call()
    text = str(caught.value)
    assert isinstance(caught.value, SqueakError)
    assert "\n" not in text
    assert 0 < len(text) < 700


def fit_function(table, bad):
    own, options = call_of_fit(bad)
    if bad.options == "short y":
        return squeak_dist.fit(table[["a", "b"]], F.y.iloc[:-1])
    return squeak_dist.fit(table, **own, **options)


def fit_method(table, bad):
    own, options = call_of_fit(bad)
    if bad.options == "short y":
        return squeak_dist.SqueakRegressor().fit(table[["a", "b"]], F.y.iloc[:-1])
    return squeak_dist.SqueakRegressor(**options).fit(table, **own)


def fit_classes(table, bad):
    own, options = call_of_fit(bad)
    if bad.options == "short y":
        return squeak_dist.SqueakClassifier().fit(table[["a", "b"]], C.y.iloc[:-1])
    return squeak_dist.SqueakClassifier(**options).fit(table, **own)


def fit_features(cls):
    def fit(table, bad):
        own, options = call_of_fit(bad)
        del own["target"]
        return cls(**options).fit(table, **({"features": FEATURES} | own))

    return fit


FITS = {"fit()": fit_function, "SqueakRegressor.fit": fit_method}
OTHERS = {
    "SqueakClassifier.fit": ("classes", fit_classes),
    "SqueakTransformer.fit": ("features", fit_features(squeak_dist.SqueakTransformer)),
    "SqueakPCA.fit": ("features", fit_features(squeak_dist.SqueakPCA)),
}
names = [bad.name for bad in TABLE]


@pytest.mark.parametrize("face", FITS)
@pytest.mark.parametrize("cut", ["pandas", "dask"])
@pytest.mark.parametrize("name", [bad.name for bad in TABLE if bad.options != "unfit"])
def test_a_fit_refuses(name, cut, face, tmp_path):
    bad = BY_NAME[name]
    table = spoil(bad, tmp_path)
    if cut == "dask" and isinstance(table, pd.DataFrame):
        if bad.options == "short y":
            pytest.skip("rows of Dask frames are matched by index")
        if table.columns.is_unique:
            table = unread(table) if bad.early else in_three(table)
    assert_told(bad.error, bad.says, lambda: FITS[face](table, bad))


@pytest.mark.parametrize("face", OTHERS)
@pytest.mark.parametrize("cut", ["pandas", "dask"])
@pytest.mark.parametrize("name", [bad.name for bad in TABLE if bad.options != "unfit"])
def test_other_fits_refuse(name, cut, face, tmp_path):
    bad, (kind, fit) = BY_NAME[name], OTHERS[face]
    table, expected = spoil(bad, tmp_path, C), bad.of(kind)
    early = bad.early and expected != "fine"
    early &= not (kind == "classes" and name in READ_BY_A_CLASSIFIER)
    if cut == "dask" and isinstance(table, pd.DataFrame):
        if bad.options == "short y":
            pytest.skip("rows of Dask frames are matched by index")
        if table.columns.is_unique:
            table = unread(table) if early else in_three(table)
    if expected == "fine":
        assert len(fit(table, bad).dictionary_)
    else:
        says = SAYS_A_CLASSIFIER.get(name, bad.says) if kind == "classes" else bad.says
        says = None if kind == "features" and expected is not bad.error else says
        assert_told(expected, says, lambda: fit(table, bad))


@pytest.mark.parametrize("face", ["classifier", "transformer"])
@pytest.mark.parametrize("cut", ["pandas", "dask"])
@pytest.mark.parametrize("name", names)
def test_other_faces_refuse_the_same_rows(name, cut, face, tmp_path, others):
    bad = BY_NAME[name]
    table = spoil(bad, tmp_path)
    if cut == "dask" and isinstance(table, pd.DataFrame) and table.columns.is_unique:
        table = unread(table) if bad.early and bad.predict != "fine" else in_three(table)

    def use():
        found = others[face](table)
        return np.asarray(found.compute() if hasattr(found, "compute") else found)

    if bad.predict == "fine":
        assert np.isfinite(use()).all()
    else:
        assert_told(bad.predict, None, use)


@pytest.mark.parametrize("cut", ["pandas", "dask"])
@pytest.mark.parametrize("name", names)
def test_a_prediction_refuses_what_concerns_it(name, cut, tmp_path, model):
    bad = BY_NAME[name]
    table = spoil(bad, tmp_path)
    if cut == "dask" and isinstance(table, pd.DataFrame) and table.columns.is_unique:
        table = unread(table) if bad.early and bad.predict != "fine" else in_three(table)

    def predict():
        predicted = model.predict(table)
        return np.asarray(predicted.compute() if hasattr(predicted, "compute") else predicted)

    if bad.predict == "fine":
        assert np.isfinite(predict()).all()
    else:
        assert_told(bad.predict, "", predict)


@pytest.mark.parametrize("cut", ["pandas", "dask"])
@pytest.mark.parametrize("name", names)
def test_an_evaluation_refuses_what_concerns_it(name, cut, tmp_path, model):
    bad = BY_NAME[name]
    table = spoil(bad, tmp_path)
    own, _ = call_of_fit(bad)
    weight = own.get("sample_weight")
    y = F.y.iloc[:-1] if bad.options == "short y" else None
    if y is not None and cut == "dask":
        pytest.skip("rows of Dask frames are matched by index")
    expected = bad.of("evaluate")
    if cut == "dask" and isinstance(table, pd.DataFrame) and table.columns.is_unique:
        table = unread(table) if bad.early and expected != "fine" else in_three(table)
    call = lambda: model.evaluate(table, y, weight)  # noqa: E731
    if expected == "fine":
        assert call().rows > 0
    else:
        assert_told(expected, "", call)


# --- the command line -------------------------------------------------------------------------

OPTIONS = {
    "features": "--features",
    "sample_weight": "--sample-weight",
    "missing": "--missing",
    "gamma": "--gamma",
    "kernel": "--kernel",
}
NOT_ON_THE_COMMAND_LINE = {  # there is no option, or no file, for these
    "a name stands twice",
    "a feature of complex numbers",
    "a feature of periods",
    "a Series",
    "nothing",
    "a length scale for each of other columns",
    "a kernel that returns a wrong shape",
    "a target of another length",
}


@pytest.fixture(scope="module")
def saved(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.zarr"
    model.save(path)
    return str(path)


def run(arguments):
    return CliRunner().invoke(main, [*arguments, "--workers", "0", "--quiet"])


@pytest.mark.parametrize("command", ["fit", "predict", "evaluate"])
@pytest.mark.parametrize("name", [name for name in names if name not in NOT_ON_THE_COMMAND_LINE])
def test_the_command_line_says_it_in_one_line(name, command, tmp_path, saved):
    bad = BY_NAME[name]
    table = spoil(bad, tmp_path)
    data = table if isinstance(table, str) else str(tmp_path / "data.parquet")
    if not isinstance(table, str):
        table.to_parquet(data)
    own, options = call_of_fit(bad)
    # On the command line an evaluation takes no weights.
    expected = bad.evaluate if command == "evaluate" else bad.of(command)
    if command == "fit":
        given = [
            f"{OPTIONS[k]}={','.join(v) if k == 'features' else v}"
            for k, v in ({k: v for k, v in own.items() if k != "target"} | options).items()
        ]
        result = run(["fit", data, "--target=y", f"--model={tmp_path / 'm.zarr'}", *given])
    else:
        out = [f"--out={tmp_path / 'out'}"] if command == "predict" else []
        result = run([command, saved, data, *out])
    if expected == "fine":
        assert result.exit_code == 0, result.output
        return
    assert result.exit_code == 2
    assert not isinstance(result.exception, Exception)
    assert result.stdout == ""
    lines = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert len(lines) == 1
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "m.zarr").exists()
    assert not (tmp_path / "out").exists()


# --- the table for people ---------------------------------------------------------------------


def written():
    def cell(expected):
        return "fine" if expected == "fine" else f"`{expected.__name__}`"

    lines = [
        "| bad input | fit | of classes | of features | predict | evaluate | known early |",
        "|---|---|---|---|---|---|---|",
    ]
    for bad in TABLE:
        faces = ("fit", "classes", "features", "predict", "evaluate")
        cells = [cell(bad.of(face)) for face in faces]
        lines.append(f"| {' | '.join([bad.name, *cells, 'yes' if bad.early else 'no'])} |")
    return "\n".join(lines)


def test_the_documentation_has_this_table():
    text = DOCS.read_text(encoding="utf-8")
    assert written() in text, f"put this into {DOCS.name}:\n{written()}"
