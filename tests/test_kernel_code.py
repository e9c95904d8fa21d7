"""The machine code of kernel entries: its values, and that bits depend on nothing but the rows."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from squeak_dist import kernel_code
from squeak_dist.kernel_code import (
    FLOAT32,
    FLOAT64,
    code_for,
    entry_code,
    this_processor,
    wide_product,
)
from squeak_dist.kernels import RBF, Laplacian, Matern

RADIAL = ("rbf", "matern 1/2", "matern 3/2", "matern 5/2", "laplacian")
EXACT = {
    "rbf": lambda z: np.exp(z),
    "matern 1/2": lambda z: np.exp(-np.sqrt(z)),
    "matern 3/2": lambda z: (1 + np.sqrt(z)) * np.exp(-np.sqrt(z)),
    "matern 5/2": lambda z: (1 + np.sqrt(z) + z / 3) * np.exp(-np.sqrt(z)),
    "laplacian": lambda z: np.exp(z),
}
each_kernel = pytest.mark.parametrize("radial", RADIAL)
each_dtype = pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64], ids=str)


def rows(n, k, dtype, seed=0):
    return np.random.default_rng([seed, n]).normal(size=(n, k)).astype(dtype)


def sides(radial, n, m, k, dtype):
    """Rows whose products have the sign that the kernel takes."""
    X, Y = np.abs(rows(n, k, dtype)), np.abs(rows(m, k, dtype, seed=1)) / k
    return X, -Y if radial == "rbf" else Y


def filled(code, X, Y, out=None):
    out = np.full((len(X), len(Y)), np.nan, code.dtype) if out is None else out
    code.fill(X, code.packed(Y), out)
    return out


def of(radial, z, dtype):
    """Entries of given z, one a row: z · 1, or the distance of −z from 0."""
    z = np.asarray(z, dtype)[:, None]
    return filled(entry_code(radial, dtype), z, np.full((1, 1), radial != "laplacian", dtype))[
        :, 0
    ]


# --- values -------------------------------------------------------------------------------------


@each_kernel
@each_dtype
def test_values_are_right_to_some_roundings(radial, dtype):
    farthest = 39.0 if dtype == FLOAT32 else 700.0
    distance = np.concatenate([[0.0], np.geomspace(1e-12, farthest, 100_000)])
    z = distance**2 if radial.startswith("matern") else -distance
    z = np.minimum(z, farthest**2).astype(dtype)
    wide = np.longdouble if dtype == FLOAT64 else np.float64
    exact = EXACT[radial](z.astype(wide))
    errors = np.abs(of(radial, z, dtype) - exact) / exact
    # The exponent a log₂e is rounded once or twice, by half a unit of a number as large as it is.
    exponent = np.abs(np.log(exact)).astype(float) + 8
    assert (errors / (np.finfo(dtype).eps * exponent)).max() < 1
    assert of(radial, [0.0], dtype) == 1.0


@each_kernel
@each_dtype
def test_values_beyond_the_farthest_and_behind_zero_are_cut_off(radial, dtype):
    sign = 1 if radial.startswith("matern") else -1
    least, most = of(radial, [sign * 1e30, -sign * 1e-3], dtype)
    assert np.finfo(dtype).tiny < least < 1e-15
    assert most == 1.0 or radial == "laplacian"


@each_kernel
@each_dtype
def test_what_is_no_number_stays_none(radial, dtype):
    code = entry_code(radial, dtype)
    X, Y = sides(radial, 20, 60, 3, dtype)
    X[7, 1] = Y[50, 2] = np.nan
    K = filled(code, X, Y)
    expected = np.zeros((20, 60), bool)
    expected[7], expected[:, 50] = True, True
    assert_array_equal(np.isnan(K), expected)


# --- bits ---------------------------------------------------------------------------------------


@each_kernel
@each_dtype
def test_bits_of_an_entry_are_those_of_its_rows(radial, dtype):
    """In any block, at any place in it, beside whatever rows."""
    code = entry_code(radial, dtype)
    X, Y = sides(radial, 37, 2 * code.width + 5, 9, dtype)
    K = filled(code, X, Y)
    widths = (1, 2, code.width - 1, code.width, code.width + 1, 2 * code.width)
    for n, m in product((1, 7, 8, 9, 16, 23), widths):
        assert_array_equal(filled(code, X[:n], Y[:m]), K[:n, :m])
    order, other = np.random.default_rng(0).permutation(37), np.arange(len(Y))[::-1]
    assert_array_equal(filled(code, X[order], Y[other]), K[np.ix_(order, other)])


@each_kernel
@each_dtype
def test_bits_do_not_depend_on_the_width_of_registers(radial, dtype):
    here = this_processor()
    X, Y = sides(radial, 21, 131, 17, dtype)
    K = filled(entry_code(radial, dtype), X, Y)
    for lanes, count in ((4, 4), (8, 4), (8, 8), (16, 8)):
        other = code_for(radial, dtype, replace(here, lanes=lanes, rows=count))
        assert_array_equal(filled(other, X, Y), K)


@each_kernel
@each_dtype
def test_processors_that_cannot_fuse_round_once_more(radial, dtype):
    X, Y = sides(radial, 21, 131, 17, dtype)
    K = filled(entry_code(radial, dtype), X, Y)
    plain = code_for(radial, dtype, replace(this_processor(), lanes=4, rows=4, fused=False))
    assert np.abs(filled(plain, X, Y) - K).max() < 200 * np.finfo(dtype).eps


@pytest.mark.parametrize("kernel", [RBF(2.0), Matern(2.0, nu=2.5), Laplacian(2.0)])
def test_a_row_alone_has_the_bits_that_it_has_among_others(kernel):
    X, Y = rows(3000, 4, FLOAT32), rows(700, 4, FLOAT32, seed=1)
    K = kernel(X, Y)
    for i in (0, 1, 1023, 1024, 2999):
        assert_array_equal(kernel(X[i : i + 1], Y), K[i : i + 1])


# --- products -----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 3, 4, 5, 50])
@pytest.mark.parametrize("m", [1, 15, 16, 17, 300])
def test_products_are_summed_in_float64(n, m):
    K, C = rows(n, m, FLOAT32), 1e6 * rows(m, 3, FLOAT64)
    product = wide_product(K, C)
    assert product.dtype == FLOAT64
    terms = np.abs(K).astype(np.longdouble) @ np.abs(C)
    exact = K.astype(np.longdouble) @ C
    assert (np.abs(product - exact) / terms).max() < m * np.finfo(np.float64).eps


def test_the_product_of_a_row_does_not_depend_on_the_others():
    K, C = rows(41, 203, FLOAT32), rows(203, 2, FLOAT64)
    whole = wide_product(K, C)
    assert_array_equal(wide_product(K[::-1].copy(), C), whole[::-1])
    for i in range(41):
        assert_array_equal(wide_product(K[i : i + 1], C), whole[i : i + 1])
    assert_array_equal(
        wide_product(K[3:, :190], C[:190]), wide_product(K[3:, :190].copy(), C[:190])
    )
    narrow = kernel_code._multiplication(replace(this_processor(), lanes=4))
    sums, column = np.empty(41), np.ascontiguousarray(C[:, 0])
    narrow(K.ctypes.data, column.ctypes.data, sums.ctypes.data, 41, 203, 203)
    assert_array_equal(sums, whole[:, 0])


@pytest.mark.parametrize("kernel", [RBF(2.0), Matern(2.0), Laplacian(2.0)])
@pytest.mark.parametrize("out_dtype", [FLOAT32, FLOAT64], ids=str)
def test_rows_may_have_any_strides_and_precision(kernel, out_dtype):
    X, Y = rows(50, 4, FLOAT64), rows(70, 4, FLOAT64, seed=1)
    K = kernel.block(X, Y, np.empty((50, 70), out_dtype))
    wide = np.full((100, 8), np.nan)
    wide[::2, ::2] = X
    for left in (np.asfortranarray(X), wide[::2, ::2], X[::-1][::-1]):
        for right in (np.asfortranarray(Y), Y):
            assert_array_equal(kernel.block(left, right, np.empty((50, 70), out_dtype)), K)


# --- places -------------------------------------------------------------------------------------


@each_dtype
def test_out_may_be_a_part_of_something_larger(dtype):
    code = entry_code("rbf", dtype)
    X, Y = sides("rbf", 19, 101, 5, dtype)
    K = filled(code, X, Y)
    for part in (np.s_[3:22, 7:108], np.s_[::2, ::-1], np.s_[::-1, ::3]):
        whole = np.full((60, 400), np.nan, dtype)
        out = whole[part][:19, :101]
        assert_array_equal(filled(code, X, Y, out), K)
        assert np.isnan(whole).sum() == whole.size - K.size


@each_kernel
def test_nothing_is_written_for_no_rows_and_no_features_are_no_distance(radial):
    code = entry_code(radial, FLOAT32)
    for n, m in ((0, 5), (5, 0), (0, 0)):
        assert filled(code, rows(n, 3, FLOAT32), rows(m, 3, FLOAT32)).shape == (n, m)
    assert_array_equal(filled(code, rows(9, 0, FLOAT32), rows(50, 0, FLOAT32)), np.ones((9, 50)))


def test_many_threads_may_ask_for_it_at_once():
    entry_code.cache_clear()
    X, Y = sides("matern 3/2", 200, 500, 6, FLOAT64)
    with ThreadPoolExecutor(8) as pool:
        blocks = list(
            pool.map(lambda _: filled(entry_code("matern 3/2", FLOAT64), X, Y), range(32))
        )
    assert all(block.tobytes() == blocks[0].tobytes() for block in blocks)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_llvm_does_not_stay_in_memory():
    """A Dask worker would count it, and spill rows for it."""
    script = (
        "import numpy as np\n"
        "from squeak_dist.kernel_code import FLOAT32, entry_code\n"
        "code = entry_code('rbf', FLOAT32)\n"
        "resident, mine = 0, False\n"
        "for line in open('/proc/self/smaps'):\n"
        "    place, access = line.split()[:2]\n"
        "    if '-' in place: mine = 'libllvmlite' in line and access == 'r-xp'\n"
        "    if mine and line.startswith('Rss:'): resident += int(line.split()[1])\n"
        "X = np.ones((9, 2), np.float32)\n"
        "code.fill(-X, code.packed(X), out := np.empty((9, 9), np.float32))\n"
        "other = entry_code('laplacian', FLOAT32)\n"
        "print(resident, float(out[0, 0]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    resident, entry = map(float, done.stdout.split())
    assert resident < 12_288  # KiB; 48 MiB of the code when it has run, 23 MiB once it is imported
    assert entry == pytest.approx(np.exp(-2))
