"""What a study will do on a machine, told before anything is started."""

from pathlib import Path

from study.core import configuration
from study.core.errors import StudyError
from study.machines import launchers, packing, queues
from study.report.figures.description import describe, has_runs, needs
from study.report.tables import TABLES

SUBMIT = {"lsf": "bsub", "cobalt": "qsub", "slurm": "sbatch", "pbs": "qsub"}


def summary(study, machine, components):
    """A few lines: runs by benchmark and scaling, the largest, and what the machine would refuse.

    components: Snakemake's ``--group-components``, which pack small runs into one batch job; see `machines.packing`.
    """
    lines = [f"Study {study.name} on machine {machine['name']}: {len(study.runs)} runs. {study.description}"]
    groups = {}
    for run in study.runs:
        groups.setdefault((run.parameters["benchmark"], run.parameters["scaling"]), []).append(run)
    for (benchmark, scaling), chosen in groups.items():
        ranks = sorted({run.gpus for run in chosen})
        loaders = dict.fromkeys(run.parameters["loader"] for run in chosen)
        lines.append(
            f"  {benchmark} {scaling} scaling: {len(chosen)} runs on {', '.join(map(str, ranks))} ranks, "
            f"loaders {', '.join(loaders)}{_staged(chosen)}{_expected_failures(chosen)}"
        )
    for entry in study.loading:
        lines.append(
            f"  {entry.dataset.benchmark} loading: {entry.repeats} x {', '.join(entry.loaders)}, "
            f"dataset {entry.dataset.id}"
        )
    lines += _batch_jobs(study, machine, components)
    refusals = refused(study, machine, components)
    if refusals:
        lines.append("  This can be planned but not started here:")
        lines += [f"    {line}" for line in refusals]
    return "\n".join(lines)


def _batch_jobs(study, machine, components):
    """What the study asks of a batch system; nothing for a machine without."""
    if "scheduler" not in machine:
        return []
    modes = {}
    for run in study.runs:
        modes.setdefault(run.parameters["scaling"], []).append(run.gpus)
    if study.loading:
        modes["loading"] = [1] * len(study.loading)
    hours = {
        mode: queues.node_hours([launchers.nodes(each, machine) for each in ranks], machine)
        for mode, ranks in modes.items()
    }
    jobs = packing.job_nodes(_ranks(study), machine, components)
    total = queues.node_hours(jobs, machine)
    told = ", ".join(f"{mode} {each:,.0f}" for mode, each in hours.items())
    idle = total - sum(hours.values())
    lines = [
        f"  {machine['scheduler']}: {len(jobs)} jobs of {queues.job_minutes(machine)} minutes; "
        f"if every run took its whole time limit, {total:,.0f} node-hours ({told}"
        + (f", idle nodes {idle:,.0f})" if idle > 0.5 else ")")
    ]
    small = [each for each in _ranks(study) if packing.together(each, machine, components) > 1]
    if small:
        packed = packing.job_nodes(small, machine, components)
        alone = packing.job_nodes(small, machine, {})
        lines.append(
            f"  packed: {len(small)} of them share {len(packed)} jobs, {queues.node_hours(packed, machine):,.0f} "
            f"node-hours; each alone in the smallest job that the queue takes: {len(alone)} jobs, "
            f"{queues.node_hours(alone, machine):,.0f} node-hours"
        )
    return lines


def _ranks(study):
    """Ranks of each timed job: runs, and loading measurements of one."""
    return [run.gpus for run in study.runs] + [1] * len(study.loading)


def _staged(runs):
    ways = dict.fromkeys(run.parameters["staging"] for run in runs)
    return "" if list(ways) == ["none"] else f", staging {', '.join(ways)}"


def _expected_failures(runs):
    number = sum(run.may_fail is not None for run in runs)
    return f"; {number} may fail" if number else ""


def refused(study, machine, components):
    """Why some of the study's points cannot run on the machine, or could not be started here: a line a reason."""
    where = f"config/machines/{machine['name']}.yaml"
    program = SUBMIT[machine["scheduler"]] if "scheduler" in machine else machine["launcher"]
    lines = []
    if study.runs and not launchers.is_installed(program):
        lines.append(f"{where}: {program} is not on PATH here")
    if "node_storage" not in machine and any(run.parameters["staging"] == "local_copy" for run in study.runs):
        lines.append(f"{where}: node_storage is missing, the folder of a node's own that staging: local_copy copies to")
    for ranks in sorted(set(_ranks(study))):
        too_many = launchers.refusal(ranks, machine)
        if too_many:
            lines.append(f"{where}: ranks_per_node, nodes: {too_many}")
        elif broken := queues.refusal(ranks, machine, components):
            lines.append(f"{where}: {broken}")
    if packs := packing.advice(_ranks(study), machine, components):
        lines.append(f"runs that are too small for a batch job can share one: snakemake {packs}")
    return lines


def check_account(machine, variables):
    """Raise `StudyError` where the machine's jobs are charged to somebody and nobody is named."""
    if "scheduler" in machine and not variables.get("STUDY_ACCOUNT"):
        raise StudyError(
            f"machine {machine['name']} submits batch jobs: name the account or project that they are charged to, with "
            "--config account=PROJECT, in config/config.yaml, or in the variable STUDY_ACCOUNT"
        )


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
        has_them = has_runs(description, [run.parameters for run in study.runs])
        if not (TABLES["formats"].there(study) if description.is_of_formats else has_them):
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
