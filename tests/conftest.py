"""Fixtures shared by all tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from squeak_dist.linalg import single_blas_thread


@pytest.fixture(scope="session", autouse=True)
def _one_blas_thread() -> Iterator[None]:
    """The same last bits on every machine, and no fight for the cores."""
    with single_blas_thread():
        yield


@pytest.fixture(scope="session")
def uneven_rows() -> Callable[..., np.ndarray]:
    """Rows of very unequal leverage: a dense cluster, a wide cloud, and a few far away."""

    def make(n: int, d: int = 3, seed: int = 0, dtype: type = np.float64) -> np.ndarray:
        rng = np.random.default_rng([seed, n, d])
        spread = rng.choice([0.1, 1.0, 4.0], size=(n, 1), p=[0.8, 0.17, 0.03])
        return (spread * rng.normal(size=(n, d))).astype(dtype)

    return make


@pytest.fixture(scope="session")
def make_certificates(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """Runs deploy/tls/make_certificates.py; returns a new directory of its output."""
    pytest.importorskip("cryptography")
    script = Path(__file__).parents[1] / "deploy" / "tls" / "make_certificates.py"

    def make() -> Path:
        directory = tmp_path_factory.mktemp("tls") / "certs"
        subprocess.run([sys.executable, script, directory], check=True, capture_output=True)
        return directory

    return make


@pytest.fixture(scope="session")
def certificates(make_certificates: Callable[[], Path]) -> Path:
    """Certificates of one cluster: ca/, scheduler/, worker/ and client/."""
    return make_certificates()


@pytest.fixture(scope="session")
def other_certificates(make_certificates: Callable[[], Path]) -> Path:
    """Certificates of another CA."""
    return make_certificates()
