"""Where configuration files are found: in the folder one works in, and in the repository."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from study.core import validation
from study.core.errors import StudyError
from study.core.paths import CONFIG
from study.core.validation import normalize_name, shorten_path, suggest_nearest

STUDY = "laptop"  # planned where nothing names a study
NAME = re.compile(r"[A-Za-z0-9_]+")  # of a study, machine or benchmark; used in paths and command lines


def list_folders() -> list[Path]:
    """Folders where configuration is looked for: that of the working directory, then the repository's.

    They differ where the workflow is used as a module, from a folder with a configuration of its own.
    """
    return list(dict.fromkeys([Path.cwd() / CONFIG.name, CONFIG]))


def find_own_folder() -> Path:
    """The folder to which accepted values are written: the user's own if there is one, else the repository's."""
    return next(folder for folder in list_folders() if folder.is_dir())


def load_settings() -> dict[str, Any]:
    """The content of ``config/config.yaml``: the study, the machine, the folders of data and results."""
    paths = (folder / "config.yaml" for folder in list_folders())
    return validation.load_valid_yaml(next(path for path in paths if path.exists()), "config")


def choose_default_study(machine: str) -> tuple[str, str]:
    """(study, reason) if neither the command line nor a configuration file names a study.

    It is the machine's ``study``, or its base's; `STUDY` where they have none, and for a machine without a file. Raises
    `StudyError` for a machine that names a study which does not exist.
    """
    path = list_files("machines").get(machine)
    content = validation.read_yaml_with_tree(path)[0] if path else None
    if path is None or not isinstance(content, dict):
        return STUDY, "it is the default"
    name = (_inherit_from_base(content, shorten_path(path)) if "base" in content else content).get("study")
    if name is None:
        return STUDY, "it is the default"
    try:
        check_name("studies", name)
    except StudyError as error:
        raise StudyError(f"{shorten_path(path)}: study: {error}") from None
    return name, f"{shorten_path(path)} chose it"


def restore_typed_values(
    given: Mapping[str, Any], read: Iterable[str | Path], typed: Iterable[str], made: Mapping[str, Any]
) -> dict[str, Any]:
    """Snakemake's ``config`` with the values as they were typed; raises `StudyError` for unclear ones.

    Snakemake reads configuration files by YAML 1.1, and makes numbers of ``--config study=2024_11`` and ``study=007``.

    Args:
        given: its ``config``.
        read: the configuration files, later ones over earlier ones.
        typed: the texts ``KEY=VALUE`` of ``--config``.
        made: what Snakemake has made of those.
    """
    typed_values: dict[str, Any] = {}
    for file in read:
        typed_values |= validation.load_valid_yaml(file, {"type": "object"})  # Snakemake takes a key's last value
    typed_values |= _parse_typed_values(typed)
    return {key: value if key in made and repr(given[key]) != repr(made[key]) else typed_values.get(key, value)
            for key, value in given.items()}  # fmt: skip


def _parse_typed_values(arguments: Iterable[str]) -> dict[str, Any]:
    """The values of ``--config``: texts as they were typed, without quotes; others read as YAML."""
    properties, values = validation.read_schema("config")["properties"], {}
    for key, _, text in (each.partition("=") for each in arguments):
        if key in properties:
            is_text = properties[key]["type"] == "string"
            values[key] = text.strip("'\"") if is_text else validation.parse_scalar(text, f"--config: {key}")
    return values


def list_files(kind: str) -> dict[str, Path]:
    """Paths of all ``config/<kind>/<name>.yaml`` by name, sorted; the user's own replace the repository's."""
    paths = {path.stem: path for folder in reversed(list_folders()) for path in (folder / kind).glob("*.yaml")}
    return {name: paths[name] for name in sorted(paths) if NAME.fullmatch(name) and paths[name].is_file()}


def load_named(kind: str, name: str, schema: dict[str, Any] | None = None) -> dict[str, Any]:
    """Read ``config/<kind>/<name>.yaml``, where kind is benchmarks, studies or machines.

    schema: used instead of the kind's schema in config/schemas. A machine with a ``base`` inherits all keys of that
    other machine, except those that it sets itself.
    """
    check_name(kind, name)
    path = list_files(kind)[name]
    content, tree = validation.read_yaml_with_tree(path)
    if kind == "machines" and isinstance(content, dict) and "base" in content:
        content = _inherit_from_base(content, shorten_path(path))
    validation.validate(content, schema or kind, shorten_path(path), tree)
    return content


def check_name(kind: str, name: str) -> list[str]:
    """The names of all files ``config/<kind>/<name>.yaml``; raises `StudyError` if ``name`` is not one of them."""
    valid_names = list(list_files(kind))
    if name not in valid_names:
        raise StudyError(
            explain_unread_file(kind, name)
            or f"there is no {CONFIG.name}/{kind}/{name}.yaml{suggest_nearest(name, valid_names)}; known {kind}: "
            f"{', '.join(valid_names)}"
        )
    if same_name := [each for each in valid_names if each != name and each.lower() == name.lower()]:
        raise StudyError(
            f"{CONFIG.name}/{kind}/{name}.yaml and {same_name[0]}.yaml differ in their case only: where file names "
            "have no case, their results would be in one folder; rename one"
        )
    return valid_names


def explain_unread_file(kind: str, name: str) -> str | None:
    """Why a file that seems to be meant by ``name`` is not read, with the remedy; None if there is none."""
    wanted, readable_files = normalize_name(str(name)), list_files(kind)
    present = [folder / kind for folder in list_folders() if (folder / kind).is_dir()]
    there = [path for folder in present for path in sorted(folder.iterdir())]
    for path in there:
        stem = path.name.split(".")[0]
        if normalize_name(stem) != wanted or path in readable_files.values():
            continue
        fits = re.sub(r"[^A-Za-z0-9_]", "_", stem)
        if path.suffix == ".yaml" and path.stem == fits:
            obstacle = "a folder" if path.is_dir() else "a link to a file that is not there"
            return f"{shorten_path(path)} is {obstacle}; it must be a file"
        if fits not in readable_files:
            rule = "a file's name is letters, digits and _, and ends in .yaml"
            return f"{shorten_path(path)} is not read: {rule}; rename it to {fits}.yaml"
    return None


def _inherit_from_base(content: dict[str, Any], where: str) -> dict[str, Any]:
    """A machine's content with the keys that it inherits from its base, which must have no base itself."""
    base, machine_files = content["base"], list_files("machines")
    if base not in list(machine_files):  # perhaps not even a text
        missing = f"there is no machine {base!r}{suggest_nearest(base, machine_files)}"
        raise StudyError(f"{where}: base: {explain_unread_file('machines', base) or missing}")
    base_content, _ = validation.read_yaml_with_tree(machine_files[base])
    if not isinstance(base_content, dict) or "base" in base_content:
        raise StudyError(f"{where}: base: {base} has a base itself; name that one")
    return {key: value for key, value in {**base_content, **content}.items() if key != "base"}
