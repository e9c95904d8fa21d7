"""The view of a fit: what it says of a fit that runs, and where."""

from __future__ import annotations

import io
import json

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import squeak_dist
from squeak_dist.progress import (
    JsonLines,
    Moment,
    ProgressView,
    TaskListener,
    TerminalLine,
    automatic_view,
    short,
)


def table(n=2000):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    return pd.DataFrame(X, columns=list("abc")).assign(y=np.sin(X[:, 0]) + X[:, 1])


def test_a_fit_tells_rows_size_and_stages():
    seen: list[Moment] = []
    view = ProgressView(seen.append)
    assert isinstance(view, TaskListener)
    lazy = dd.from_pandas(table(), npartitions=10)
    model = squeak_dist.fit(lazy, target="y", max_dictionary=80, progress=view)
    assert [m.stage for m in seen if m.over] == ["profile", "tuning", "dictionary", "solve"]
    ends = {moment.stage: moment for moment in seen if moment.over}
    assert ends["profile"].rows == ends["solve"].rows == 2000
    assert ends["dictionary"].size == len(model.dictionary_)
    assert ends["solve"].rows_per_second > 0
    assert ends["solve"].seconds_left == 0


def test_rates_follow_from_the_clock():
    half = Moment("solve", 5, 10, 2.0, 1000, 40)
    assert (half.share, half.rows_per_second, half.seconds_left) == (0.5, 250.0, 2.0)
    assert str(half) == "5/10  250 rows/s  m 40  2 s left"
    assert str(Moment("solve", 10, 10, 3.25)) == "10/10  3.2 s"
    assert Moment("solve", 0, 10, 1.0).seconds_left is None
    assert Moment("none", 0, 0, 0.0).share == 1.0
    assert Moment("profile", 1, 10, 1.0, 300).rows_per_second == 300


@pytest.mark.parametrize(
    ("value", "shown"), [(5.0, "5"), (1234, "1.23k"), (4.5e6, "4.5M"), (2e10, "20G")]
)
def test_short_counts(value, shown):
    assert short(value) == shown


def test_moments_are_shown_seldom_but_ends_always():
    time, seen = [0.0], []
    view = ProgressView(seen.append, clock=lambda: time[0])
    for done in range(101):
        time[0] += 0.01
        view("solve", done, 100)
    assert seen[0].done == 0
    assert seen[-1].done == 100
    assert len(seen) <= 13


def test_a_second_profile_counts_its_rows_anew():
    seen = []
    view = ProgressView(seen.append)
    for _ in range(2):
        view("profile", 0, 1)
        view.task_done({"task": "_profile_task", "profiled": 70})
        view("profile", 1, 1)
    assert seen[-1].rows == 70


def test_lines_of_a_terminal():
    file = io.StringIO()
    line = TerminalLine(file)
    for moment in (
        Moment("profile", 1, 2, 1.0), Moment("profile", 2, 2, 2.0),
        Moment("iteration 1", 3, 3, 1.0), Moment("iteration 2", 3, 3, 1.0),
    ):  # fmt: skip
        line(moment)
    line.close()
    lines = file.getvalue().splitlines()
    assert len([text for text in file.getvalue().split("\n") if text]) == 2
    assert "━" * 10 + "─" * 10 in lines[0] or any("━" * 10 + "─" * 10 in text for text in lines)
    assert "profile" in file.getvalue()


def test_lines_of_json():
    file = io.StringIO()
    JsonLines(file)(Moment("solve", 1, 2, 1.0, 100, 7))
    assert json.loads(file.getvalue()) == {
        "event": "progress", "stage": "solve", "done": 1, "total": 2, "seconds": 1.0,
        "rows_per_second": 50, "dictionary_size": 7, "seconds_left": 1.0,
    }  # fmt: skip


def test_no_view_where_there_is_no_terminal(capsys):
    assert automatic_view() is None
    squeak_dist.fit(table(300), target="y", max_dictionary=20, progress=True)
    assert capsys.readouterr() == ("", "")


NOTEBOOK = """
import numpy as np, pandas as pd, squeak_dist
x = np.linspace(0, 6, 400)
frame = pd.DataFrame({"x": x, "y": np.sin(x)})
model = squeak_dist.fit(frame, target="y", max_dictionary=20, progress=True)
"""


def test_in_a_notebook_the_cell_shows_it():
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(NOTEBOOK)])
    nbclient.NotebookClient(book, timeout=120, kernel_name="python3").execute()
    (shown,) = [o for o in book.cells[0].outputs if o.output_type == "display_data"]
    for stage in ("profile", "dictionary", "solve"):
        assert f"<td>{stage}</td>" in shown.data["text/html"]
    assert "m 20" in shown.data["text/html"] or "m " in shown.data["text/plain"]
