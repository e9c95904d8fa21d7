"""Tables of benchmarks: CSV with the facts of the machine, and markdown."""

from __future__ import annotations

import argparse
import csv
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil

Rows = list[dict[str, Any]]


def machine() -> str:
    """Return the facts of this machine, now."""
    memory = psutil.virtual_memory().total / 2**30
    return (
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} CPUs, {memory:.0f} GiB, "
        f"Python {platform.python_version()}, numpy {np.__version__}, load "
        f"{os.getloadavg()[0]:.1f}"
    )


def markdown(rows: Rows) -> str:
    """Return rows of equal keys as a table."""
    lines = ["| " + " | ".join(rows[0]) + " |", "|" + "---|" * len(rows[0])]
    lines += ["| " + " | ".join(map(str, row.values())) + " |" for row in rows]
    return "\n".join(lines)


def run(doc: str, measure: Callable[[bool], Rows]) -> None:
    """Measure, print, and write to --csv."""
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    rows = measure(options.quick)
    print(f"{machine()}\n\n{markdown(rows)}", flush=True)
    if options.csv:
        with options.csv.open("w", newline="") as file:
            how = f"{Path(sys.argv[0]).name}{' --quick' * options.quick}"
            file.write(f"# {machine()}; {how}\n")
            writer = csv.DictWriter(file, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)
