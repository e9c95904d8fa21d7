"""Fits that stop and go on: the same bits, and nothing finished is done again."""

from __future__ import annotations

import itertools
import json
import os
import threading
from collections import Counter
from functools import partial
from pathlib import Path

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import squeak_dist
from squeak_dist.checkpoint import Vault, manifest
from squeak_dist.distributed import read_source
from squeak_dist.distributed.identity import open_for
from squeak_dist.errors import (
    CheckpointError,
    CheckpointMismatchError,
    CheckpointWarning,
    InvalidParameterError,
)
from squeak_dist.kernels import RBF
from squeak_dist.stages import (
    CheckpointExecutor,
    FitParameters,
    PlainExecutor,
    fit_tables,
    iterating,
    planning,
)
from squeak_dist.stages.keeping import KEPT

SIZES = (300, 0, 200, 100, 250, 150, 50, 300, 200, 250)


def table(seed=0, shift=0.0):
    rng = np.random.default_rng(seed)
    n = sum(SIZES)
    frame = pd.DataFrame(rng.normal(size=(n, 3)), columns=list("abc"))
    frame["kind"] = rng.choice(["red", "green"], size=n)
    frame["y"] = np.sin(2 * frame["a"]) + frame["b"] + 0.1 * rng.normal(size=n)
    frame.loc[3, "c"] += shift
    return frame


def pieces(frame):
    edges = np.cumsum((0, *SIZES))
    parts = [frame.iloc[a:b] for a, b in itertools.pairwise(edges)]
    return dd.from_map(lambda i: parts[i], range(len(parts)), meta=frame.iloc[:0])


@pytest.fixture(scope="module")
def collection():
    return pieces(table())


@pytest.fixture(autouse=True)
def short_steps(monkeypatch):
    """Several steps in a chain, as with large partitions."""
    monkeypatch.setattr(planning, "_STEP_ROWS", 100)


class Stopped(Exception):
    """What ends a fit in these tests."""


class Counting(PlainExecutor):
    """Notes the calls that run, and stops before one of them."""

    def __init__(self, stop_before=None):
        self.ran = []
        self.stop_before = stop_before

    def names(self, kind):
        return [name for k, name in self.ran if k == kind]

    def call(self, function, *args):
        if len(self.ran) == self.stop_before:
            raise Stopped
        kind = {"_Keep": "keep", "_Load": "load"}.get(type(function).__name__, "plain")
        self.ran.append((kind, getattr(function, "name", function.__name__)))
        return super().call(function, *args)


def plain_fit(collection, path=None, *, inner=None, **settings):
    source = read_source(collection, target="y")
    parameters = FitParameters(
        **({"max_dictionary": 60, "mu": 0.1, "solver": "direct"} | settings)
    )
    tables = dask.compute(*source.tables, scheduler="sync")
    executor = inner or PlainExecutor()
    if path is not None:
        executor = CheckpointExecutor(
            executor, open_for(source, parameters, Vault(os.fspath(path)))
        )
        tables = executor.tables(tables)
    return fit_tables(
        executor, tables, source.schema, parameters,
        target_names=source.target_names, single_output=True,
    )  # fmt: skip


def contents(model):
    varying = ("seconds", "cg_seconds", "peak_worker_bytes", "peak_bytes", "worker")
    timeless = {k: v for k, v in model.report.items() if k not in varying}
    timeless["merges"] = [
        {k: v for k, v in node.items() if k not in varying} for node in timeless["merges"]
    ]
    parts = (model.dictionary, model.coefficients, model.linear_coefficients, model.mu)
    named = vars(parts[0]) | vars(model.sample)
    arrays = [a.tobytes() for a in (*named.values(), *parts[1:3]) if isinstance(a, np.ndarray)]
    return arrays, parts[3], model.kernel, timeless


SOLVERS = {
    "direct": {},
    "cg": {"solver": "cg"},
    "sketch": {"solver": "cg"},
    "stop": {"on_overrun": "stop", "gamma": 0.01},
}


