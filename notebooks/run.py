"""Run the notebooks from a fresh kernel and keep the outputs: `python notebooks/run.py [NAME…]`.

Each runs in a directory of its own, which is removed. Cells with the tag ``skip-execution``
(they need Docker or S3) are left as they are. Needs the extras `demo` and `test`.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent


def executed(path: Path) -> nbformat.NotebookNode:
    """Return a notebook after all of its cells ran; an error in a cell is an error here."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook,
            timeout=600,
            kernel_name="python3",
            resources={"metadata": {"path": folder}},
            record_timing=False,
        )
        client.execute(
            env=os.environ | {"MPLBACKEND": "module://matplotlib_inline.backend_inline"}
        )
    notebook.metadata["language_info"] = {"name": "python"}  # not the version of this machine
    return notebook


if __name__ == "__main__":
    for path in sorted(HERE.glob("*.ipynb")):
        if len(sys.argv) == 1 or path.stem in sys.argv[1:]:
            began = time.perf_counter()
            nbformat.write(executed(path), path)
            size = path.stat().st_size / 1000
            print(f"{path.name}: {time.perf_counter() - began:.0f} s, {size:.0f} kB", flush=True)
