"""What a study will do on a machine, told before anything is started."""

from collections import Counter
from pathlib import Path

from study import launcher
from study.errors import StudyError
from study.grid import SPLITS


def summary(study, machine):
    """A few lines: runs by benchmark and scaling, the largest, and what the machine would refuse."""
    lines = [f"Study {study.name} on machine {machine['name']}: {len(study.runs)} runs. {study.description}"]
    groups = Counter((run.parameters["benchmark"], run.parameters["scaling"]) for run in study.runs)
    for (benchmark, scaling), count in groups.items():
        chosen = [
            run
            for run in study.runs
            if (run.parameters["benchmark"], run.parameters["scaling"]) == (benchmark, scaling)
        ]
        ranks = sorted({run.gpus for run in chosen})
        loaders = dict.fromkeys(run.parameters["loader"] for run in chosen)
        lines.append(
            f"  {benchmark} {scaling} scaling: {count} runs on {', '.join(map(str, ranks))} ranks, "
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
    return [f"{where}: {reason}" for _, reason in sorted(reasons.items()) if reason]


def check_files(study):
    """Raise `StudyError` for a ``path`` dataset whose file is not there."""
    for dataset in study.datasets.values():
        if dataset.definition["source"] != "path":
            continue
        for split in SPLITS:
            file = Path(dataset.definition[split])
            if not file.is_file():
                raise StudyError(
                    f"config/studies/{study.name}.yaml: datasets: {dataset.id}.{split}: there is no file {file} "
                    f"(relative paths are taken from {Path.cwd()})"
                )
