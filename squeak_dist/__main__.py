"""``python -m squeak_dist``: the command line."""

from squeak_dist.cli import main

if __name__ == "__main__":
    main(prog_name="squeak-dist")
