"""Stores: round trips to the bit, atomic replacement, and every way a store can be wrong."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import shutil
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import numpy as np
import pandas as pd
import pytest
import zarr
from fsspec.implementations.memory import MemoryFileSystem

from squeak_dist.calibration import Link
from squeak_dist.classes import Classes
from squeak_dist.dictionary import Dictionary
from squeak_dist.encoded_sample import EncodedSample
from squeak_dist.encoding import FeatureEncoding
from squeak_dist.encoding_rules import make_encoding
from squeak_dist.errors import (
    InvalidKernelError,
    InvalidParameterError,
    SqueakError,
    SqueakWarning,
    StoreCorruptedError,
    StoreError,
    StoreFormatError,
    StoreNotFoundError,
)
from squeak_dist.kernels import RBF, Laplacian, Matern
from squeak_dist.model import FittedModel, packed
from squeak_dist.profile import merge_profiles, profile_table
from squeak_dist.store import (
    FORMAT_VERSION,
    DualWeightsWriter,
    array_checksum,
    create_dual_weights,
    finish_dual_weights,
    load_dual_weights,
    load_model,
    save_model,
    to_plain,
)
from squeak_dist.store.plain import attributes_checksum
from squeak_dist.table import Table

# Nothing that zarr, fsspec or zipfile have to say may reach the user.
pytestmark = pytest.mark.filterwarnings("error")


@dataclass(frozen=True)
class CauchyKernel:
    """A kernel of the user's own."""

    scale: float = 1.0

    def __call__(self, X: Any, Y: Any) -> Any:
        squares = ((X[:, None, :] - Y[None]) ** 2).sum(axis=2)
        return 1 / (1 + squares / self.scale**2)

    def diag(self, X: Any) -> Any:
        return np.ones(len(X))


def make_frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "depth": rng.normal(1000, 3, 60),
            "flag": rng.random(60) < 0.5,
            "constant": 3.5,
            "port": rng.choice(["Brest", "Århus", "大阪"], 60),
            ("wind", 10): np.where(rng.random(60) < 0.2, np.nan, rng.gamma(2, 1, 60)),
            "time": pd.date_range("2024-01-01", periods=60, freq="37h"),
        }
    )


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return make_frame()


@pytest.fixture(scope="module")
def encoding(frame: pd.DataFrame) -> FeatureEncoding:
    halves = [frame[:30], frame[30:]]
    profiles = [
        profile_table(
            Table(half, np.zeros((len(half), 1)), None),
            partition=i,
            missing="impute",
            seed=0,
            sample_rows=20,
        )
        for i, half in enumerate(halves)
    ]
    with pytest.warns(UserWarning, match="constant"):
        return make_encoding(merge_profiles(profiles), standardize=True, missing="impute")


def make_model(encoding: FeatureEncoding, frame: pd.DataFrame, seed: int = 1) -> FittedModel:
    """Return a model of 12 rows of the frame and two outputs, drawn at random."""
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.choice(len(frame), 12, replace=False))
    X, _ = encoding.encode(frame)
    return FittedModel(
        kernel=RBF(tuple(rng.uniform(0.5, 2, X.shape[1]))),
        dictionary=Dictionary(
            points=X[rows],
            indices=rows.astype(np.int64),
            probabilities=rng.uniform(0.1, 1, 12),
            multiplicities=rng.integers(1, 17, 12),
            row_weights=np.ones(12),
            gamma=0.1 + rng.random(),
            qbar=16,
        ),
        coefficients=rng.normal(size=(12, 2)),
        linear_coefficients=rng.normal(size=(X.shape[1] + 1, 2)),
        slopes=rng.normal(size=(X.shape[1] + 1, 2)),
        column_range=np.array([X.min(axis=0), X.max(axis=0)], np.float64),
        noise_variance=rng.uniform(0.1, 1, 2),
        posterior=packed(np.tril(rng.uniform(1, 2, (13 + X.shape[1],) * 2)), "float32"),
        target_mean=np.zeros(2),  # all zeros: a missing chunk must not pass for it
        encoding=encoding,
        target_names=("temperature", "salinité"),
        single_output=False,
        unnamed_features=True,
        mu=1 / 3,
        epsilon=0.3,
        seed=2**70 + 1,
        approximation="projected",
        sample=EncodedSample(X[::7], rng.normal(size=(len(X[::7]), 2)), rng.random(len(X[::7]))),
        report={"task": "regression", "seconds": np.float64(0.1), "steps": ({"m": np.int64(3)},)},
    )


@pytest.fixture(scope="module")
def model(encoding: FeatureEncoding, frame: pd.DataFrame) -> FittedModel:
    return make_model(encoding, frame)


@pytest.fixture(scope="module")
def other(encoding: FeatureEncoding, frame: pd.DataFrame) -> FittedModel:
    return make_model(encoding, frame, seed=2)


@pytest.fixture(autouse=True)
def _empty_memory() -> Iterator[None]:
    _forget()  # what tests of other files left
    yield
    _forget()


def _forget() -> None:
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]
    FlakyFileSystem.reset()


