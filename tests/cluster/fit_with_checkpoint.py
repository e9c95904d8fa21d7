"""A driver that tests kill: fits a table on a cluster of its own, with a checkpoint.

Usage: python fit_with_checkpoint.py DATA CHECKPOINT MODEL SOLVER

It prints a line for each task that is done, and at the end as JSON how many tasks each
stage had.
"""

from __future__ import annotations

import json
import sys

from distributed import Client, LocalCluster

import squeak_dist


def main(data: str, checkpoint: str, model: str, solver: str) -> None:
    totals: dict[str, int] = {}

    def note(stage: str, done: int, total: int) -> None:
        totals[stage] = total
        if done:
            print(stage, done, flush=True)

    options = {"threads_per_worker": 2, "dashboard_address": None, "silence_logs": 50}
    with LocalCluster(n_workers=1, **options) as cluster, Client(cluster) as client:
        fitted = squeak_dist.fit(
            data, target="y", solver=solver, max_dictionary=150, mu=0.05,
            checkpoint=checkpoint, client=client, progress=note,
        )  # fmt: skip
    fitted.save(model)
    print(json.dumps(totals), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
