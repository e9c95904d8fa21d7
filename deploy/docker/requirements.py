"""Print what the image installs: the dependencies of a pyproject.toml, and two extras."""

import sys
import tomllib
from pathlib import Path

EXTRAS = ("demo", "notebook")

if __name__ == "__main__":
    project = tomllib.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    print(*project["dependencies"], *(r for name in EXTRAS for r in extras[name]), sep="\n")
