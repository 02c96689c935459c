"""Where configuration files are found: in the folder one works in, and in the repository."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from study.core import checked
from study.core.checked import nearest, plain, shown
from study.core.errors import StudyError
from study.core.paths import CONFIG

STUDY = "laptop"  # planned where nothing names a study
NAME = re.compile(r"[A-Za-z0-9_]+")  # of a study, machine or benchmark; used in paths and command lines


def folders() -> list[Path]:
    """Where configuration is looked for: in the folder from which the workflow was started, then in the repository.

    They differ where the workflow is used as a module, from a folder with a configuration of its own.
    """
    return list(dict.fromkeys([Path.cwd() / CONFIG.name, CONFIG]))


def own() -> Path:
    """The folder to which accepted values are written: the user's own where there is one."""
    return next(folder for folder in folders() if folder.is_dir())


def settings() -> dict[str, Any]:
    """The study, the machine and the folders of data and results that ``config/config.yaml`` names."""
    return checked.load(next(path for folder in folders() if (path := folder / "config.yaml").exists()), "config")


def study_of(machine: str) -> tuple[str, str]:
    """(study, who chose it) where neither the command line nor a configuration file names a study.

    It is the machine's ``study``, or its base's; `STUDY` where they have none, and for a machine without a file. Raises
    `StudyError` for a machine that names a study which does not exist.
    """
    path = files("machines").get(machine)
    content = checked.read(path)[0] if path else None
    if path is None or not isinstance(content, dict):
        return STUDY, "it is the default"
    name = (_over_base(content, shown(path)) if "base" in content else content).get("study")
    if name is None:
        return STUDY, "it is the default"
    try:
        check_name("studies", name)
    except StudyError as error:
        raise StudyError(f"{shown(path)}: study: {error}") from None
    return name, f"{shown(path)} chose it"


def as_meant(
    given: Mapping[str, Any], read: Iterable[str | Path], typed: Iterable[str], made: Mapping[str, Any]
) -> dict[str, Any]:
    """Snakemake's ``config``, but for the values that it has changed; raises `StudyError` for those that are unclear.

    Snakemake reads configuration files by YAML 1.1, and makes numbers of ``--config study=2024_11`` and ``study=007``.

    Args:
        given: its ``config``.
        read: the configuration files, later ones over earlier ones.
        typed: the texts ``KEY=VALUE`` of ``--config``.
        made: what Snakemake has made of those.
    """
    meant: dict[str, Any] = {}
    for file in read:
        meant |= checked.load(file, {"type": "object"})  # Snakemake takes the last of two values of a key
    meant |= _typed(typed)
    return {key: value if key in made and repr(given[key]) != repr(made[key]) else meant.get(key, value)
            for key, value in given.items()}  # fmt: skip


def _typed(arguments: Iterable[str]) -> dict[str, Any]:
    """Values of ``--config``: texts are taken as they were typed, without quotes; others are read as YAML."""
    known, found = checked.named_schema("config")["properties"], {}
    for key, _, text in (each.partition("=") for each in arguments):
        if key in known:
            is_text = known[key]["type"] == "string"
            found[key] = text.strip("'\"") if is_text else checked.value(text, f"--config: {key}")
    return found


def files(kind: str) -> dict[str, Path]:
    """{name: file} of all ``config/<kind>/<name>.yaml``, sorted by name; the user's own go before the repository's."""
    found = {path.stem: path for folder in reversed(folders()) for path in (folder / kind).glob("*.yaml")}
    return {name: found[name] for name in sorted(found) if NAME.fullmatch(name) and found[name].is_file()}


def load_named(kind: str, name: str, schema: dict[str, Any] | None = None) -> dict[str, Any]:
    """Read ``config/<kind>/<name>.yaml``, where kind is benchmarks, studies or machines.

    schema: used instead of the kind's schema in config/schemas. A machine with a ``base`` inherits all keys of that
    other machine, except those that it sets itself.
    """
    check_name(kind, name)
    path = files(kind)[name]
    content, tree = checked.read(path)
    if kind == "machines" and isinstance(content, dict) and "base" in content:
        content = _over_base(content, shown(path))
    checked.check(content, schema or kind, shown(path), tree)
    return content


def check_name(kind: str, name: str) -> list[str]:
    """The names of all files ``config/<kind>/<name>.yaml``; raises `StudyError` if ``name`` is not one of them."""
    known = list(files(kind))
    if name not in known:
        raise StudyError(
            not_read(kind, name)
            or f"there is no {CONFIG.name}/{kind}/{name}.yaml{nearest(name, known)}; known {kind}: {', '.join(known)}"
        )
    if same := [each for each in known if each != name and each.lower() == name.lower()]:
        raise StudyError(
            f"{CONFIG.name}/{kind}/{name}.yaml and {same[0]}.yaml differ in their case only: where file names have no "
            "case, their results would be in one folder; rename one"
        )
    return known


def not_read(kind: str, name: str) -> str | None:
    """What keeps a file from being ``config/<kind>/<name>.yaml``, with the remedy, if one is there that seems meant."""
    wanted, known = plain(str(name)), files(kind)
    there = [path for folder in folders() if (folder / kind).is_dir() for path in sorted((folder / kind).iterdir())]
    for path in there:
        stem = path.name.split(".")[0]
        if plain(stem) != wanted or path in known.values():
            continue
        fits = re.sub(r"[^A-Za-z0-9_]", "_", stem)
        if path.suffix == ".yaml" and path.stem == fits:
            what = "a folder" if path.is_dir() else "a link to a file that is not there"
            return f"{shown(path)} is {what}; it must be a file"
        if fits not in known:
            rule = "a file's name is letters, digits and _, and ends in .yaml"
            return f"{shown(path)} is not read: {rule}; rename it to {fits}.yaml"
    return None


def _over_base(content: dict[str, Any], where: str) -> dict[str, Any]:
    """A machine's own keys over those of its base, which must not have a base itself."""
    base, known = content["base"], files("machines")
    if base not in list(known):  # perhaps not even a text
        raise StudyError(
            f"{where}: base: " + (not_read("machines", base) or f"there is no machine {base!r}{nearest(base, known)}")
        )
    below, _ = checked.read(known[base])
    if not isinstance(below, dict) or "base" in below:
        raise StudyError(f"{where}: base: {base} has a base itself; name that one")
    return {key: value for key, value in {**below, **content}.items() if key != "base"}
