"""What each task of fit.sbatch runs: the first is the scheduler, the second the client.

    srun python deploy/slurm/fit_runner.py DATA TARGET MODEL

The others are workers. Only the client gets past the runner's constructor.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from dask_jobqueue.slurm import SLURMRunner
from distributed import Client
from distributed.core import rpc
from distributed.security import Security

import squeak_dist
from squeak_dist.errors import SqueakError


def main(data: str, target: str, model: str) -> int:
    """Fit and save on the workers of this job; return the exit code."""
    directory = Path(os.environ["SQUEAK_JOB_DIRECTORY"])
    runner = SLURMRunner(
        scheduler_file=str(directory / "scheduler-{job_id}.json"),
        scheduler_options={"dashboard_address": "127.0.0.1:0"},
        worker_class="distributed.Nanny",  # restarts a worker that needs too much memory
        worker_options={
            "nthreads": 1,
            "memory_limit": memory_of_a_task(),
            "dashboard_address": "127.0.0.1:0",
        },
    )
    # The runner's own connection knows no certificates; it is what ends the scheduler.
    runner.scheduler_comm = rpc(
        runner.scheduler_address, connection_args=Security().get_connection_args("client")
    )
    with runner, Client(runner, security=Security()) as client:
        client.wait_for_workers(runner.n_workers, timeout=300)
        try:
            fitted = squeak_dist.fit(data, target=target, missing="impute", client=client)
            fitted.save(model)
        except SqueakError as error:
            print(f"Error: {error}", file=sys.stderr)
            return 2
        report = fitted.report_
        print(f"{report['rows_fitted']} rows, {report['dictionary_size']} kept: {model}")
    return 0


def memory_of_a_task() -> str | float:
    """Return what Dask may use of the memory that SLURM gives a task."""
    per_cpu = os.environ.get("SLURM_MEM_PER_CPU")  # MiB
    if per_cpu is None:
        return 0.85 / int(os.environ["SLURM_NTASKS"])
    cpus = int(os.environ.get("SLURM_CPUS_PER_TASK", "1"))
    return f"{int(0.85 * int(per_cpu) * cpus)}MiB"


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: fit_runner.py DATA TARGET MODEL")
    sys.exit(main(*sys.argv[1:]))