MODEL_ARRAYS = (
    *("coefficients", "linear_coefficients", "slopes", "column_range", "noise_variance"),
    *("posterior", "target_mean"),
)


def arrays_of(model: FittedModel) -> dict[str, Any]:
    names = ("points", "indices", "probabilities", "multiplicities", "row_weights")
    return {
        **{name: getattr(model.dictionary, name) for name in names},
        **{name: getattr(model, name) for name in MODEL_ARRAYS},
        **{f"sample/{name}": getattr(model.sample, name) for name in ("X", "targets", "weights")},
    }


def assert_same_model(loaded: FittedModel, saved: FittedModel, frame: pd.DataFrame) -> None:
    for name, array in arrays_of(saved).items():
        found = arrays_of(loaded)[name]
        assert found.dtype == array.dtype, name
        assert found.shape == array.shape, name
        assert found.tobytes() == array.tobytes(), name
    for name in {f.name for f in fields(FittedModel)} - {
        "dictionary", "encoding", "report", "sample",
    }:  # fmt: skip
        value = getattr(saved, name)
        if not isinstance(value, np.ndarray):
            assert getattr(loaded, name) == value, name
            assert type(getattr(loaded, name)) is type(value), name
    assert (loaded.dictionary.gamma, loaded.dictionary.qbar) == (
        saved.dictionary.gamma,
        saved.dictionary.qbar,
    )
    assert loaded.encoding.labels == saved.encoding.labels
    X, kept = loaded.encoding.encode(frame)
    expected, expected_kept = saved.encoding.encode(frame)
    assert X.tobytes() == expected.tobytes()
    assert X.dtype == expected.dtype
    np.testing.assert_array_equal(kept, expected_kept)
    assert loaded.predict_encoded(X).tobytes() == saved.predict_encoded(expected).tobytes()


def is_same(loaded: FittedModel, saved: FittedModel) -> bool:
    return loaded.coefficients.tobytes() == saved.coefficients.tobytes()


def siblings(directory: Path) -> list[str]:
    return sorted(entry.name for entry in directory.iterdir())


def places(directory: Path) -> dict[str, Any]:
    return {
        "directory": directory / "model.zarr",
        "string with slash": f"{directory}/model.zarr/",
        "new parents": directory / "a" / "b" / "model.zarr",
        "zip": directory / "model.zarr.zip",
        "zip in new parents": directory / "a" / "b" / "model.zarr.zip",
        "memory": "memory://bucket/a[1]/model*.zarr",
        "file URL": f"file://{directory}/model.zarr",
        "zip by URL": f"file://{directory}/model.zarr.zip",
    }


PLACES = list(places(Path()))


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("place", PLACES)
def test_round_trip_has_the_same_bits(model, other, frame, tmp_path, place, zarr_format):
    path = places(tmp_path)[place]
    save_model(other, path, zarr_format=zarr_format)
    save_model(model, path, zarr_format=zarr_format)  # replaces
    assert_same_model(load_model(path), model, frame)
    if place != "memory":
        folder = tmp_path / "a" / "b" if "new" in place else tmp_path
        assert len(siblings(folder)) == 1, "temporaries are left"
    roots = {name.split("/")[3] for name in MemoryFileSystem.store}
    assert roots == ({"model*.zarr"} if place == "memory" else set())


