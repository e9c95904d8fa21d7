"""All benchmarks of speed, as CSV files and docs/benchmarks.md.

    python benchmarks/bench.py [--quick] [--only growth,merging] [--data FOLDER]

FOLDER has the tables that the peers are compared on beside made rows. Parts that are not run
keep what docs/benchmarks.md says of them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
TABLES = ("etopo20", "uci_kin40k", "uci_protein", "skin")
# Title, arguments, and those of --quick.
PARTS = {
    "peers": ("Beside other programs",
              ["--rows", "100000", "1000000", "--centres", "1000", "2500"],
              ["--rows", "20000", "--centres", "300"]),
    "floor": ("Beside the floor", [], ["--quick"]),
    "blocks": ("Kernel blocks", [], ["--quick"]),
    "hotspots": ("Where the time goes", [], ["--quick"]),
    "growth": ("Growth with n, d and m", [], ["--quick"]),
    "scaling": ("From one worker process to two", [], ["--quick"]),
    "reading": ("Waiting for a slow store", [], ["--quick"]),
    "merging": ("Merges", [], ["--quick"]),
    "throughput": ("Predictions", [], ["--quick"]),
    "graph": ("Graphs and the scheduler", [], ["--quick"]),
}  # fmt: skip
OWN_CSV = {
    *("blocks", "floor", "hotspots", "growth", "scaling", "reading", "merging", "throughput"),
}


def section(name: str, quick: bool, folder: Path, data: Path | None) -> str:
    """Run a part and return what the page says of it."""
    title, full, small = PARTS[name]
    arguments = small if quick else full
    tables = [] if quick or data is None or name != "peers" else TABLES
    files = [str(data / f"{table}.parquet") for table in tables]
    target = ["--csv", str(folder / f"{name}.csv")] if name in OWN_CSV else []
    script = HERE / f"{name}.py"
    done = subprocess.run(
        [sys.executable, str(script), *files, *arguments, *target],
        env=os.environ | {"OMP_NUM_THREADS": "1" if name != "peers" else str(os.cpu_count())},
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    shown_files = [f"{table}.parquet" for table in tables]
    command = " ".join(["python", f"benchmarks/{name}.py", *shown_files, *arguments])
    shown = f"```\n{done.stdout.strip()}\n```" if name == "graph" else done.stdout.strip()
    if name not in OWN_CSV:
        (folder / f"{name}.txt").write_text(done.stdout)
    return f"## {title}\n\n`{command}`\n\n{shown}\n"


def sections(page: Path) -> dict[str, str]:
    """Return the sections of a page as it stands, by title."""
    if not page.exists():
        return {}
    parts = page.read_text().split("\n## ")[1:]
    return {part.partition("\n")[0]: f"## {part.rstrip()}\n" for part in parts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, default=DOCS)
    options = parser.parse_args()
    folder, page = options.out / "benchmarks", options.out / "benchmarks.md"
    folder.mkdir(parents=True, exist_ok=True)
    head = (
        "# Benchmarks of speed\n\nWritten by `make bench`; raw numbers in `docs/benchmarks/`. "
        "Each part states the machine and the load while it ran: wall seconds on a busy machine "
        "are good for ratios within a table alone.\n"
    )
    kept = sections(page)
    for name in options.only.split(","):
        print(name, flush=True)
        kept[PARTS[name][0]] = section(name, options.quick, folder, options.data)
        ordered = [kept[title] for title, *_ in PARTS.values() if title in kept]
        page.write_text("\n".join([head, *ordered]))


if __name__ == "__main__":
    main()
