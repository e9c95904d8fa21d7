"""Values of a checkpoint: the same bits back, whole or not at all, damage found."""

from __future__ import annotations

import json
import os
import zipfile
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from squeak_dist.checkpoint import (
    UnusableValueError,
    Vault,
    decode,
    differences,
    encode,
    fingerprint,
)
from squeak_dist.conjugate_gradients import CGState
from squeak_dist.dictionary import empty_dictionary
from squeak_dist.distributed import read_source
from squeak_dist.errors import CheckpointError
from squeak_dist.kernels import RBF
from squeak_dist.profile import profile_table
from squeak_dist.squeak import SqueakParameters, SqueakState
from squeak_dist.stages.dictionaries import Branch
from squeak_dist.stages.records import TaskRecord


def same(a, b) -> bool:
    """Equal to type, bits and memory order."""
    if type(a) is not type(b):
        return False
    if is_dataclass(a):
        return all(same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a) if f.init)
    if isinstance(a, np.ndarray):
        if a.dtype == object:
            return a.tolist() == b.tolist()
        order = a.flags.c_contiguous == b.flags.c_contiguous
        return (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes()) and order
    if isinstance(a, np.generic):
        return a.tobytes() == b.tobytes()
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return same(list(a.items()), list(b.items()))
    return a == b or (a != a and b != b)


def round_trip(value):
    tree, arrays = encode(value)
    return decode(json.loads(json.dumps(tree, allow_nan=False)), arrays)


numbers = st.one_of(
    st.floats(width=64), st.integers(), st.booleans(), st.none(), st.text(max_size=5)
)
arrays = hnp.arrays(
    st.sampled_from(["<f8", "<f4", "<i8", "u1", "?"]), hnp.array_shapes(min_dims=0, max_dims=3)
)
scalars = arrays.filter(lambda a: a.size).map(lambda a: a.ravel()[0])
values = st.recursive(
    st.one_of(numbers, arrays, scalars),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.one_of(st.integers(), st.text(max_size=3)), inner, max_size=3),
    ),
    max_leaves=8,
)


@given(values)
@settings(max_examples=200, deadline=None)
def test_any_plain_value_comes_back_as_it_was(value):
    assert same(round_trip(value), value)


def branch(m=7, d=3, seed=0):
    rng = np.random.default_rng(seed)
    empty = empty_dictionary(d, np.dtype(np.float32), 0.5, 16)
    dictionary = type(empty)(
        rng.normal(size=(m, d)).astype(np.float32), np.arange(m), rng.random(m),
        np.ones(m, np.int64), np.ones(m), 0.1 + 0.2, 16,
    )  # fmt: skip
    record = TaskRecord(0, 1, 10, 5, 4, 0.3, 0.1, "here:1")
    return Branch(SqueakState(dictionary, 3, 10, 9), (record,), 1.5, 1 << 30)


def mixed_profile():
    frame = pd.DataFrame(
        {
            "a": [1.0, np.nan, 3.0],
            ("b", 1): ["x", None, "z"],
            3: pd.to_datetime(["2026-01-01", "2026-01-02", None]),
            "y": [1.0, 2.0, 3.0],
        }
    )
    source = read_source(frame, target="y", sample_weight=np.ones(3))
    [table] = (t.compute(scheduler="sync") for t in source.tables)
    return profile_table(table, partition=0, missing="impute", seed=0, sample_rows=10)


def cg_state():
    rng = np.random.default_rng(0)
    blocks = [np.asfortranarray(rng.normal(size=(5, 2))) for _ in range(3)]
    return CGState(*blocks, np.array([1.0, np.inf]), np.array([np.nan, -0.0]))


