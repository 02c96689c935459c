"""The machine that a Snakemake profile names, which ``--configfile`` on the command line would hide.

A profile names its machine in a file of its own, under its key ``configfile``. Snakemake replaces a profile's key by
the same option of the command line.
"""

import argparse
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from study.core import checked
from study.core.paths import is_same

PROFILE = {
    "type": "object",
    "properties": {"configfile": {"type": ["string", "array"], "items": {"type": "string", "minLength": 1}}},
}


def hidden(arguments: Sequence[str], variables: Mapping[str, str], given: Iterable[Path]) -> list[Path]:
    """Config files of the profile in use that are not among those ``given``.

    arguments: Snakemake's. variables: of the environment, where ``SNAKEMAKE_PROFILE`` may name the profile. given: the
    config files that Snakemake uses besides ``config/config.yaml``.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--profile", default=variables.get("SNAKEMAKE_PROFILE", ""))
    parser.add_argument("--workflow-profile", default="")
    asked = parser.parse_known_args(arguments)[0]
    files: list[Path] = []
    for name in (asked.profile, asked.workflow_profile):  # the second goes over the first, key by key
        if profile := _file_of(name):
            named = checked.load(profile, PROFILE).get("configfile")
            if named is not None:
                files = [Path(file).absolute() for file in ([named] if isinstance(named, str) else named)]
    others = list(given)
    return [file for file in files if file not in others and not any(is_same(file, other) for other in others)]


def _file_of(name: str) -> Path | None:
    """The file of the profile of this name, or in this folder; None without one."""
    if not name:
        return None
    places = [Path(name), Path("profiles", name)]
    with contextlib.suppress(RuntimeError):  # a user without a home
        places.append(Path.home() / ".config" / "snakemake" / name)
    return next((place / "config.yaml" for place in places if (place / "config.yaml").is_file()), None)


def values(files: Iterable[Path], over: Mapping[str, Any]) -> dict[str, Any]:
    """The values in config files, without the keys that ``over``, the command line, gives too."""
    found: dict[str, Any] = {}
    for file in files:
        found |= checked.load(file, {"type": "object"})
    return {key: value for key, value in found.items() if key not in over}
