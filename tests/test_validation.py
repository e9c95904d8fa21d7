"""Checks before work is submitted: numbers, versions, memory."""

from __future__ import annotations

import copy
from fractions import Fraction

import numpy as np
import pytest
from distributed import Client, LocalCluster

import squeak_dist
from squeak_dist.errors import (
    ClusterError,
    InsufficientMemoryError,
    InvalidParameterError,
    VersionMismatchError,
)
from squeak_dist.validation import (
    check_choice,
    check_integer,
    check_memory,
    check_real,
    check_versions,
)

pytestmark = pytest.mark.filterwarnings("ignore:Port 8787 is already in use")

# --- numbers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0.5, 1, np.float32(0.5), np.int16(1), Fraction(1, 2)])
def test_real_numbers_of_any_type(value):
    result = check_real("x", value, above=0, below=2)
    assert type(result) is float
    assert result == float(value)


@pytest.mark.parametrize(
    "value", [0, -1, 2, np.nan, np.inf, True, np.True_, "1", None, 1j, [1], np.array([1.0])]
)
def test_what_is_no_real_number_in_range(value):
    with pytest.raises(InvalidParameterError, match=r"^x must be a number in \(0, 2\), got") as e:
        check_real("x", value, above=0, below=2, hint=", or none")
    assert repr(value) in str(e.value)
    assert str(e.value).endswith(", or none")
    assert isinstance(e.value, ValueError)


def test_an_open_end_is_said_in_fewer_words():
    with pytest.raises(InvalidParameterError, match=r"^mu must be a number > 0, got -3$"):
        check_real("mu", -3, above=0)


@pytest.mark.parametrize("value", [2, np.int8(2), np.uint64(7)])
def test_integers_of_any_type(value):
    assert type(check_integer("n", value, at_least=2)) is int
    assert check_integer("n", value, at_least=2) == value


@pytest.mark.parametrize("value", [1, 2.0, True, "2", None, np.float64(3), np.nan])
def test_what_is_no_integer_in_range(value):
    with pytest.raises(InvalidParameterError, match=r"^n must be an integer ≥ 2, got"):
        check_integer("n", value, at_least=2)


def test_choices():
    check_choice("c", "a", ("a", True, None))
    check_choice("c", None, ("a", True, None))
    for value in ("b", 1, False, np.array([1, 2]), ["a"]):
        with pytest.raises(InvalidParameterError, match=r"^c must be one of 'a', True, None; got"):
            check_choice("c", value, ("a", True, None))


# --- versions ---------------------------------------------------------------------------------


class FakeClient:
    """Answers as a client does; only so can versions differ in one process."""

    status = "running"

    def __init__(self, versions):
        self.versions = versions

    def get_versions(self, packages):
        assert "squeak_dist" in packages
        return self.versions


@pytest.fixture(scope="module")
def versions():
    """A real answer of a real cluster."""
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        check_versions(client)
        packages = ["squeak_dist", "numpy", "scipy", "pandas", "dask", "distributed"]
        answer = client.get_versions(packages=packages)
    check_versions(FakeClient(answer))
    with pytest.raises(ClusterError, match="closed"):
        check_versions(client)
    return answer


@pytest.mark.parametrize("package", ["squeak_dist", "numpy", "scipy", "pandas", "dask"])
@pytest.mark.parametrize("place", ["scheduler", "worker"])
@pytest.mark.parametrize("found", ["0.0.1", None])
def test_other_versions_are_named(versions, package, place, found):
    doctored = copy.deepcopy(versions)
    address = list(doctored["workers"])[1]
    theirs = doctored["scheduler"] if place == "scheduler" else doctored["workers"][address]
    theirs["packages"][package] = found
    with pytest.raises(VersionMismatchError) as caught:
        check_versions(FakeClient(doctored))
    text = str(caught.value)
    ours = versions["client"]["packages"][package]
    assert f"{package}: client {ours}, {place}" in text
    assert str(found) in text
    assert place == "scheduler" or address in text
    assert "Install the same versions" in text
    assert isinstance(caught.value, RuntimeError)


def test_another_python_is_named(versions):
    doctored = copy.deepcopy(versions)
    doctored["scheduler"]["host"]["python"] = "3.9.1.final.0"
    with pytest.raises(VersionMismatchError, match=r"python: client .*scheduler 3\.9\.1"):
        check_versions(FakeClient(doctored))


def test_many_differences_are_cut_short(versions):
    doctored = copy.deepcopy(versions)
    for worker in doctored["workers"].values():
        worker["packages"] = dict.fromkeys(worker["packages"], "0")
    with pytest.raises(VersionMismatchError) as caught:
        check_versions(FakeClient(doctored))
    assert str(caught.value).count("client") <= 8
    assert "…" in str(caught.value)


def test_other_packages_may_differ(versions):
    doctored = copy.deepcopy(versions)
    doctored["scheduler"]["packages"]["tornado"] = "0.0.1"
    check_versions(FakeClient(doctored))


# --- memory -----------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 4])
def test_memory_is_counted_per_thread(threads):
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=threads, processes=False, memory_limit="2GiB",
            dashboard_address=None,
        ) as cluster,
        Client(cluster) as client,
    ):  # fmt: skip
        share = 2**31 // threads
        check_memory(client, share, "fits")
        with pytest.raises(InsufficientMemoryError) as caught:
            check_memory(client, share + 2**20, "two maps")
    text = str(caught.value)
    assert f"{(share + 2**20) / 2**20:,.0f} MiB (two maps)" in text
    assert f"{share / 2**20:,.0f} MiB per thread" in text
    assert "max_dictionary" in text
    assert isinstance(caught.value, MemoryError)


def test_workers_without_a_limit_take_anything():
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, memory_limit=0,
            dashboard_address=None,
        ) as cluster,
        Client(cluster) as client,
    ):  # fmt: skip
        check_memory(client, 2**60, "anything")


def test_no_workers():
    with (
        LocalCluster(n_workers=0, processes=False, dashboard_address=None) as cluster,
        Client(cluster) as client,
        pytest.raises(ClusterError, match=r"no workers.*wait_for_workers"),
    ):
        check_memory(client, 1, "nothing")


def test_a_mismatch_stops_a_fit_before_anything_runs(versions, monkeypatch):
    doctored = copy.deepcopy(versions)
    doctored["scheduler"]["packages"]["scipy"] = "0.0.1"
    ran = []
    with (
        LocalCluster(n_workers=1, processes=False, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        monkeypatch.setattr(client, "get_versions", lambda packages: doctored)
        with pytest.raises(VersionMismatchError, match="scipy"):
            squeak_dist.fit(
                np.arange(20.0).reshape(10, 2), np.arange(10.0), client=client,
                progress=lambda *event: ran.append(event),
            )  # fmt: skip
    assert ran == []
