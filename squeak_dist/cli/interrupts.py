"""What Ctrl-C does to a command."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

INTERRUPTED = 130  # what a shell reports of a program that Ctrl-C ended


@contextmanager
def importing() -> Iterator[None]:
    """Let Ctrl-C end the process at once, as long as there is nothing to clean up.

    An import that is interrupted may end in a traceback of somebody else's making.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end(*args: object) -> NoReturn:
    os.write(2, b"Interrupted\n")
    os._exit(INTERRUPTED)


def advice(arguments: Mapping[str, Any]) -> str:
    """Return what to say after Ctrl-C: of a fit also how to go on."""
    if "checkpoint" not in arguments:
        return "Interrupted"
    if arguments["checkpoint"] is None:
        return "Interrupted. A fit with --checkpoint PATH can go on where it was"
    return (
        f"Interrupted. Finished parts are in {arguments['checkpoint']}: the same command goes on "
        f"from there"
    )
