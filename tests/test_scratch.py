"""Memory that is lent, and used again."""

import contextlib
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from squeak_dist._scratch import _KEPT, scratch


@pytest.fixture
def alone():
    """Run a function in a thread of its own, which has no memory yet."""
    with ThreadPoolExecutor(1) as thread:
        yield lambda function: thread.submit(function).result()


def address(array):
    return array.__array_interface__["data"][0]


def test_it_has_the_shape_and_the_dtype():
    for shape, dtype in (((3, 5), np.float32), ((0, 4), np.float64), ((7,), np.int64)):
        with scratch(shape, dtype) as array:
            array[...] = 1
            assert (array.shape, array.dtype) == (shape, dtype)
            assert array.flags.c_contiguous


def test_memory_is_used_again_by_what_comes_later_and_not_by_what_is_beside():
    with scratch((300, 100), np.float64) as first, scratch((300, 100), np.float64) as second:
        first[...], second[...] = 1, 2
        assert not np.shares_memory(first, second)
        assert first.sum() == first.size
        known = {address(first), address(second)}
    with scratch((100, 300), np.float64) as third:
        assert address(third) in known


def test_the_smallest_that_is_large_enough_is_taken(alone):
    def borrowed():
        with scratch((1 << 21,), np.uint8) as large, scratch((1 << 12,), np.uint8) as small:
            before = address(small), address(large)
        with scratch((1 << 11,), np.uint8) as a, scratch((1 << 20,), np.uint8) as b:
            return before, (address(a), address(b))

    before, after = alone(borrowed)
    assert after == before


def test_an_error_inside_gives_the_memory_back(alone):
    def borrowed():
        with contextlib.suppress(RuntimeError), scratch((1000,), np.float64) as array:
            known = address(array)
            raise RuntimeError
        with scratch((1000,), np.float64) as array:
            return known, address(array)

    known, after = alone(borrowed)
    assert after == known


def test_no_more_than_a_limit_is_kept(alone):
    def borrowed():
        before = tracemalloc.get_traced_memory()[0]
        for size in (_KEPT // 3, _KEPT // 2, _KEPT - 1, 2 * _KEPT):
            with scratch((size,), np.uint8), scratch((size // 2,), np.uint8):
                pass
        return tracemalloc.get_traced_memory()[0] - before

    tracemalloc.start()
    try:
        assert alone(borrowed) <= _KEPT + 100_000
    finally:
        tracemalloc.stop()


def test_each_thread_has_its_own(alone):
    def borrowed():
        with scratch((5000,), np.float64) as array:
            return address(array)

    known = alone(borrowed)
    assert borrowed() != known
    assert alone(borrowed) == known
