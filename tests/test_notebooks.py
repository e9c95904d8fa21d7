"""The notebooks run from a fresh kernel, and show what comes out; what they show is small.

A cell with the tag ``varies`` shows seconds of this machine: it is run and not compared.
"""

from __future__ import annotations

import ast
import re
import runpy
from pathlib import Path

import nbformat
import pytest

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)

pytestmark = pytest.mark.skipif(not NOTEBOOKS, reason="no notebooks here")


def code_cells(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [cell for cell in cells if "skip-execution" not in cell.metadata.get("tags", [])]


def test_there_are_six():
    assert [path.stem[:2] for path in NOTEBOOKS] == [f"0{i}" for i in range(1, 7)]


@each
def test_outputs_are_small_and_of_one_run_without_errors(path):
    assert path.stat().st_size < 300_000
    cells = code_cells(path)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert any(cell.outputs for cell in cells)
    for cell in cells:
        ast.parse(cell.source)
        for output in cell.outputs:
            assert output.output_type != "error"
            assert output.get("name") != "stderr", output.text


@each
def test_nothing_of_the_machine_that_ran_it_is_left(path):
    text = path.read_text(encoding="utf-8")
    for trace in (*(f"/{folder}/" for folder in ("tmp", "home", "root")), "127.0.0.1"):
        assert trace not in text


NUMBER = re.compile(r"[-−]?\d[\d,]*(?:\.\d+)?(?:e[-+]\d+)?")


def shown(cell):
    """What a cell shows as text: printed lines and the plain form of its value."""
    texts = []
    for output in cell.outputs:
        data = output.get("data", {})
        if "image/png" not in data:
            texts.append(output.get("text", data.get("text/plain", "")))
    return "".join(texts)


def difference(kept, now):
    """Return the first difference of two outputs, or None.

    Words are equal; numbers within 5 %, or within 0.002 where they are that small. Another
    processor rounds otherwise, and a row more or less is kept.
    """
    before, after = (NUMBER.sub("#", text).split() for text in (kept, now))
    if before != after:
        return f"{kept!r} has become {now!r}"
    for old, new in zip(NUMBER.findall(kept), NUMBER.findall(now), strict=True):
        if value(new) != pytest.approx(value(old), rel=0.05, abs=0.002):
            return f"{old} has become {new} in {now!r}"
    return None


def value(text):
    return float(text.replace(",", "").replace("−", "-"))


def test_the_comparison_sees_words_and_numbers():
    kept = "866 rows of 278,041\nerror -6.2e-14, RMSE 0.2882"
    assert difference(kept, kept.replace("866", "859").replace("-6.2e-14", "3.1e-14")) is None
    assert "0.2882 has become 0.3126" in difference(kept, kept.replace("0.2882", "0.3126"))
    assert "278,041" in difference(kept, kept.replace("278,041", "278"))
    assert difference(kept, kept.replace("error", "bound"))
    assert difference(kept, kept + " 7")


# Both start worker processes. The others take 75 seconds of a CPU together.
MARKS = {"02_flights": pytest.mark.cluster, "06_cluster": pytest.mark.cluster}


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=MARKS.get(path.stem, ()), id=path.stem) for path in NOTEBOOKS],
)
def test_what_it_shows_comes_out_of_a_fresh_kernel(path):
    pytest.importorskip("matplotlib")
    now = runpy.run_path(str(FOLDER / "run.py"))["executed"](path)
    kept = nbformat.read(path, as_version=4)
    assert len(kept.cells) == len(now.cells)
    for old, new in zip(kept.cells, now.cells, strict=True):
        if old.cell_type == "code" and "varies" not in old.metadata.get("tags", []):
            assert difference(shown(old), shown(new)) is None, old.source
