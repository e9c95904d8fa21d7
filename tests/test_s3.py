"""An S3-compatible server: input, checkpoint and model in buckets, and what fails there."""

from __future__ import annotations

import json
import urllib.request

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from distributed import Client, LocalCluster

import squeak_dist
from squeak_dist.cli import main
from squeak_dist.errors import (
    CheckpointError,
    CheckpointMismatchError,
    CheckpointWarning,
    DataError,
    SqueakError,
    StoreError,
)

s3fs = pytest.importorskip("s3fs")
moto = pytest.importorskip("moto.server")

SETTINGS = {"target": "y", "max_dictionary": 100, "mu": 0.05, "solver": "direct"}
KEYS = {"key": "testing", "secret": "testing"}


class Server:
    """A server on 127.0.0.1 that can go, and come back with all it had."""

    def __init__(self):
        self.port = 0
        self.start()

    def start(self):
        self.running = moto.ThreadedMotoServer("127.0.0.1", self.port, verbose=False)
        self.running.start()
        self.port = self.running.get_host_and_port()[1]

    def stop(self):
        self.running.stop()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def check_keys(self, after):
        """Refuse unknown keys after so many requests."""
        request = urllib.request.Request(
            f"{self.url}/moto-api/reset-auth", str(after).encode(), {"Content-Type": "text/plain"}
        )
        urllib.request.urlopen(request).close()


@pytest.fixture(scope="module")
def server():
    server = Server()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def options(server):
    return KEYS | {"client_kwargs": {"endpoint_url": server.url}}


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(8000, 3))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=len(X))
    return pd.DataFrame(X, columns=list("abc")).assign(y=y)


@pytest.fixture(scope="module")
def bucket(options, frame):
    """A bucket with a table of eight files in it."""
    fs = s3fs.S3FileSystem(**options)
    fs.mkdir("bucket")
    dd.from_pandas(frame, npartitions=8).to_parquet("s3://bucket/table", storage_options=options)
    return fs


@pytest.fixture(scope="module")
def reference(bucket, options):
    return squeak_dist.fit("s3://bucket/table", storage_options=options, **SETTINGS)


