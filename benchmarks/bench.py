"""All benchmarks of speed, as CSV files and docs/benchmarks.md.

python benchmarks/bench.py [--quick] [--only growth,merging]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from output import machine

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
# Title, script, arguments, and those of --quick.
PARTS = {
    "peers": ("Beside scikit-learn", ["--rows", "100000", "--centres", "1000"],
              ["--rows", "20000", "--centres", "300"]),
    "growth": ("Growth with n, d and m", [], ["--quick"]),
    "scaling": ("From one worker process to two", [], ["--quick"]),
    "merging": ("Merges", [], ["--quick"]),
    "throughput": ("Predictions", [], ["--quick"]),
    "graph": ("Graphs and the scheduler", [], ["--quick"]),
}  # fmt: skip
OWN_CSV = {"growth", "scaling", "merging", "throughput"}


def section(name: str, quick: bool, folder: Path) -> str:
    title, full, small = PARTS[name]
    arguments = small if quick else full
    target = ["--csv", str(folder / f"{name}.csv")] if name in OWN_CSV else []
    script = HERE / f"{name}.py"
    done = subprocess.run(
        [sys.executable, str(script), *arguments, *target],
        env=os.environ | {"OMP_NUM_THREADS": "1" if name != "peers" else str(os.cpu_count())},
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    command = " ".join(["python", f"benchmarks/{name}.py", *arguments])
    shown = f"```\n{done.stdout.strip()}\n```" if name == "graph" else done.stdout.strip()
    if name not in OWN_CSV:
        (folder / f"{name}.txt").write_text(done.stdout)
    return f"## {title}\n\n`{command}`\n\n{shown}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--out", type=Path, default=DOCS)
    options = parser.parse_args()
    folder = options.out / "benchmarks"
    folder.mkdir(parents=True, exist_ok=True)
    head = (
        f"# Benchmarks of speed\n\nWritten by `make bench{' QUICK=--quick' * options.quick}`; raw "
        f"numbers in `docs/benchmarks/`. Machine: {machine()}. Each part states the load while it "
        f"ran: wall seconds on a busy machine are good for ratios within a table alone.\n"
    )
    parts = [head]
    for name in options.only.split(","):
        print(name, flush=True)
        parts.append(section(name, options.quick, folder))
        (options.out / "benchmarks.md").write_text("\n".join(parts))


if __name__ == "__main__":
    main()
