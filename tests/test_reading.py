"""Partitions that a task reads one by one: the next ones are on their way, and no more."""

from __future__ import annotations

import threading
import time
from functools import partial

import numpy as np
import pandas as pd
import pytest

from squeak_dist.distributed.reading import Reading, Unread
from squeak_dist.stages.executors import AHEAD, AHEAD_BYTES
from squeak_dist.table import Table


class Store:
    """A store whose reads take a while; it knows which ran when."""

    def __init__(self, seconds=0.05, nbytes=8):
        self.seconds, self.nbytes = seconds, nbytes
        self.began, self.ended, self.threads = {}, {}, set()

    def read(self, number):
        self.began[number] = time.monotonic()
        self.threads.add(threading.get_ident())
        time.sleep(self.seconds)
        self.ended[number] = time.monotonic()
        return Table(pd.DataFrame(), np.full((self.nbytes // 8, 1), float(number)), None)

    def partitions(self, count):
        return [Unread({f"part-{i}": (partial(self.read, i),)}, f"part-{i}") for i in range(count)]


def numbers(tables, work=lambda place: None):
    found = []
    for place, table in enumerate(tables):
        work(place)
        found.append(int(table.targets[0, 0]))
    return found


def test_the_next_is_read_while_one_is_worked_on():
    store, at_work = Store(nbytes=AHEAD_BYTES), []

    def work(place):
        at_work.append(time.monotonic())
        time.sleep(0.1)

    found = Reading(lambda tables: numbers(tables, work))(store.partitions(5))
    assert found == list(range(5))
    for place in range(4):
        assert store.ended[place + 1] < at_work[place] + 0.1  # there before the work is done


@pytest.mark.parametrize(
    ("nbytes", "most"), [(8, AHEAD), (AHEAD_BYTES // 2 - 4096, 2), (AHEAD_BYTES, 1)]
)
def test_what_is_ahead_is_bounded(nbytes, most):
    store, ahead = Store(0.01, nbytes), []

    def work(place):
        time.sleep(0.1)
        ahead.append(len(store.began) - place - 1)

    count = AHEAD + 4
    assert Reading(lambda tables: numbers(tables, work))(store.partitions(count)) == [
        *range(count)
    ]
    assert max(ahead) == most
    assert ahead[2:-AHEAD] == [most] * len(ahead[2:-AHEAD])


def test_small_partitions_are_waited_for_together():
    store = Store(0.1)
    began = time.monotonic()
    Reading(numbers)(store.partitions(20))
    assert time.monotonic() - began < 20 * 0.1 / 2


def test_one_partition_is_read_by_the_task_itself():
    store = Store()
    one = store.partitions(1)
    assert Reading(numbers)(one) == [0]
    assert Reading(lambda table: int(table.targets[0, 0]))(one[0]) == 0
    assert store.threads == {threading.get_ident()}


def test_an_error_comes_at_its_place_and_nothing_more_is_read():
    store, seen = Store(), []
    partitions = store.partitions(12)

    def refuse():
        raise OSError("gone")

    partitions[2] = Unread({"bad": (refuse,)}, "bad")
    with pytest.raises(OSError, match="gone"):
        Reading(lambda tables: numbers(tables, seen.append))(partitions)
    assert seen == [0, 1]
    begun = len(store.began)
    time.sleep(0.2)
    assert len(store.began) == begun <= 2 + AHEAD
    assert not [t for t in threading.enumerate() if t.name.startswith("squeak_dist-read")]