def test_relative_path_and_link(model, other, frame, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_model(other, "real.zarr")
    os.symlink("real.zarr", "link.zarr")
    save_model(model, "link.zarr")
    assert os.path.islink("link.zarr")
    assert_same_model(load_model("real.zarr"), model, frame)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_zarr_alone_reads_and_predicts(model, frame, tmp_path, zarr_format):
    save_model(model, tmp_path / "model.zarr", zarr_format=zarr_format)
    root = zarr.open_group(tmp_path / "model.zarr", mode="r")
    attributes = dict(root.attrs)
    json.loads(json.dumps(attributes, allow_nan=False))
    assert root.metadata.zarr_format == zarr_format
    assert attributes["format"] == "squeak_dist-model"
    assert attributes["format_version"] == FORMAT_VERSION
    assert attributes["complete"] is True
    assert attributes["kernel"]["name"] == "rbf"
    assert attributes["task"] == "regression"
    assert attributes["classes"] is None
    assert attributes["feature_names"] == list(model.encoding.feature_names)
    assert set(attributes["checksums"]) >= {"coefficients", "encoding/center", "attributes"}

    x, _ = model.encoding.encode(frame)
    scale = np.array(attributes["kernel"]["length_scale"])
    gaps = (x[:, None, :].astype(float) - root["dictionary/points"][...]) / scale
    kernel = np.exp(-0.5 * (gaps**2).sum(axis=2))
    columns = np.ones((len(x), x.shape[1] + 1))
    columns[:, :-1] = np.clip(x, *root["column_range"][...])
    prediction = kernel @ root["coefficients"][...] + columns @ root["slopes"][...]
    prediction += root["target_mean"][...]
    np.testing.assert_allclose(prediction, model.predict_encoded(x), atol=1e-5)


def test_checksum_is_what_the_docstring_says(model, tmp_path):
    import hashlib

    save_model(model, tmp_path / "model.zarr")
    attributes = zarr.open_group(tmp_path / "model.zarr", mode="r").attrs.asdict()
    values = model.coefficients
    expected = hashlib.sha256(b'["<f8", [12, 2]]' + values.astype("<f8").tobytes()).hexdigest()
    assert attributes["checksums"]["coefficients"] == expected
    assert array_checksum(values.astype(">f8")) == expected
    assert array_checksum(np.asfortranarray(values)) == expected
    assert array_checksum(values.reshape(2, 12)) != expected
    assert array_checksum(values.view(np.int64)) != expected


def test_report_becomes_plain(model, tmp_path):
    report = {
        "nan": np.nan,
        "inf": -np.inf,
        "float32": np.float32(0.5),
        "int": np.int8(-3),
        "bool": np.bool_(True),
        "text": np.str_("é"),
        "array": np.array([[1.0, np.nan]]),
        "tuple": (1, (2, "b")),
        "none": None,
        3: {"deep": [np.float64(1e-300)]},
    }
    save_model(replace(model, report=report), tmp_path / "model.zarr")
    assert load_model(tmp_path / "model.zarr").report == {
        "nan": None,
        "inf": None,
        "float32": 0.5,
        "int": -3,
        "bool": True,
        "text": "é",
        "array": [[1.0, None]],
        "tuple": [1, [2, "b"]],
        "none": None,
        "3": {"deep": [1e-300]},
    }


def test_to_plain_gives_pythons_own_types_and_says_where_it_cannot():
    assert type(to_plain(np.float64(1))) is float
    assert type(to_plain(np.bool_(True))) is bool
    assert type(to_plain(np.uint8(1))) is int
    with pytest.raises(StoreError, match=r"report\['stages'\]\[1\]\['when'\] is a set"):
        to_plain({"stages": [0, {"when": {1}}]}, "report")


@pytest.mark.parametrize(
    "classes", [["no", "yes"], [0, 1, 2], [False, True], [0.5, 1.5]], ids=lambda c: type(c[0])
)
def test_task_and_classes_are_root_attributes(model, tmp_path, classes):
    link = Link(1.5, 0.1, tuple(0.1 * k for k in range(len(classes))))
    labels = Classes("kind", tuple(classes), "object", "object", link=link)
    report = {"task": "classification"}
    save_model(replace(model, report=report, classes=labels), tmp_path / "m.zarr")
    attributes = zarr.open_group(tmp_path / "m.zarr", mode="r").attrs
    assert attributes["task"] == "classification"
    assert attributes["classes"] == classes
    assert [type(c) for c in attributes["classes"]] == [type(c) for c in classes]
    assert attributes["labelling"]["link"] == {
        "slope": 1.5, "power": 0.1, "offsets": list(link.offsets),
    }  # fmt: skip
    loaded = load_model(tmp_path / "m.zarr").classes
    assert loaded == labels
    assert [type(c) for c in loaded.labels] == [type(c) for c in classes]


@pytest.mark.parametrize("kernel", [Matern(0.1, nu=2.5), Laplacian((1.0, 2.0, 1e-8))])
def test_builtin_kernels_come_back(model, tmp_path, kernel):
    save_model(replace(model, kernel=kernel), tmp_path / "m.zarr")
    assert load_model(tmp_path / "m.zarr").kernel == kernel
    assert load_model(tmp_path / "m.zarr", kernel=kernel).kernel == kernel
    with pytest.raises(InvalidKernelError, match=r"fitted with the kernel .* kernel= is"):
        load_model(tmp_path / "m.zarr", kernel=RBF(0.1))


def test_custom_kernel_must_be_passed(model, frame, tmp_path):
    custom = replace(model, kernel=CauchyKernel(2.0))
    save_model(custom, tmp_path / "m.zarr")
    with pytest.raises(InvalidKernelError, match=r"CauchyKernel.*load\(path, kernel=\.\.\.\)"):
        load_model(tmp_path / "m.zarr")
    with pytest.raises(InvalidKernelError, match="CauchyKernel"):
        load_model(tmp_path / "m.zarr", kernel=RBF())
    loaded = load_model(tmp_path / "m.zarr", kernel=CauchyKernel(2.0))
    assert_same_model(loaded, custom, frame)


def test_shapes_and_bits_at_the_edges(model, tmp_path):
    """No rows, one output, NaN and -0.0, a big-endian view and a transposed one."""
    empty = model.dictionary.take(np.array([], np.int64))
    odd = replace(
        model,
        dictionary=empty,
        coefficients=np.empty((0, 1)),
        linear_coefficients=np.asfortranarray(np.array([[1.0, 2.0], [3.0, -0.0]])),
        target_mean=np.array([np.nan, 1.0]).astype(">f8"),
    )
    save_model(odd, tmp_path / "m.zarr")
    loaded = load_model(tmp_path / "m.zarr")
    assert loaded.dictionary.points.shape == (0, model.dictionary.points.shape[1])
    assert loaded.coefficients.shape == (0, 1)
    assert loaded.linear_coefficients.tobytes() == odd.linear_coefficients.tobytes()
    assert loaded.target_mean.dtype == np.dtype("f8")
    assert loaded.target_mean.tobytes() == odd.target_mean.astype("f8").tobytes()


def test_arrays_larger_than_a_chunk(model, tmp_path, monkeypatch):
    monkeypatch.setattr("squeak_dist.store.groups._CHUNK_BYTES", 64)
    save_model(model, tmp_path / "m.zarr")
    assert zarr.open_group(tmp_path / "m.zarr", mode="r")["coefficients"].nchunks == 3
    assert is_same(load_model(tmp_path / "m.zarr"), model)


# ------------------------------------------------------------------- failing saves


@pytest.mark.parametrize("place", ["directory", "zip", "memory"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"report": {"a": object()}}, r"report\['a'\] is a object"),
        ({"coefficients": np.full((12, 2), 1.0, dtype=object)}, "'coefficients' has the type obj"),
        ({"coefficients": np.full((12, 2), "x")}, "'coefficients' has the type <U1"),
        ({"coefficients": np.ones((12, 2), complex)}, "'coefficients' has the type complex"),
        ({"target_names": (b"bytes",)}, "'target_names' is not strict JSON"),
        ({"mu": np.inf}, "'mu' is not strict JSON"),
    ],
    ids=["report", "objects", "text", "complex", "bytes", "infinite"],
)
def test_model_that_cannot_be_stored_leaves_the_earlier_one(
    model, tmp_path, place, change, message
):
    path = places(tmp_path)[place]
    save_model(model, path)
    before = siblings(tmp_path), sorted(MemoryFileSystem.store)
    with pytest.raises(StoreError, match=message):
        save_model(replace(model, **change), path)
    assert is_same(load_model(path), model)
    assert (siblings(tmp_path), sorted(MemoryFileSystem.store)) == before


