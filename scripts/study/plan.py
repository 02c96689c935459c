"""What a study will do on a machine, told before anything is started."""

from pathlib import Path

from study import configuration, launcher
from study.errors import StudyError
from study.figures.description import describe, has_runs, needs
from study.tables import TABLES


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
            f"loaders {', '.join(loaders)}{_expected_failures(chosen)}"
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


def _expected_failures(runs):
    number = sum(run.may_fail is not None for run in runs)
    return f"; {number} may fail" if number else ""


def refused(study, machine):
    """Why the machine cannot run some of the study's points: a line for each rank count, or nothing."""
    where = f"config/machines/{machine['name']}.yaml: ranks_per_node, nodes"
    reasons = {run.gpus: launcher.refusal(run.gpus, machine) for run in study.runs}
    if study.runs and not launcher.is_installed(machine):
        return [f"config/machines/{machine['name']}.yaml: launcher: {machine['launcher']} is not on PATH here"]
    return [f"{where}: {reason}" for _, reason in sorted(reasons.items()) if reason]


def check_tables(study):
    """Raise `StudyError` for a table that there is not, or that the study has nothing for."""
    where = f"config/studies/{study.name}.yaml: tables"
    for table in study.tables:
        if table not in TABLES:
            raise StudyError(
                f"{where}: {table!r} is not one of {', '.join(TABLES)}{configuration.nearest(table, TABLES)}"
            )
        if not TABLES[table].there(study):
            raise StudyError(f"{where}: {table} needs {TABLES[table].needs}; the study has none")


def check_figures(study):
    """Raise `StudyError` for a figure that there is not, or that the study has no runs for."""
    for name in study.figures:
        try:
            description = describe(name)
        except StudyError as error:
            raise StudyError(f"config/studies/{study.name}.yaml: figures: {error}") from None
        if not has_runs(description, [run.parameters for run in study.runs]):
            raise StudyError(
                f"config/studies/{study.name}.yaml: figures: {name} needs {needs(description)}; the study has none"
            )


def check_files(study):
    """Raise `StudyError` for a ``path`` dataset whose file is not there."""
    for dataset in study.datasets.values():
        if dataset.definition["source"] != "path":
            continue
        for name in dataset.files:
            file = Path(dataset.definition[name])
            if set("{}") & set(str(file)):
                raise StudyError(
                    f"config/studies/{study.name}.yaml: datasets.{dataset.key}.{name}: {file}: Snakemake takes braces "
                    "for its own; give the file another name or a link"
                )
            if not file.is_file():
                raise StudyError(
                    f"config/studies/{study.name}.yaml: datasets.{dataset.key}.{name}: there is no file {file} "
                    f"(relative paths are taken from {Path.cwd()})"
                )