def make_the_sample_poor(monkeypatch):
    """So that iterations are too slow with it, and a sketch of all rows takes its place."""
    monkeypatch.setattr(iterating, "sample_per_centre", lambda rows, m: 0.2)
    monkeypatch.setattr(iterating, "_MOST_ITERATIONS", 4)
    monkeypatch.setattr(iterating, "_LOOSEST", 2e-3)


# --- every moment at which a fit may stop -----------------------------------------------------


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.filterwarnings("ignore::squeak_dist.errors.FitStopped")
def test_a_fit_stopped_at_any_call_goes_on_to_the_same_bits(
    tmp_path, collection, solver, monkeypatch
):
    settings = SOLVERS[solver]
    if solver == "sketch":
        make_the_sample_poor(monkeypatch)
    whole = Counting()
    reference = contents(plain_fit(collection, inner=whole, **settings))
    undisturbed = Counting()
    kept = plain_fit(collection, tmp_path / "whole", inner=undisturbed, **settings)
    assert contents(kept) == reference
    assert len(undisturbed.ran) <= len(whole.ran)  # an empty partition is not encoded
    assert kept.report["solver"] == ("cg" if solver in ("cg", "sketch") else "direct")
    preconditioner = {"cg": "sample", "sketch": "sketch"}.get(solver)
    assert kept.report["cg_preconditioner"] == preconditioner
    draws = np.random.default_rng(len(solver)).choice(len(undisturbed.ran), 8, replace=False)
    for moment in {0, *map(int, draws), len(undisturbed.ran) - 1}:
        path = tmp_path / f"{moment}"
        first, second = Counting(moment), Counting()
        with pytest.raises(Stopped):
            plain_fit(collection, path, inner=first, **settings)
        finished = Vault(str(path)).names()
        resumed = plain_fit(collection, path, inner=second, **settings)
        assert contents(resumed) == reference, moment
        written, read = set(first.names("keep")), second.names("load")
        assert finished <= written
        assert not written & set(second.names("keep")), moment  # nothing kept is done again
        assert set(read) <= finished
        assert len(read) == len(set(read))
        assert len(second.ran) - len(read) <= len(whole.ran) - len(written)


def test_a_finished_fit_is_read_not_done(tmp_path, collection):
    plain_fit(collection, tmp_path)
    again = Counting()
    plain_fit(collection, tmp_path, inner=again)
    assert [kind for kind, _ in again.ran] == ["load"] * 4  # profile, kernel, dictionary, solution


def test_every_function_that_is_kept_is_met(tmp_path, collection, monkeypatch):
    """The table in stages/keeping names what is really called."""
    ran = []
    for solver, sampler in (
        ("direct", "squeak"), ("cg", "squeak"), ("direct", "uniform"), ("direct", "bless")
    ):  # fmt: skip
        executor, place = Counting(), tmp_path / f"{solver}-{sampler}"
        plain_fit(collection, place, inner=executor, solver=solver, sampler=sampler)
        ran += [name.rpartition("-")[0] for name in executor.names("keep")]
    make_the_sample_poor(monkeypatch)
    executor = Counting()
    plain_fit(collection, tmp_path / "sketch", inner=executor, solver="cg")
    ran += [name.rpartition("-")[0] for name in executor.names("keep")]
    met = {function.__name__.strip("_") for function in KEPT}
    # Of a single partition, the test below; and of more partitions than there are here.
    assert set(ran) == met - {"profile_task", "profile_group"}


def test_what_is_superseded_is_removed(tmp_path, collection):
    plain_fit(collection, tmp_path)
    left = Counter(name.rpartition("-")[0] for name in Vault(str(tmp_path)).names())
    assert left == {"merge_profiles": 1, "tune_task": 1, "merge_task": 1, "solve_task": 1}


def test_one_partition_and_empty_ones(tmp_path):
    frame = table()
    for i, collection in enumerate((frame, dd.from_pandas(frame, npartitions=1))):
        reference = contents(plain_fit(collection))
        for _ in range(2):
            assert contents(plain_fit(collection, tmp_path / f"{i}")) == reference


