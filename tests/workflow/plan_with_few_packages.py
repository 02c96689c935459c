"""Runs Snakemake as where only the packages are installed that pyproject.toml names, and what those need in turn.

All other packages of this environment cannot be imported. Arguments: Snakemake's.
"""

import importlib.metadata
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def installed_with(names):
    """The names of distributions that pip installs for requirements, without extras."""
    wanted, found = [Requirement(each) for each in names], set()
    while wanted:
        requirement = wanted.pop()
        name = canonicalize_name(requirement.name)
        if name in found or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        found.add(name)
        wanted += map(Requirement, importlib.metadata.requires(name) or ())
    return found


class Missing:
    """Refuses modules of other distributions."""

    def __init__(self, there):
        self.modules = {
            module for module, owners in importlib.metadata.packages_distributions().items()
            if not there & set(map(canonicalize_name, owners))
        }  # fmt: skip

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.modules:
            raise ModuleNotFoundError(f"No module named {name!r}, as where it is not installed", name=name)


if __name__ == "__main__":
    root = Path(__file__).resolve().parents[2]
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    missing = Missing(installed_with([project["name"], *project["dependencies"]]))
    assert {"tensorflow", "horovod", "pytest"} <= missing.modules, "or this tests nothing"
    sys.meta_path.insert(0, missing)
    from snakemake.cli import main

    sys.argv = ["snakemake", *sys.argv[1:]]
    main()