VALUES = {
    "branch": branch,
    "empty dictionary": lambda: empty_dictionary(4, np.dtype(np.float64), 1.0, 8),
    "profile": mixed_profile,
    "state": cg_state,
    "settings": lambda: (SqueakParameters(gamma=1e-300), RBF((1.0, 2.0))),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_of_a_fit_come_back_to_the_bit(tmp_path, name):
    value = VALUES[name]()
    vault = Vault(str(tmp_path / "new" / "checkpoint"))
    vault.write("value-1", value)
    assert same(vault.read("value-1"), value)
    assert vault.names() == {"value-1"}
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == ["value-1.zarr.zip"]


def test_a_transposed_array_keeps_its_order():
    back = round_trip(np.arange(6.0).reshape(2, 3).T)
    assert back.flags.f_contiguous
    assert not back.flags.c_contiguous


def test_zarr_alone_reads_a_value(tmp_path):
    Vault(str(tmp_path)).write("state-1", cg_state())
    [path] = tmp_path.rglob("*.zip")
    root = zarr.open_group(zarr.storage.ZipStore(path, mode="r"), mode="r")
    assert root.attrs["format"] == "squeak_dist-checkpoint_value"
    assert np.array_equal(root["value/theta"][...], cg_state().theta)


@dataclass(frozen=True)
class Foreign:
    x: int


@pytest.mark.parametrize(
    "value",
    [Foreign(1), object(), len, np.array([1 + 2j]), np.array([object()]), pd.Timestamp(0)],
    ids=["foreign", "object", "function", "complex", "objects", "timestamp"],
)
def test_what_a_checkpoint_cannot_hold_is_refused_by_name(value):
    with pytest.raises(CheckpointError, match=r"value\.0|cannot hold"):
        encode((value,))


@pytest.mark.parametrize("name", ["os:path", "builtins:dict", "squeak_dist.errors:SqueakError"])
def test_a_value_names_dataclasses_of_this_package_only(name):
    with pytest.raises(CheckpointError, match="no dataclass"):
        decode({"dataclass": [name, {}]}, {})


def test_fingerprints_tell_values_apart():
    class Mine:
        def __init__(self, a):
            self.a = a

    same_twice = [1, 1.0, True, "1", (1,), [1], {1: 1}, np.float64(1), np.arange(2), Mine(1)]
    marks = [fingerprint(v) for v in same_twice]
    assert len(set(marks)) == len(marks)
    assert marks == [fingerprint(v) for v in same_twice]
    assert fingerprint(Mine(1)) == fingerprint(Mine(1)) != fingerprint(Mine(2))
    assert fingerprint(np.arange(2)) != fingerprint(np.arange(2.0)) != fingerprint(-np.arange(2.0))
    with pytest.raises(CheckpointError):
        fingerprint(Mine(lambda x: x))


def test_differences_are_named():
    a = branch()
    b = Branch(SqueakState(a.dictionary.take(np.arange(6)), 3, 11, 9), a.records, 1.5, 1 << 30)
    lines = differences(a, b, "dictionary")
    assert "dictionary.state.rows_seen: 10 → 11" in lines
    assert any(line.startswith("dictionary.state.dictionary.points: array of") for line in lines)
    assert differences(a, a) == []
    assert differences({"mu": "auto"}, {"mu": 0.1, "x": 1}) == [
        "mu: 'auto' → 0.1", "x: nothing → 1",
    ]  # fmt: skip
    assert differences(1.0, 1.0 + 1e-12) == differences(np.ones(2), np.ones(2) + 1e-12) == []
    assert differences(1, True) == [": 1 → True"]
    assert differences((1, 2), (1, 3), "n") == ["n[1]: 2 → 3"]


# --- damage and interruption ------------------------------------------------------------------


def damaged(path: Path, how: str) -> None:
    data = path.read_bytes()
    if how == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "gone":
        path.unlink()
    elif how == "another value":
        Vault(str(path.parent.parent)).write("other-1", branch(seed=1))
        (path.parent / "other-1.zarr.zip").replace(path)
    else:
        edit(path, how)


def edit(path: Path, what: str) -> None:
    """Change one byte of an array, or the attributes, and mend the zip around it."""
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    if what == "array":
        name = next(n for n in files if "points/c/" in n)
        files[name] = files[name][:-1] + bytes([files[name][-1] ^ 1])
    else:
        files["zarr.json"] = files["zarr.json"].replace(b'"rows_seen": 10', b'"rows_seen": 11')
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)


@pytest.mark.parametrize("how", ["cut", "empty", "gone", "array", "attributes"])
def test_damage_is_found(tmp_path, how):
    vault = Vault(str(tmp_path))
    vault.write("chain-1", branch())
    [path] = tmp_path.rglob("*.zip")
    damaged(path, how)
    with pytest.raises(UnusableValueError) as caught:
        vault.read("chain-1")
    assert caught.value.name == "chain-1"
    assert "chain-1" in str(caught.value)


def test_a_value_under_another_name_is_not_taken(tmp_path):
    vault = Vault(str(tmp_path))
    vault.write("chain-1", branch())
    damaged(tmp_path / "values" / "chain-1.zarr.zip", "another value")
    with pytest.raises(UnusableValueError, match="other-1"):
        vault.read("chain-1")


@pytest.mark.parametrize("where", ["write_group", "replace"])
def test_a_write_that_stops_leaves_what_was_there(tmp_path, monkeypatch, where):
    vault = Vault(str(tmp_path))
    vault.write("chain-1", branch())

    def stop(*args, **kwargs):
        raise OSError(28, "No space left on device")

    if where == "replace":
        monkeypatch.setattr(os, "replace", stop)
    else:
        monkeypatch.setattr("squeak_dist.checkpoint.vault.write_group", stop)
    with pytest.raises(CheckpointError, match=r"cannot write chain-1 .*No space left"):
        vault.write("chain-1", branch(seed=1))
    monkeypatch.undo()
    assert same(vault.read("chain-1"), branch())
    assert len(list(tmp_path.rglob("*.zip*"))) == 1


def test_a_half_written_file_is_no_value(tmp_path):
    vault = Vault(str(tmp_path))
    vault.write("chain-1", branch())
    half = tmp_path / "values" / "chain-2.zarr.zip.tmp-0badcafe"
    half.write_bytes(b"PK")
    assert vault.names() == {"chain-1"}


def test_removing_is_done_once_or_twice(tmp_path):
    for vault in (Vault(str(tmp_path / "a[b]*")), Vault("memory://removing")):
        for name in ("a-1", "b-1"):
            vault.write(name, 1)
        vault.remove(["a-1"])
        vault.remove(["a-1"])
        assert vault.names() == {"b-1"}
        assert vault.read("b-1") == 1
        vault.remove(["b-1"])
