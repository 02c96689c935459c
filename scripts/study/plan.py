"""What a study will do on a machine, told before anything is started."""

from pathlib import Path

from study import launcher
from study.errors import StudyError
from study.grid import SPLITS


def summary(study, machine):
    """A few lines: runs by benchmark and scaling, the largest, and what the machine would refuse."""
    lines = [f"Study {study.name} on machine {machine['name']}: {len(study.runs)} runs. {study.description}"]
    groups = {}
    for run in study.runs:
        groups.setdefault((run.parameters["benchmark"], run.parameters["scaling"]), []).append(run)
    for (benchmark, scaling), chosen in groups.items():
        ranks = sorted({run.gpus for run in chosen})
        loaders = dict.fromkeys(run.parameters["loader"] for run in chosen)
        lines.append(
            f"  {benchmark} {scaling} scaling: {len(chosen)} runs on {', '.join(map(str, ranks))} ranks, "
            f"loaders {', '.join(loaders)}"
        )
    for entry in study.loading:
        lines.append(
            f"  {entry.dataset.benchmark} loading: {entry.repeats} x {', '.join(entry.loaders)}, "
            f"dataset {entry.dataset.id}"
        )
    refusals = refused(study, machine)
    if refusals:
        lines.append("  This can be planned but not started here:")
        lines += [f"    {line}" for line in refusals]
    return "\n".join(lines)


def refused(study, machine):
    """Why the machine cannot run some of the study's points: a line for each rank count, or nothing."""
    where = f"config/machines/{machine['name']}.yaml: ranks_per_node, nodes"
    reasons = {run.gpus: launcher.refusal(run.gpus, machine) for run in study.runs}
    if study.runs and not launcher.is_installed(machine):
        return [f"config/machines/{machine['name']}.yaml: launcher: {machine['launcher']} is not on PATH here"]
    return [f"{where}: {reason}" for _, reason in sorted(reasons.items()) if reason]


def check_tables(study):
    """Raise `StudyError` for a table that the study has nothing for."""
    needs = {
        "scaling": ("runs", bool(study.runs)),
        "icpp2019_table2": ("strong-scaling runs with read_csv", _has(study, "strong", {"read_csv"})),
        "icpp2019_table3": ("a loading measurement", bool(study.loading)),
        "icpp2019_table6": ("weak-scaling runs with read_csv or chunked", _has(study, "weak", {"read_csv", "chunked"})),
    }
    for table in study.tables:
        what, there = needs[table]
        if not there:
            raise StudyError(f"config/studies/{study.name}.yaml: tables: {table} needs {what}; the study has none")


def _has(study, scaling, loaders):
    return any(run.parameters["scaling"] == scaling and run.parameters["loader"] in loaders for run in study.runs)


def check_files(study):
    """Raise `StudyError` for a ``path`` dataset whose file is not there."""
    for dataset in study.datasets.values():
        if dataset.definition["source"] != "path":
            continue
        for split in SPLITS:
            file = Path(dataset.definition[split])
            if not file.is_file():
                raise StudyError(
                    f"config/studies/{study.name}.yaml: datasets.{dataset.key}.{split}: there is no file {file} "
                    f"(relative paths are taken from {Path.cwd()})"
                )