@pytest.mark.parametrize("name", ["model.zarr", "model.zarr.zip"])
def test_full_disk_in_the_middle_leaves_the_earlier_model(model, tmp_path, name):
    resource = pytest.importorskip("resource")
    save_model(model, tmp_path / name)
    big = replace(model, coefficients=np.random.default_rng(0).normal(size=(12, 20_000)))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, hard))  # bytes per file
    try:
        with pytest.raises(StoreError, match="File too large"):
            save_model(big, tmp_path / name)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert is_same(load_model(tmp_path / name), model)
    assert siblings(tmp_path) == [name]


class FlakyFileSystem(MemoryFileSystem):
    """Memory that fails at its n-th change, once or from then on."""

    protocol = "flaky"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    left: ClassVar[int] = sys.maxsize
    forever: ClassVar[bool] = False
    written: ClassVar[list[str]] = []

    @classmethod
    def reset(cls, left: int = sys.maxsize, *, forever: bool = False) -> None:
        cls.left, cls.forever = left, forever

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return super()._strip_protocol(path.rpartition("://")[2])

    def _count(self) -> None:
        cls = type(self)
        cls.left -= 1
        if cls.left == -1 or (cls.left < 0 and cls.forever):
            raise ConnectionResetError("the network is down")

    def pipe_file(self, path: str, *args: Any, **kwargs: Any) -> Any:
        self._count()
        self.written.append(path)
        return super().pipe_file(path, *args, **kwargs)

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> Any:
        self._count()
        self.written.append(path2)
        return super().cp_file(path1, path2, **kwargs)

    def rm_file(self, path: str) -> Any:
        self._count()
        return super().rm_file(path)


class GuardedFileSystem(FlakyFileSystem):
    """The same files, for those who know the word."""

    def __init__(self, *args: Any, password: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if password != "sesame":
            raise PermissionError("wrong password")


fsspec.register_implementation("flaky", FlakyFileSystem, clobber=True)
fsspec.register_implementation("guarded", GuardedFileSystem, clobber=True)


def flaky_roots() -> set[str]:
    return {name.split("/")[1] for name in FlakyFileSystem.store}


@pytest.fixture
def _empty_flaky() -> Iterator[None]:
    FlakyFileSystem.store.clear()
    FlakyFileSystem.written.clear()
    yield
    FlakyFileSystem.store.clear()


def flaky_save(model: FittedModel, left: int, *, forever: bool = False) -> StoreError | None:
    """Save with a failure after ``left`` changes; return what was raised."""
    FlakyFileSystem.reset(left, forever=forever)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "could not remove", SqueakWarning)
            save_model(model, "flaky://model.zarr")
    except StoreError as error:
        return error
    finally:
        FlakyFileSystem.reset()
    return None


@pytest.mark.usefixtures("_empty_flaky")
@pytest.mark.parametrize(("zarr_format", "last"), [(2, ".zattrs"), (3, "zarr.json")])
def test_complete_is_written_last(model, zarr_format, last):
    save_model(model, "flaky://model.zarr", zarr_format=zarr_format)
    written = [name.split("/", 2)[1:] for name in FlakyFileSystem.written]
    files = len(FlakyFileSystem.store)
    assert len(written) == 2 * files
    assert written[files - 1][0].startswith("model.zarr.tmp-")
    assert written[files - 1][1] == last
    assert written[-1] == ["model.zarr", last]


