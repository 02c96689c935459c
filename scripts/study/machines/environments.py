"""Other environments of Python for a run's ranks: what a machine's file names under ``environments``.

The launcher and the power sampler stay in the environment of the study. The ranks run the same scripts, by the
environment's own Python, with its packages.
"""

from __future__ import annotations

import functools
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from study.core import provenance
from study.core.environment import search_path
from study.core.errors import StudyError
from study.core.paths import ROOT
from study.workloads.command import content

OWN = "own"  # value of the grid key: the environment of the study
KEY = "environments"  # of the machine's file
OF_RUN = "environment_of_ranks"  # of a run's definition, in its machine: {"prefix", "lock"}
LEAST = (3, 11)  # Python, by which the ranks' code runs
NEEDED = ("numpy", "pandas", "pyyaml", "jsonschema", "tqdm")  # by all ranks
OF_HOROVOD = "horovod"


def prefix(name: str, machine: Mapping[str, Any]) -> Path:
    """The prefix of an environment; a relative one is relative to the project."""
    return ROOT / Path(os.path.expandvars(machine[KEY][name])).expanduser()


def python(folder: Path) -> Path:
    """The interpreter of the environment in a prefix."""
    return folder / "bin" / "python"


def refusal(name: str, machine: Mapping[str, Any], framework: str, with_horovod: bool) -> str | None:
    """Why ranks cannot run in an environment, or None."""
    known = machine.get(KEY, {})
    if name not in known:
        return f"the machine's file has no {name} under {KEY}; it has {', '.join(known) or 'none'}"
    folder = prefix(name, machine)
    if not python(folder).exists():
        return f"{python(folder)} does not exist; give {KEY}.{name} the prefix of a virtual or conda environment"
    try:
        version, packages = _told(folder)
    except StudyError as error:
        return str(error)
    if tuple(int(part) for part in version.split(".")[:2]) < LEAST:
        return f"{folder} has Python {version}; the ranks need {'.'.join(map(str, LEAST))} or later"
    # Of TensorFlow's packages, tf-keras is needed beside a TensorFlow that comes with Keras 3 only.
    own = [each for each in provenance.OF_FRAMEWORK[framework] if each not in (OF_HOROVOD, "tf-keras")]
    needed = [*NEEDED, *own, *([OF_HOROVOD] if with_horovod else [])]
    lacking = [each for each in needed if each not in packages]
    return f"{folder} lacks {', '.join(lacking)}, which ranks of these runs need" if lacking else None


def lock(name: str, machine: Mapping[str, Any]) -> dict[str, str]:
    """What a run's definition has of its environment: a digest of all packages, by which it trains again.

    An environment that is missing, or does not answer, has none: the plan refuses its runs.
    """
    try:
        return {"lock": packages(prefix(name, machine))["environment"]}
    except (KeyError, StudyError):
        return {}


def packages(folder: Path) -> dict[str, str]:
    """Versions of the environment's packages, ``python``, and ``environment``: a digest of all packages.

    Raises:
        StudyError: its Python does not answer.
    """
    version, found = _told(folder)
    own = [name for names in provenance.OF_FRAMEWORK.values() for name in names]
    chosen = {name: found[name] for name in (*own, *provenance.OF_EVERY_RUN) if name in found}
    return {**content.versions(version, [list(each) for each in found.items()]), **chosen}


def facts(folder: Path) -> dict[str, Any]:
    """What the provenance has of the ranks' environment in place of the study's.

    Raises:
        StudyError: its Python does not answer.
    """
    version, found = _told(folder)[0], packages(folder)
    compiled = version.split(".")[:2] == platform.python_version().split(".")[:2]
    return {
        "python": version,
        "packages": {name: told for name, told in found.items() if name != "python"},
        # The compiled reader of tables is built for one version of Python.
        "table_parser": provenance.table_parser() if compiled else "fallback",
    }


def variables(folder: Path) -> dict[str, str]:
    """The variables of ranks in an environment: its programs are found first."""
    return {"PATH": os.pathsep.join([str(folder / "bin"), search_path()]), "VIRTUAL_ENV": str(folder)}


@functools.cache
def _told(folder: Path) -> tuple[str, dict[str, str]]:
    """(version of Python, {package: version}), names in lower case with hyphens; the first of a name counts."""
    version, every = content.told_by(python(folder))
    return version, {name.lower().replace("_", "-"): told for name, told in reversed(every)}
