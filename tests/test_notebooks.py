"""The notebooks run from a fresh kernel, and what they show is small and came from a run."""

from __future__ import annotations

import ast
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


@each
@pytest.mark.slow
def test_it_runs_from_a_fresh_kernel(path):
    pytest.importorskip("matplotlib")
    executed = runpy.run_path(str(FOLDER / "run.py"))["executed"](path)
    assert len(executed.cells) == len(nbformat.read(path, as_version=4).cells)
