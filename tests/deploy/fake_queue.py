#!/usr/bin/env python3
"""Stands for sbatch, srun, scancel, qsub and qdel where there is no queue.

Jobs and tasks are processes of this machine, started at once: scheduler, workers and client in
them are real, and so is all that they say to each other. What resources were asked for is
written to $FAKE_QUEUE/JOB.asked, not given.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

PLACE = Path(os.environ["FAKE_QUEUE"])


def submit(arguments: list[str], directive: str, answer: str) -> int:
    """Start the script in a session of its own, and tell its number."""
    waits = "--wait" in arguments
    script, *rest = [a for a in arguments if not a.startswith("--")]
    text = Path(script).read_text()
    asked = re.findall(rf"^#{directive} (.*)$", text, flags=re.MULTILINE)
    wishes = [*arguments, *asked]  # the command line is stronger
    tasks = next((w.partition("=")[2] for w in wishes if w.startswith("--ntasks=")), "1")
    # As the real ones do: the script runs from a copy, so it cannot know where it came from.
    number = 1 + len(list(PLACE.glob("*.script")))
    copy = PLACE / f"{number}.script"
    copy.write_text(text)
    (PLACE / f"{number}.asked").write_text("\n".join(asked))
    environment = os.environ | {
        "SLURM_JOB_ID": str(number),
        "SLURM_NTASKS": tasks,
        "SLURM_SUBMIT_DIR": os.getcwd(),
        "SLURM_MEM_PER_CPU": "1024",
    }
    with (PLACE / f"{number}.log").open("wb") as log:
        job = subprocess.Popen(
            ["bash", copy, *rest], stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            env=environment, start_new_session=True,
        )  # fmt: skip
    (PLACE / f"{number}.pid").write_text(str(job.pid))
    print(answer.format(number))
    return job.wait() if waits else 0


def run(arguments: list[str]) -> int:
    """Start the command once per task; return the worst exit code."""
    command = arguments[next(i for i, a in enumerate(arguments) if not a.startswith("--")) :]
    tasks = [
        subprocess.Popen(command, env=os.environ | {"SLURM_PROCID": str(number)})
        for number in range(int(os.environ["SLURM_NTASKS"]))
    ]
    return max(task.wait() for task in tasks)


def cancel(numbers: list[str]) -> int:
    """End jobs as a queue does: all their processes."""
    for number in numbers:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(int((PLACE / f"{number}.pid").read_text()), signal.SIGTERM)
        (PLACE / f"{number}.cancelled").touch()
    return 0


if __name__ == "__main__":
    given = sys.argv[1:]
    calls = {
        "sbatch": lambda: submit(given, "SBATCH", "Submitted batch job {}"),
        "qsub": lambda: submit(given, "PBS", "{}.head"),
        "srun": lambda: run(given),
        "scancel": lambda: cancel(given),
        "qdel": lambda: cancel([number.partition(".")[0] for number in given]),
    }
    sys.exit(calls[Path(sys.argv[0]).name]())
