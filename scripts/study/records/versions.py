"""Runs of other versions of the code or of its libraries, put aside before a session replaces them.

They are copied to ``results/<machine>/versions/<version>``, which has the layout of ``results/<machine>``.
"""

import os
import shutil
from pathlib import Path

from study.core import paths, validation
from study.core.files import write_aside
from study.experiment import identity
from study.experiment.study import PlannedRun, Study
from study.machines import machine
from study.records import own_keys
from study.records.tidy import current_code, name_loading_code, name_training_code, runs_frame, split_ended_runs
from study.workloads import command
from study.workloads.command import content


def keep_other_versions(study: Study, results: str | Path) -> list[str]:
    """Copy the study's finished runs of other versions, and write a ``runs.csv`` of each version's runs.

    results: ``results/<machine>``. Returns the versions that the study has runs of. A run that was put aside before is
    not copied again.

    Raises:
        StudyError: a file of a run cannot be read, or was changed after the run.
    """
    on = machine.load(paths.find_machine_name(results))
    code = current_code(study.runs, on)
    for run in study.runs:
        folder = Path(paths.locate_run(results, run.directory))
        if not (folder / "outcome.json").exists():
            continue
        digest = version(folder)
        target = Path(paths.locate_run(Path(results) / paths.VERSIONS / digest, run.directory))
        current = _name(
            code[name_training_code(run.parameters)], code[name_loading_code(run.parameters)], _packages(run)
        )
        if digest != current and not target.exists():
            _copy(folder, target)
    return [name for name in _versions(results) if _write_runs(study, code, Path(results) / paths.VERSIONS / name)]


def _packages(run: PlannedRun) -> dict[str, str | None]:
    """The versions of the libraries with which a run would be made now."""
    from study.core import provenance  # imported late: every start of Snakemake imports this module, few need it

    if command.is_command(run.spec):
        return {**content.read_package_versions(run.spec)}
    return provenance.read_package_versions(run["framework"])


def version(folder: Path) -> str:
    """The version by which a run was made: the digests of its code, and one of its libraries' versions."""
    facts = validation.load_valid_json(folder / "provenance.json", "provenance")
    return _name(facts["training_code"], facts["loader_sensor_code"], facts["packages"])


def _name(training_code: str, loader_sensor_code: str, packages: dict[str, str | None]) -> str:
    return f"{training_code}-{loader_sensor_code}-{identity.compute_fingerprint(packages)[:6]}"


def _versions(results: str | Path) -> list[str]:
    return sorted(path.name for path in (Path(results) / paths.VERSIONS).glob("*") if path.is_dir())


def _copy(folder: Path, target: Path) -> None:
    """Copy a folder, whole or not at all; a link stays one, whatever it leads to."""
    aside = target.with_name(f".{target.name}.part")
    shutil.rmtree(aside, ignore_errors=True)
    shutil.copytree(folder, aside, symlinks=True)
    os.replace(aside, target)


def _write_runs(study: Study, code: dict[str, str], folder: Path) -> bool:
    """Write ``runs.csv`` of the study's runs in a version's folder; False if it has none."""
    there, _ = split_ended_runs(study.runs, folder)
    frame = runs_frame(there, code, folder)
    if len(frame):
        with write_aside(Path(paths.locate_study(folder, study.name)) / "runs.csv") as aside:
            own_keys.empty_lacking_keys(frame).to_csv(aside, index=False)
    return len(frame) > 0
