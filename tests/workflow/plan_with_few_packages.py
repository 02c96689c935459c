"""Runs Snakemake as where only the packages are installed that pyproject.toml names, and what those need in turn.

All other packages of this environment cannot be imported. Arguments: a file with their modules, and Snakemake's.
"""

import importlib.metadata
import json
import pkgutil
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


def modules_of_others():
    """The modules of all distributions that installing the project does not bring."""
    project = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())["project"]
    there = installed_with([project["name"], *project["dependencies"]])
    return {
        module for module, owners in importlib.metadata.packages_distributions().items()
        if not there & set(map(canonicalize_name, owners))
    }  # fmt: skip


class Hiding:
    """A finder of modules that does not find some of them, as where they are not installed."""

    def __init__(self, finder, modules):
        self._finder, self._modules = finder, frozenset(modules)

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in self._modules else self._finder.find_spec(name, path, target)

    def __getattr__(self, name):  # such as find_distributions
        return getattr(self._finder, name)


if __name__ == "__main__":
    missing = json.loads(Path(sys.argv[1]).read_text())
    assert {"tensorflow", "horovod", "pytest"} <= set(missing), "or this tests nothing"
    sys.meta_path[:] = [Hiding(finder, missing) for finder in sys.meta_path]
    listed = pkgutil.iter_modules
    pkgutil.iter_modules = lambda *args: (each for each in listed(*args) if each.name not in missing)
    from snakemake.cli import main

    sys.argv = ["snakemake", *sys.argv[2:]]
    main()