@pytest.mark.usefixtures("_empty_flaky")
def test_one_failure_at_any_moment_leaves_a_whole_model(model, other):
    save_model(model, "flaky://model.zarr")
    changes = 0
    while True:
        error = flaky_save(other, changes)
        if error is None:  # from here on only the clearing up can fail
            break
        assert isinstance(error.__cause__, ConnectionResetError)
        assert is_same(load_model("flaky://model.zarr"), model)
        assert flaky_roots() == {"model.zarr"}, f"temporaries after failure {changes}"
        changes += 1
    assert is_same(load_model("flaky://model.zarr"), other)
    # The new files, the copy aside, the removal of the old ones, the copy into place.
    files = [name for name in FlakyFileSystem.store if name.startswith("/model.zarr/")]
    assert changes == 4 * len(files)


@pytest.mark.usefixtures("_empty_flaky")
def test_network_lost_for_good_leaves_the_earlier_model_somewhere(model, other):
    """At its place, or where the error says."""
    changes = 0
    rescued = 0
    while True:
        FlakyFileSystem.store.clear()
        save_model(model, "flaky://model.zarr")
        error = flaky_save(other, changes, forever=True)
        if error is None:
            break
        _, found, place = str(error).partition("whole at ")
        assert is_same(load_model(place.partition(": move")[0] or "flaky://model.zarr"), model)
        rescued += bool(found)
        changes += 3
    assert 0 < rescued < changes
    assert is_same(load_model("flaky://model.zarr"), other)


@pytest.mark.usefixtures("_empty_flaky")
def test_storage_options_reach_the_file_system(model, other):
    options = {"password": "sesame"}
    for each in (other, model):
        save_model(each, "guarded://model.zarr", storage_options=options)
    assert is_same(load_model("guarded://model.zarr", storage_options=options), model)
    with pytest.raises(StoreError, match=r"cannot load .* PermissionError: wrong password"):
        load_model("guarded://model.zarr")
    with pytest.raises(StoreError, match=r"cannot save to .* PermissionError: wrong password"):
        save_model(other, "guarded://model.zarr", storage_options={"password": "please"})
    path = "guarded://dual.zarr"
    writer = create_dual_weights(path, rows=5, outputs=2, chunk_rows=2, storage_options=options)
    write_rows(pickle.loads(pickle.dumps(writer)), 0, 5)
    finish_dual_weights(path, options)
    np.testing.assert_array_equal(load_dual_weights(path, options), rows_of(0, 5))


def test_new_place_that_cannot_be_made(model, tmp_path):
    (tmp_path / "file").write_text("data")
    for path in (tmp_path / "file" / "model.zarr", tmp_path / ("x" * 300)):
        with pytest.raises(StoreError, match=r"cannot save to .*Error: ") as caught:
            save_model(model, path)
        assert isinstance(caught.value.__cause__, OSError)
    assert siblings(tmp_path) == ["file"]


def test_overwrite_false(model, other, tmp_path):
    for name in ("model.zarr", "model.zarr.zip"):
        save_model(model, tmp_path / name, overwrite=False)
        with pytest.raises(StoreError, match="exists; pass overwrite=True"):
            save_model(other, tmp_path / name, overwrite=False)
        assert is_same(load_model(tmp_path / name), model)


def put_data(path: Path) -> None:
    path.mkdir()
    (path / "table.csv").write_text("1,2")


def put_array(path: Path) -> None:
    zarr.create_array(path, data=np.arange(3.0))


def put_group(path: Path) -> None:
    zarr.open_group(path, mode="w", attributes={"format": "mine"})


def put_old_group(path: Path) -> None:
    zarr.open_group(path, mode="w", zarr_format=2)


def put_file(path: Path) -> None:
    path.write_text("1,2")


def put_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("table.csv", "1,2")


def put_dual_weights(path: Path) -> None:
    create_dual_weights(path, rows=1, outputs=1, chunk_rows=1)


def contents(path: Path) -> dict[str, bytes]:
    files = [path] if path.is_file() else sorted(f for f in path.rglob("*") if f.is_file())
    return {str(file): file.read_bytes() for file in files}


FOREIGN: list[Callable[[Path], None]] = [
    put_data,
    put_array,
    put_group,
    put_old_group,
    put_file,
    put_zip,
    put_dual_weights,
]


@pytest.mark.parametrize("suffix", [".zarr", ".zip"])
@pytest.mark.parametrize("put", FOREIGN)
def test_what_is_not_ours_is_neither_replaced_nor_loaded(model, tmp_path, put, suffix):
    path = tmp_path / f"precious{suffix}"
    put_dual = put is put_dual_weights
    if put_dual and suffix == ".zip":
        pytest.skip("dual weights are never zipped")
    put(path)
    before = contents(path)
    with pytest.raises(StoreFormatError, match="is not a squeak_dist-model store, so it is left"):
        save_model(model, path)
    assert contents(path) == before
    assert siblings(tmp_path) == [path.name]
    with pytest.raises(StoreError, match=r"not a|cannot be read") as caught:
        load_model(path)
    no_zip = put is put_file and suffix == ".zip"
    if put is not put_array:  # of which older versions of zarr say less
        assert type(caught.value) is (StoreCorruptedError if no_zip else StoreFormatError)


