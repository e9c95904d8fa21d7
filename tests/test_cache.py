"""Bytes on disk between processes: found again, never trusted blindly, never needed."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from squeak_dist import kernel_code
from squeak_dist._cache import cached
from squeak_dist.kernel_code import FLOAT32


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "squeak_dist"


class Maker:
    def __init__(self, content=b"made"):
        self.content, self.calls = content, 0

    def __call__(self):
        self.calls += 1
        return self.content


def test_what_was_made_is_found(folder):
    make = Maker()
    assert [cached("a", make), cached("a", make)] == [b"made"] * 2
    assert make.calls == 1
    assert cached("b", Maker(b"other")) == b"other"
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize("damage", [b"", b"short", b"x" * 100])
def test_a_damaged_file_is_made_anew(folder, damage):
    cached("a", Maker())
    [path] = folder.iterdir()
    path.write_bytes(damage)
    make = Maker()
    assert [cached("a", make), cached("a", make)] == [b"made"] * 2
    assert make.calls == 1


def test_without_a_place_it_is_made_each_time(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    make = Maker()
    assert [cached("a", make), cached("a", make)] == [b"made"] * 2
    assert make.calls == 2


def test_a_full_disk_leaves_nothing_behind(folder, monkeypatch):
    def refuse(*_):
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", refuse)
    assert cached("a", Maker()) == b"made"
    assert list(folder.iterdir()) == []


def test_many_at_once(folder):
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: cached("a", Maker(bytes(10_000))), range(40)))
    assert set(found) == {bytes(10_000)}
    assert len(list(folder.iterdir())) == 1


def test_another_process_finds_the_machine_code(folder):
    script = (
        "import numpy as np\n"
        "from squeak_dist import kernel_code\n"
        "made = []\n"
        "make = kernel_code._machine_code\n"
        "kernel_code._machine_code = lambda *args: made.append(1) or make(*args)\n"
        "code = kernel_code.entry_code('matern 5/2', np.dtype(np.float32))\n"
        "X = np.linspace(0, 1, 99, dtype=np.float32).reshape(33, 3)\n"
        "code.fill(X, code.packed(X), out := np.empty((33, 33), np.float32))\n"
        "print(len(made), out.tobytes().hex())"
    )
    first, second = (
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        for _ in range(2)
    )
    assert first.stdout.split()[0] == "1"
    assert second.stdout.split()[0] == "0"
    assert first.stdout.split()[1] == second.stdout.split()[1]


def test_code_for_another_processor_is_other_code(folder):
    here = kernel_code.this_processor()
    kernel_code.code_for("rbf", FLOAT32, here)
    kernel_code.code_for("rbf", FLOAT32, replace(here, lanes=4))
    assert len(list(folder.iterdir())) == 2