# --- other data, other parameters -------------------------------------------------------------


def fit(data, path, **more):
    settings = {"target": "y", "max_dictionary": 60, "mu": 0.1, "solver": "direct"}
    with dask.config.set(scheduler="sync"):
        return squeak_dist.fit(data, checkpoint=path, **(settings | more))


class Never:
    """A progress callback that must not be called: no work may be submitted."""

    def __call__(self, *args):
        raise AssertionError("work was submitted")


OTHER = {
    "gamma": (lambda f: f, {"gamma": 2.0}, r"gamma: 'auto' → 2.0"),
    "two": (lambda f: f, {"mu": 0.2, "qbar": 8}, r"mu: 0.1 → 0.2; qbar: 16 → 8"),
    "seed": (lambda f: f, {"random_state": 7}, r"random_state: 0 → 7"),
    "kernel": (lambda f: f, {"kernel": RBF(2.0)}, r"kernel: 'auto' → .*RBF"),
    "a value": (lambda f: f.assign(a=f.a + (f.index == 9)), {}, r"data.pieces.partition 0: "),
    "a type": (lambda f: f.assign(a=f.a.astype("f4")), {}, r"dtypes.a: 'float64' → 'float32'"),
    "a column": (lambda f: f.drop(columns="b"), {}, r"data.features: .*'b'.* → .*'a', 'c'"),
    "the order": (lambda f: f[["b", "a", "c", "kind", "y"]], {}, r"features\[0\]: 'a' → 'b'"),
    "a target": (lambda f: f, {"target": "c"}, r"data.targets\[0\]: 'y' → 'c'"),
    "weights": (lambda f: f, {"sample_weight": "b"}, r"data.sample_weight: None → 'b'"),
    "rows": (lambda f: f[:-1], {}, r"data.pieces.partition 0: "),
}


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    path = tmp_path_factory.mktemp("begun") / "checkpoint"
    fit(table(), path)
    return path


@pytest.mark.parametrize("name", OTHER)
def test_another_fit_is_refused_before_any_work(begun, name):
    change, settings, message = OTHER[name]
    before = {p: p.read_bytes() for p in begun.rglob("*.*")}
    with pytest.raises(CheckpointMismatchError, match=message) as caught:
        fit(change(table()), begun, progress=Never(), **settings)
    assert isinstance(caught.value, ValueError)
    assert {p: p.read_bytes() for p in begun.rglob("*.*")} == before


def test_columns_that_are_not_used_do_not_count(begun):
    wider = table().assign(more=1.0)
    fit(wider, begun, features=["a", "b", "c", "kind"])


def test_equal_parameters_in_other_types_are_the_same(begun):
    fit(table(), begun, mu=np.float64(0.1), max_dictionary=np.int64(60), random_state=np.int32(0))


class Scaled:
    """A kernel of the user's own."""

    def __init__(self, scale):
        self.scale = scale

    def __call__(self, X, Y):
        return self.scale * np.exp(-((X[:, None] - Y[None]) ** 2).sum(-1))

    def diag(self, X):
        return np.full(len(X), self.scale)


def test_kernels_of_ones_own_are_told_apart_by_their_attributes(tmp_path):
    first = fit(table(), tmp_path, kernel=Scaled(1.0), gamma=400.0)
    again = fit(table(), tmp_path, kernel=Scaled(1.0), gamma=400.0)
    assert contents(again.model_)[:2] == contents(first.model_)[:2]
    with pytest.raises(CheckpointMismatchError, match=r"kernel.*1\.0 → 2\.0"):
        fit(table(), tmp_path, kernel=Scaled(2.0), gamma=400.0)
    with pytest.raises(CheckpointError, match=r"kernel.scale is a function"):
        fit(table(), tmp_path / "new", kernel=Scaled(lambda x: x), gamma=400.0)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("seed", [None, np.random.default_rng(0), np.random.RandomState(0)])