@pytest.fixture(scope="module")
def workers(server):
    options = {"threads_per_worker": 1, "dashboard_address": None}
    with (
        LocalCluster(n_workers=2, **options) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture
def environment(server, monkeypatch):
    """What a command line finds its object store by."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": server.url,
    }.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    yield
    s3fs.S3FileSystem.clear_instance_cache()


def same_bits(a, b):
    names = ("points", "indices", "probabilities", "multiplicities")
    first, second = a.model_, b.model_
    return first.coefficients.tobytes() == second.coefficients.tobytes() and all(
        getattr(first.dictionary, n).tobytes() == getattr(second.dictionary, n).tobytes()
        for n in names
    )


def fit(options, checkpoint, data="s3://bucket/table", **more):
    return squeak_dist.fit(
        data, storage_options=options, checkpoint=checkpoint, checkpoint_options=options,
        **(SETTINGS | more),
    )  # fmt: skip


@pytest.mark.cluster
def test_input_checkpoint_and_model_in_buckets(bucket, options, reference, workers):
    path, totals = "s3://bucket/runs/checkpoint", {}
    model = fit(options, path, client=workers)
    assert same_bits(model, reference)
    keys = {key.removeprefix("bucket/runs/checkpoint/") for key in bucket.find(path)}
    kinds = {key.rpartition("-")[0] for key in keys}
    assert "manifest.json" in keys
    assert kinds == {
        "",
        "values/tune_task",
        "values/merge_profiles",
        "values/merge_task",
        "values/solve_task",
    }
    again = fit(options, path, client=workers, progress=lambda s, d, n: totals.update({s: n}))
    assert same_bits(again, reference)
    assert totals["dictionary"] == totals["solve"] == 1
    model.save("s3://bucket/model.zarr", storage_options=options)
    loaded = squeak_dist.load("s3://bucket/model.zarr", storage_options=options)
    assert same_bits(loaded, reference)
    squeak_dist.remove_checkpoint(path, storage_options=options)
    assert bucket.find(path) == []


@pytest.mark.cluster
def test_a_dask_frame_of_a_bucket_goes_on_from_a_checkpoint(bucket, options, reference, workers):
    def collection():
        return dd.read_parquet("s3://bucket/table", storage_options=options)

    for _ in range(2):
        model = squeak_dist.fit(
            collection(), checkpoint="s3://bucket/frames", checkpoint_options=options,
            client=workers, **SETTINGS,
        )  # fmt: skip
        assert same_bits(model, reference)


def test_a_changed_object_is_refused_before_any_work(bucket, options):
    bucket.copy("bucket/table", "bucket/other", recursive=True)
    fit(options, "s3://bucket/etags", data="s3://bucket/other")
    bucket.copy("bucket/other/part.0.parquet", "bucket/other/part.1.parquet")
    with pytest.raises(CheckpointMismatchError, match=r"part\.1\.parquet: .*ETag .* → .*ETag"):
        fit(options, "s3://bucket/etags", data="s3://bucket/other", progress=lambda *a: 1 / 0)


def test_a_damaged_object_is_computed_again(bucket, options, reference):
    fit(options, "s3://bucket/damaged")
    [key] = [k for k in bucket.find("bucket/damaged") if "/solve_task" in k]
    bucket.pipe_file(key, bucket.cat_file(key)[:500])
    with pytest.warns(CheckpointWarning, match="solve_task"):
        assert same_bits(fit(options, "s3://bucket/damaged"), reference)


def test_a_large_value_is_one_object_written_in_parts(bucket, options):
    vault = squeak_dist.checkpoint.Vault("s3://bucket/large", options)
    value = np.random.default_rng(0).normal(size=(2500, 2500))  # 50 MB: a multipart upload
    vault.write("large-1", value)
    assert [k.rpartition("/")[2] for k in bucket.find("bucket/large")] == ["large-1.zarr.zip"]
    assert np.array_equal(vault.read("large-1"), value)


@pytest.mark.parametrize("where", ["input", "checkpoint", "model"])
def test_a_missing_bucket_is_a_clear_error(bucket, options, frame, reference, where):
    if where == "input":
        with pytest.raises(DataError, match=r"nosuchbucket"):
            fit(options, "s3://bucket/unused", data="s3://nosuchbucket/table")
    elif where == "checkpoint":
        with pytest.raises(CheckpointError, match=r"s3://nosuchbucket/checkpoint"):
            fit(options, "s3://nosuchbucket/checkpoint", progress=lambda *a: 1 / 0)
    else:
        with pytest.raises(StoreError, match=r"s3://nosuchbucket/model"):
            reference.save("s3://nosuchbucket/model.zarr", storage_options=options)


@pytest.mark.parametrize("where", ["input", "checkpoint", "model"])
def test_wrong_keys_are_a_clear_error(bucket, options, server, frame, reference, where):
    wrong = options | {"key": "nobody", "secret": "knows"}
    attempts = {
        "input": lambda: fit(wrong, None),
        "checkpoint": lambda: squeak_dist.fit(
            frame, checkpoint="s3://bucket/ck", checkpoint_options=wrong, **SETTINGS
        ),
        "model": lambda: reference.save("s3://bucket/model.zarr", storage_options=wrong),
    }
    server.check_keys(0)
    try:
        with pytest.raises(SqueakError, match=r"(?i)access key|forbidden|denied|invalid"):
            attempts[where]()
    finally:
        server.check_keys("inf")


@pytest.mark.cluster
@pytest.mark.parametrize("where", ["input", pytest.param("checkpoint", marks=pytest.mark.slow)])
def test_a_server_that_goes_in_mid_fit_and_comes_back(
    bucket, options, server, frame, reference, workers, tmp_path, where
):
    stage = {"input": "profile", "checkpoint": "dictionary"}[where]
    dd.from_pandas(frame, npartitions=8).to_parquet(tmp_path / "table")
    data = "s3://bucket/table" if where == "input" else str(tmp_path / "table")
    checkpoint = f"s3://bucket/gone-{where}"
    gone = []

    def stop(name, done, total):
        if name == stage and not gone:
            gone.append(name)
            server.stop()

    def go_on(progress):
        return squeak_dist.fit(
            data, storage_options=options if where == "input" else None, checkpoint=checkpoint,
            checkpoint_options=options, client=workers, progress=progress, **SETTINGS,
        )  # fmt: skip

    try:
        with pytest.raises(SqueakError, match=r"127\.0\.0\.1|onnect"):
            go_on(stop)
    finally:
        server.start()
    assert gone
    assert same_bits(go_on(None), reference)


# --- the command line -------------------------------------------------------------------------


def run(*arguments):
    return CliRunner().invoke(main, list(map(str, arguments)))


@pytest.mark.cluster
def test_the_command_line_finds_the_store_by_the_environment(bucket, environment, reference):
    command = (
        "fit", "s3://bucket/table", "--target", "y", "--max-dictionary", 100, "--mu", 0.05,
        "--checkpoint", "s3://bucket/cli/checkpoint", "--quiet",
    )  # fmt: skip
    done = run(*command, "--model", "s3://bucket/cli/model.zarr", "--workers", 1)
    assert done.exit_code == 0, done.output
    assert bucket.exists("bucket/cli/checkpoint/manifest.json")
    command += ("--model", "s3://bucket/cli/again.zarr", "--workers", 0, "--remove-checkpoint")
    done = run(*command)
    assert done.exit_code == 0, done.output
    bucket.invalidate_cache()
    assert not bucket.exists("bucket/cli/checkpoint")
    assert same_bits(squeak_dist.load("s3://bucket/cli/again.zarr"), reference)
    shown = run("inspect", "s3://bucket/cli/model.zarr", "--json")
    assert json.loads(shown.stdout)["rows_fitted"] == 8000
    scored = run(
        "evaluate", "s3://bucket/cli/model.zarr", "s3://bucket/table", "--workers", 0, "--json"
    )
    assert scored.exit_code == 0, scored.output


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--checkpoint", "s3://nosuchbucket/ck"), "nosuchbucket"),
        (("--checkpoint", "s3://bucket/table/ck"), "overlaps"),
        (("--checkpoint", "s3://bucket/m.zarr/ck"), "overlaps"),
        (("--checkpoint", "s3://bucket/table2", "--seed", "1"), "--seed: 0 → 1"),
    ],
)
def test_the_command_line_says_in_one_line_what_is_wrong(bucket, environment, more, message):
    command = (
        "fit", "s3://bucket/table", "--target", "y", "--max-dictionary", 60, "--workers", 0,
        "--quiet", "--model", "s3://bucket/m.zarr",
    )  # fmt: skip
    if "--seed" in more:
        assert run(*command, *more[:2]).exit_code == 0
    done = run(*command, "--overwrite", *more)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