def test_directory_of_data_behind_a_url_is_not_replaced(model):
    fs = fsspec.filesystem("memory")
    fs.pipe("/data/table.csv", b"1,2")
    with pytest.raises(StoreFormatError, match="left as it is"):
        save_model(model, "memory://data")
    assert fs.cat("/data/table.csv") == b"1,2"


def test_empty_directory_may_be_used(model, tmp_path):
    (tmp_path / "model.zarr").mkdir()
    save_model(model, tmp_path / "model.zarr")
    assert is_same(load_model(tmp_path / "model.zarr"), model)
    fsspec.filesystem("memory").mkdir("/model.zarr")
    save_model(model, "memory://model.zarr")
    assert is_same(load_model("memory://model.zarr"), model)


# ------------------------------------------------------------------- failing loads


@pytest.fixture
def saved(model: FittedModel, tmp_path: Path) -> Path:
    save_model(model, tmp_path / "model.zarr")
    return tmp_path / "model.zarr"


def edit(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    metadata = json.loads((path / "zarr.json").read_text())
    change(metadata["attributes"])
    (path / "zarr.json").write_text(json.dumps(metadata))


@pytest.mark.parametrize("path", ["nothing.zarr", "nothing.zarr.zip", "a/b/nothing"])
def test_no_such_path(tmp_path, path):
    with pytest.raises(StoreNotFoundError, match="there is no store at"):
        load_model(tmp_path / path)
    with pytest.raises(StoreNotFoundError, match="there is no store at memory://"):
        load_model("memory://nothing")
    with pytest.raises(FileNotFoundError):
        load_model(tmp_path / path)


@pytest.mark.parametrize("url", ["foo://x/model.zarr", "", "/", "memory://", "memory:///"])
def test_url_that_leads_nowhere(model, url):
    with pytest.raises(StoreError, match=r"Protocol not known: foo|names no place"):
        load_model(url)
    with pytest.raises(StoreError, match=r"Protocol not known: foo|names no place"):
        save_model(model, url)


def test_path_of_a_wrong_type(model):
    with pytest.raises(StoreError, match="PathLike"):
        save_model(model, 3)
    with pytest.raises(InvalidParameterError, match="zarr_format must be 2 or 3, got 4"):
        save_model(model, "x", zarr_format=4)


def test_zip_elsewhere_is_refused(model):
    with pytest.raises(StoreError, match="zip file that is not local"):
        save_model(model, "memory://model.zarr.zip")
    assert not MemoryFileSystem.store


def test_missing_package_of_a_protocol_is_named():
    try:
        import s3fs  # noqa: F401
    except ImportError:
        with pytest.raises(StoreError, match="s3fs"):
            load_model("s3://bucket/model.zarr")
    else:
        pytest.skip("s3fs is installed")


def test_incomplete(saved):
    edit(saved, lambda attributes: attributes.pop("complete"))
    with pytest.raises(StoreCorruptedError, match="incomplete"):
        load_model(saved)


def test_newer_format(saved):
    newer = FORMAT_VERSION + 1
    edit(saved, lambda a: a.update(format_version=newer, squeak_dist_version="9.0"))
    with pytest.raises(StoreFormatError, match="upgrade squeak_dist") as caught:
        load_model(saved)
    assert f"format_version {newer}" in str(caught.value)
    assert "9.0" in str(caught.value)
    assert f"reads up to {FORMAT_VERSION}:" in str(caught.value)


def test_a_store_of_format_2_has_no_sample_and_is_read(saved, frame):
    whole = load_model(saved)
    shutil.rmtree(saved / "sample")

    def as_it_was(attributes):
        attributes["format_version"] = 2
        checksums = attributes["checksums"]
        for name in ("X", "targets", "weights"):
            del checksums[f"sample/{name}"]
        del checksums["attributes"]
        bare = {name: value for name, value in attributes.items() if name != "complete"}
        checksums["attributes"] = attributes_checksum(bare)

    edit(saved, as_it_was)
    read = load_model(saved)
    assert read.sample is None
    X, _ = read.encoding.encode(frame)
    assert read.predict_encoded(X).tobytes() == whole.predict_encoded(X).tobytes()


def test_newer_format_may_be_replaced(saved, other):
    edit(saved, lambda attributes: attributes.update(format_version=FORMAT_VERSION + 1))
    save_model(other, saved)
    assert is_same(load_model(saved), other)


@pytest.mark.parametrize(
    "change",
    [
        lambda a: a.update(mu=0.5),
        lambda a: a.update(note="a new attribute"),
        lambda a: a.pop("gamma"),
        lambda a: a.pop("checksums"),
        lambda a: a["checksums"].pop("coefficients"),
        lambda a: a["kernel"].update(name="laplacian"),
        lambda a: a["encoding"]["columns"].reverse(),
        lambda a: a.update(format_version="one"),
        lambda a: a.update(checksums=[1]),
    ],
)
def test_edited_attributes(saved, change):
    edit(saved, change)
    with pytest.raises(StoreCorruptedError):
        load_model(saved)


ARRAYS = [
    "dictionary/points",
    "dictionary/multiplicities",
    "dictionary/row_weights",
    "coefficients",
    "target_mean",
    "encoding/center",
]


def chunk_of(path: Path, name: str) -> Path:
    (chunk,) = (f for f in (path / name / "c").rglob("*") if f.is_file())
    return chunk


@pytest.mark.parametrize("name", ARRAYS)
def test_damaged_arrays_are_named(saved, name):
    chunk = chunk_of(saved, name)
    whole = chunk.read_bytes()
    for damaged in (
        whole[: len(whole) // 2],
        b"",
        whole[:-1],
        whole + b"x" * 5,
        b"x" * len(whole),
    ):
        chunk.write_bytes(damaged)
        with pytest.raises(StoreCorruptedError, match=name):
            load_model(saved)
    chunk.unlink()
    with pytest.raises(StoreCorruptedError, match=f"'{name}'.*checksum"):
        load_model(saved)
    shutil.rmtree(saved / name)
    with pytest.raises(StoreCorruptedError, match=f"'{name}'.*missing"):
        load_model(saved)


def test_values_changed_with_zarr_are_noticed(saved):
    root = zarr.open_group(saved, mode="r+")
    root["coefficients"][3, 1] += 1e-12
    with pytest.raises(StoreCorruptedError, match="'coefficients'"):
        load_model(saved)


def test_array_of_another_type_or_shape_is_noticed(saved, model):
    zarr.create_array(saved / "target_mean", data=np.zeros((1, 2)), overwrite=True)
    with pytest.raises(StoreCorruptedError, match="'target_mean'"):
        load_model(saved)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\xff", '{"zarr_format": 4}'])
@pytest.mark.parametrize("name", ["zarr.json", "coefficients/zarr.json"])
def test_broken_metadata(saved, other, name, text):
    (saved / name).write_bytes(text.encode("latin-1"))
    with pytest.raises((StoreCorruptedError, StoreFormatError)):
        load_model(saved)
    if name == "zarr.json":  # can no longer be told from someone else's data
        with pytest.raises(StoreFormatError, match="remove it yourself"):
            save_model(other, saved)
    else:
        save_model(other, saved)
        assert is_same(load_model(saved), other)


def test_unreadable_file_is_not_called_corrupted(saved):
    """A link to itself fails for every user, root included."""
    chunk = chunk_of(saved, "coefficients")
    chunk.unlink()
    chunk.symlink_to(chunk)
    with pytest.raises(StoreError, match=r"cannot load .*(symbolic links|OSError)") as caught:
        load_model(saved)
    assert not isinstance(caught.value, StoreCorruptedError)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read all")
def test_permission_denied(saved, model):
    saved.chmod(0o000)
    try:
        with pytest.raises(StoreError, match="PermissionError"):
            load_model(saved)
        with pytest.raises(StoreError, match="PermissionError"):
            save_model(model, saved)
    finally:
        saved.chmod(0o755)


def test_damaged_zip(model, other, tmp_path):
    path = tmp_path / "model.zarr.zip"
    save_model(model, path)
    whole = path.read_bytes()
    for damaged in (whole[:-30], whole[:100], b"", b"PK"):
        path.write_bytes(damaged)
        with pytest.raises(StoreCorruptedError, match=r"the list of files .* cannot be read"):
            load_model(path)
        with pytest.raises(StoreFormatError, match="remove it yourself"):
            save_model(other, path)
    middle = whole.index(b"coefficients/c/0/0") + 60
    path.write_bytes(whole[:middle] + b"####" + whole[middle + 4 :])
    with pytest.raises(StoreCorruptedError, match="coefficients'"):
        load_model(path)


def test_every_damaged_byte_gives_our_error_or_the_same_model(model, tmp_path, frame):
    """A seeded sample of single damages over all files of a store."""
    path = tmp_path / "model.zarr"
    save_model(model, path)
    files = sorted(f for f in path.rglob("*") if f.is_file())
    rng = np.random.default_rng(0)
    noticed = 0
    for file in files:
        whole = file.read_bytes()
        for _ in range(4):
            at = int(rng.integers(len(whole)))
            flipped = whole[:at] + bytes([whole[at] ^ (1 << rng.integers(8))]) + whole[at + 1 :]
            file.write_bytes(flipped if rng.random() < 0.7 else whole[:at])
            try:
                assert_same_model(load_model(path), model, frame)
            except SqueakError:
                noticed += 1
        file.write_bytes(whole)
    assert_same_model(load_model(path), model, frame)
    assert noticed > 2 * len(files)


# ------------------------------------------------------------------------ dual weights


def write_rows(writer: DualWeightsWriter, start: int, stop: int) -> None:
    """Write what rows start:stop hold, as a worker does."""
    writer[start:stop] = rows_of(start, stop)


def rows_of(start: int, stop: int) -> Any:
    return np.stack([np.arange(start, stop) * 1.5, np.zeros(stop - start)], axis=1)


@pytest.mark.parametrize("place", ["directory", "memory", "file URL"])
def test_dual_weights_by_threads(tmp_path, place):
    path = places(tmp_path)[place]
    writer = create_dual_weights(
        path, rows=1003, outputs=2, chunk_rows=100, attributes={"mu": np.float64(0.5)}
    )
    assert writer.chunk_rows == 100
    with pytest.raises(StoreCorruptedError, match="incomplete"):
        load_dual_weights(path)
    with ThreadPoolExecutor(4) as pool:
        starts = range(0, 1003, 200)
        list(pool.map(lambda a: write_rows(writer, a, min(a + 200, 1003)), starts))
    finish_dual_weights(path)
    finish_dual_weights(path)  # is harmless
    loaded = load_dual_weights(path)
    assert loaded.dtype == np.float64
    np.testing.assert_array_equal(loaded, rows_of(0, 1003))


def test_dual_weights_by_processes(tmp_path):
    path = tmp_path / "dual.zarr"
    writer = create_dual_weights(path, rows=50, outputs=2, chunk_rows=20, attributes={"seed": 1})
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        list(pool.map(write_rows, [writer] * 3, [0, 20, 40], [20, 40, 50]))
    finish_dual_weights(path)
    np.testing.assert_array_equal(load_dual_weights(path), rows_of(0, 50))
    root = zarr.open_group(path, mode="r")
    assert root.attrs["seed"] == 1
    assert root.attrs["format"] == "squeak_dist-dual_weights"
    assert root["dual_weights"].chunks == (20, 2)


def test_dual_weights_need_every_chunk(tmp_path):
    path = tmp_path / "dual.zarr"
    writer = create_dual_weights(path, rows=50, outputs=2, chunk_rows=20)
    write_rows(writer, 0, 20)
    with pytest.raises(StoreCorruptedError, match="2 of 3 chunks"):
        finish_dual_weights(path)
    write_rows(writer, 20, 50)
    finish_dual_weights(path)
    chunk = path / "dual_weights" / "c" / "1" / "0"
    whole = chunk.read_bytes()
    chunk.write_bytes(whole[:-1])
    with pytest.raises(StoreCorruptedError, match="dual_weights"):
        load_dual_weights(path)
    chunk.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    with pytest.raises(StoreCorruptedError, match="dual_weights"):
        load_dual_weights(path)
    chunk.unlink()
    with pytest.raises(StoreCorruptedError, match="1 of 3 chunks"):
        load_dual_weights(path)


@pytest.mark.parametrize("rows", [(0, 10), (10, 20), (20, 30), (40, 51), (30, 50)])
def test_dual_weights_refuse_parts_of_chunks(tmp_path, rows):
    writer = create_dual_weights(tmp_path / "d.zarr", rows=50, outputs=2, chunk_rows=20)
    with pytest.raises(InvalidParameterError, match="multiples of 20"):
        writer[rows[0] : rows[1]] = rows_of(*rows)
    with pytest.raises(InvalidParameterError, match=r"shape \(20, 2\), got \(20,\)"):
        writer[0:20] = np.zeros(20)
    write_rows(writer, 40, 50)
    write_rows(writer, 0, 40)


def test_dual_weights_replace_only_dual_weights(tmp_path, saved, model):
    with pytest.raises(StoreFormatError, match="left as it is"):
        create_dual_weights(saved, rows=1, outputs=1, chunk_rows=1)
    assert is_same(load_model(saved), model)
    path = tmp_path / "dual.zarr"
    for rows in (50, 30):
        write_rows(create_dual_weights(path, rows=rows, outputs=2, chunk_rows=10), 0, rows)
        finish_dual_weights(path)
    assert load_dual_weights(path).shape == (30, 2)
    with pytest.raises(StoreFormatError, match="not a squeak_dist-dual_weights"):
        load_dual_weights(saved)
    with pytest.raises(StoreNotFoundError):
        finish_dual_weights(tmp_path / "nothing")


def test_dual_weights_parameters(tmp_path):
    shape = {"rows": 5, "outputs": 1, "chunk_rows": 2}
    for name in shape:
        with pytest.raises(InvalidParameterError, match=f"{name} must be at least 1, got 0"):
            create_dual_weights(tmp_path / "d.zarr", **{**shape, name: 0})
    with pytest.raises(InvalidParameterError, match=r"\['complete', 'format'\]"):
        create_dual_weights(tmp_path / "d", **shape, attributes={"format": 1, "complete": True})
    with pytest.raises(StoreError, match="give a directory"):
        create_dual_weights(tmp_path / "d.zip", **shape)
    with pytest.raises(StoreError, match="Protocol not known"):
        create_dual_weights("foo://d", **shape)
    assert siblings(tmp_path) == []
