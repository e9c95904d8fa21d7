"""Command line: ``squeak-dist``, and the same as ``dask squeak``.

What only declares commands imports nothing heavy, so that help and completion are quick;
what does the work is imported by the command that needs it.
"""

import sys

try:
    from squeak_dist.cli.commands import main
except KeyboardInterrupt:  # Ctrl-C while click is imported
    print("Interrupted", file=sys.stderr)
    sys.exit(130)

__all__ = ["main"]
