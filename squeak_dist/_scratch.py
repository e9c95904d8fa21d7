"""Arrays for a while, in memory that is used again."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

_KEPT = 16 << 20  # bytes that a thread keeps for its next arrays


class _Free(threading.local):
    """The memory of this thread that no array is in, the last used at the end."""

    def __init__(self) -> None:
        self.buffers: list[npt.NDArray[np.uint8]] = []


_free = _Free()


@contextmanager
def scratch(shape: tuple[int, ...], dtype: npt.DTypeLike) -> Iterator[npt.NDArray[Any]]:
    """Lend an array of any content, which must not be used after the ``with`` block.

    Parameters
    ----------
    shape : tuple of int
        Of the array.
    dtype : dtype
        Of its numbers.

    Notes
    -----
    Dask's workers give memory back at once, and pages that are fetched anew took a quarter of
    the time of small fits. Up to 16 MiB stay with each thread.
    """
    dtype, buffers = np.dtype(dtype), _free.buffers
    size = math.prod(shape) * dtype.itemsize
    buffer = _taken(buffers, size)
    try:
        yield buffer[:size].view(dtype).reshape(shape)
    finally:
        buffers.append(buffer)
        while sum(one.nbytes for one in buffers) > _KEPT:
            del buffers[0]


def _taken(buffers: list[npt.NDArray[np.uint8]], size: int) -> npt.NDArray[np.uint8]:
    """Return the smallest buffer that is large enough, or a new one."""
    large = [place for place, one in enumerate(buffers) if one.nbytes >= size]
    if not large:
        return np.empty(size, np.uint8)
    return buffers.pop(min(large, key=lambda place: buffers[place].nbytes))
