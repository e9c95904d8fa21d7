"""What tasks and stages report of themselves."""

from __future__ import annotations

import os
import resource
import socket
import sys
import time
from dataclasses import dataclass


@dataclass(frozen=True)
class TaskRecord:
    """What one node of the merge tree did; a chain is a node of level 0.

    Parameters
    ----------
    level, index : int
        Place in the tree.
    rows : int
        Rows of the data that the dictionary stands for.
    size_in, size_out : int
        Rows of the dictionaries before and after.
    gamma : float
        γ after.
    seconds : float
        Time in this node alone.
    worker : str
        Host and process.
    peak_bytes : int, default 0
        Largest memory of that process so far.
    growth : tuple of (rows, size, gamma), default ()
        Of a chain: rows seen, rows held and γ after each of its partitions, before the last
        Shrink; at most 100 of them, evenly spread.
    """

    level: int
    index: int
    rows: int
    size_in: int
    size_out: int
    gamma: float
    seconds: float
    worker: str
    peak_bytes: int = 0
    growth: tuple[tuple[int, int, float], ...] = ()


class Clock:
    """Seconds of each stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, stage: str) -> None:
        """End a stage."""
        now = time.perf_counter()
        self.seconds[stage] = now - self._last
        self._last = now


def peak_memory() -> int:
    """Return the peak resident memory of this process in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def worker_name() -> str:
    """Return host and process of this task."""
    return f"{socket.gethostname()}:{os.getpid()}"