def test_a_seed_that_is_drawn_is_refused(tmp_path, seed):
    with pytest.raises(InvalidParameterError, match="integer random_state"):
        fit(table(), tmp_path, random_state=seed)


# --- data that only reading tells apart -------------------------------------------------------


def unnamed(frame):
    """A collection whose partitions Dask names anew each time, as those of dd.read_parquet."""
    parts = [dask.delayed(part) for part in (frame[:500], frame[500:])]
    return dd.from_delayed(parts, meta=frame.iloc[:0])


@pytest.fixture
def frames():
    return table(), table(shift=1e-3)


def test_data_without_a_name_are_compared_by_their_profile(tmp_path, frames):
    same, other = frames
    reference = contents(fit(unnamed(same), tmp_path).model_)
    again = fit(unnamed(same), tmp_path)
    assert contents(again.model_) == reference
    before = {p: p.read_bytes() for p in tmp_path.rglob("*.zip")}
    with pytest.raises(CheckpointMismatchError, match=r"profile.moments.*mean: array"):
        fit(unnamed(other), tmp_path)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*.zip")} == before
    assert contents(fit(unnamed(same), tmp_path).model_) == reference


def test_parquet_frames_go_on_too(tmp_path):
    dd.from_pandas(table(), npartitions=4).to_parquet(tmp_path / "data")
    models = [fit(dd.read_parquet(tmp_path / "data"), tmp_path / "ck") for _ in range(2)]
    assert contents(models[0].model_) == contents(models[1].model_)


@pytest.mark.parametrize("form", ["data", "data/*.parquet", "data/part.0.parquet"])
def test_files_are_told_apart_by_size_and_time(tmp_path, form):
    data = tmp_path / "data"
    dd.from_pandas(table(), npartitions=2).to_parquet(data)
    fit(f"{tmp_path}/{form}", tmp_path / "ck")
    fit(f"{tmp_path}/{form}", tmp_path / "ck", progress=lambda stage, done, total: total == 1)
    os.utime(data / "part.0.parquet", (1, 1))
    with pytest.raises(CheckpointMismatchError, match=r"data.pieces.*part.0.parquet: .*bytes"):
        fit(f"{tmp_path}/{form}", tmp_path / "ck", progress=Never())


# --- places ------------------------------------------------------------------------------------


