"""Fit from a login node: the scheduler runs here, each worker is a job of the queue.

    python deploy/slurm/fit_jobqueue.py slurm /scratch/me/table target /scratch/me/model.zarr
    python deploy/slurm/fit_jobqueue.py pbs   /scratch/me/table target /scratch/me/model.zarr

Queue and account come from dask-jobqueue's configuration (~/.config/dask/jobqueue.yaml) or
from --directive. Needs `pip install "squeak-dist[hpc,tls]"`. It stops when this process does:
run it in tmux, or use fit.sbatch, which needs no login node.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dask_jobqueue import PBSCluster, SLURMCluster
from dask_jobqueue.core import JobQueueCluster
from distributed import Client
from distributed.security import Security

import squeak_dist
from squeak_dist.errors import SqueakError

SYSTEMS = {"slurm": SLURMCluster, "pbs": PBSCluster}


def start(options: argparse.Namespace) -> JobQueueCluster:
    """Return a cluster without workers yet, encrypted with certificates of its own."""
    return SYSTEMS[options.system](
        cores=1,
        processes=1,
        memory=options.memory,
        walltime=options.walltime,
        # Other users of these machines can reach the ports.
        protocol="tls://",
        security=Security.temporary(),
        shared_temp_directory=str(options.shared.resolve()),
        scheduler_options={"dashboard_address": "127.0.0.1:0"},
        worker_extra_args=["--dashboard-address", "127.0.0.1:0"],
        job_extra_directives=options.directive,
        job_script_prologue=["export OMP_NUM_THREADS=1"],
    )


def main(arguments: list[str] | None = None) -> int:
    """Fit and save; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("system", choices=SYSTEMS)
    parser.add_argument("data")
    parser.add_argument("target")
    parser.add_argument("model")
    parser.add_argument("--jobs", type=int, default=4, help="workers, one a job")
    parser.add_argument("--memory", default="4GiB", help="of a worker")
    parser.add_argument("--walltime", default="02:00:00")
    parser.add_argument(
        "--directive", action="append", default=[], help="as --directive='-p long'"
    )
    parser.add_argument(
        "--shared", type=Path, default=Path(), help="directory that every node sees, for keys"
    )
    options = parser.parse_args(arguments)
    with start(options) as cluster, Client(cluster) as client:
        cluster.scale(jobs=options.jobs)
        print("dashboard:", client.dashboard_link, file=sys.stderr)
        try:
            client.wait_for_workers(1)  # the queue decides when; the others may come later
            model = squeak_dist.fit(
                options.data, target=options.target, missing="impute", client=client
            )
            model.save(options.model)
        except SqueakError as error:
            print(f"Error: {error}", file=sys.stderr)
            return 2
    report = model.report_
    print(f"{report['rows_fitted']} rows, {report['dictionary_size']} kept: {options.model}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