def test_something_else_is_refused_and_left(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    (tmp_path / "file").write_text("x")
    (tmp_path / "json").mkdir()
    (tmp_path / "json" / "manifest.json").write_text("{}")
    fit(table(), None).save(tmp_path / "model.zarr")
    for name, message in {
        "mine": "holds something that is not a squeak_dist checkpoint .thesis.txt",
        "file": "is a file|Not a directory",
        "json": "not of a squeak_dist checkpoint",
        "model.zarr": "holds something that is not",
    }.items():
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(CheckpointError, match=message):
            fit(table(), tmp_path / name, progress=Never())
        with pytest.raises(CheckpointError, match=f"no checkpoint|{message}"):
            squeak_dist.remove_checkpoint(tmp_path / name)
        assert sorted(tmp_path.rglob("*")) == before


def test_what_is_not_ours_is_not_removed(tmp_path):
    fit(table(), tmp_path / "ck")
    (tmp_path / "ck" / "notes.txt").write_text("mine")
    (tmp_path / "ck" / "values" / "merge-1.zarr.zip.tmp-0badcafe").write_text("half")
    squeak_dist.remove_checkpoint(tmp_path / "ck")
    assert [p.name for p in tmp_path.rglob("*")] == ["ck", "notes.txt"]
    with pytest.raises(CheckpointError, match="no checkpoint"):
        squeak_dist.remove_checkpoint(tmp_path / "ck")


def test_a_removed_checkpoint_leaves_nothing(tmp_path):
    fit(table(), tmp_path / "ck")
    squeak_dist.remove_checkpoint(tmp_path / "ck")
    assert not (tmp_path / "ck").exists()


def test_a_relative_path_is_one_place_for_all(tmp_path, monkeypatch):
    """Workers may have another working directory than the client."""
    monkeypatch.chdir(tmp_path)

    def elsewhere(stage, done, total):
        if stage == "profile":
            os.chdir("/")

    fit(table(), "ck", progress=elsewhere)
    assert {p.name.partition("-")[0] for p in (tmp_path / "ck" / "values").iterdir()} == {
        "chain_step", "solve_task", "profile_task", "tune_task",
    }  # fmt: skip


def test_what_a_start_that_was_killed_left_is_no_hindrance(tmp_path):
    (tmp_path / "manifest.json.tmp-0badcafe").write_text("{")
    fit(table(), tmp_path)


def test_an_unwritable_place_is_an_error_before_any_work(tmp_path):
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file" / "ck", "/proc/ck", "nosuch://x/ck"):
        with pytest.raises(CheckpointError, match="cannot"):
            fit(table(), path, progress=Never())


def test_other_versions_are_refused(tmp_path, monkeypatch):
    fit(table(), tmp_path)
    monkeypatch.setattr(manifest, "__version__", "9.9")
    with pytest.raises(CheckpointMismatchError, match=r"written by squeak_dist .*this is 9\.9"):
        fit(table(), tmp_path, progress=Never())


def test_an_edited_manifest_is_refused(tmp_path):
    fit(table(), tmp_path)
    path = tmp_path / "manifest.json"
    path.write_text(path.read_text().replace('"mu": 0.1', '"mu": 0.2'))
    with pytest.raises(CheckpointError, match="damaged"):
        fit(table(), tmp_path, mu=0.2, progress=Never())


def test_another_environment_is_a_warning(tmp_path, monkeypatch):
    fit(table(), tmp_path)
    monkeypatch.setattr(manifest.np, "__version__", "9.9")
    with pytest.warns(CheckpointWarning, match=r"numpy: '.*' → '9\.9'"):
        fit(table(), tmp_path)


def test_no_secret_is_written(tmp_path):
    fit(table(), tmp_path, checkpoint_options={"auto_mkdir": "s3cret"})
    assert not any(b"s3cret" in p.read_bytes() for p in tmp_path.rglob("*.*") if p.is_file())
    assert json.loads((tmp_path / "manifest.json").read_text())["parameters"]["mu"] == 0.1


# --- damage ------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["cut", "gone while it runs"])
@pytest.mark.parametrize("which", ["merge_profiles", "merge_task", "solve_task"])
def test_a_damaged_value_is_computed_again(tmp_path, collection, which, how, monkeypatch):
    reference = contents(plain_fit(collection, tmp_path))
    [path] = tmp_path.rglob(f"{which}-*")
    if how == "cut":
        path.write_bytes(path.read_bytes()[:1000])
    else:
        names = Vault.names
        listed = []

        def list_then_lose(vault):
            listed.append(names(vault))
            if len(listed) == 1:
                path.unlink()
            return listed[-1]

        monkeypatch.setattr(Vault, "names", list_then_lose)
    with pytest.warns(CheckpointWarning, match=f"computed again: .*{which}"):
        model = plain_fit(collection, tmp_path)
    assert contents(model) == reference
    assert path.exists()
    again = Counting()
    assert contents(plain_fit(collection, tmp_path, inner=again)) == reference
    assert len(again.names("load")) == 4


def test_values_that_the_client_does_not_see_are_a_warning(tmp_path, collection, monkeypatch):
    monkeypatch.setattr(Vault, "names", lambda self: set())
    with pytest.warns(CheckpointWarning, match="not seen by this process"):
        plain_fit(collection, tmp_path)


# --- two at once -------------------------------------------------------------------------------


def test_two_fits_at_once_on_one_checkpoint_are_both_right(tmp_path, collection):
    reference = contents(plain_fit(collection))
    found, errors = [], []

    def run():
        try:
            found.append(contents(plain_fit(collection, tmp_path)))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=partial(run)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert found == [reference] * 3
    assert not list(Path(tmp_path).rglob("*.tmp-*"))
