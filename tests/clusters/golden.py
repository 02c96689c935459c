"""The exact submit and launcher lines of every point of a machine's own study, for a reviewer who knows the machine.

Of a machine without a study of its own: those of icpp2019. All follow from the plan, so that walltimes and packs are
those that `snakemake --profile NAME` submits.

    python tests/clusters/golden.py      writes tests/clusters/golden/MACHINE.txt anew

tests/unit/test_golden_lines.py holds the code to these files.
"""

import collections
import shlex
from pathlib import Path

from study import plan
from study.experiment.expansion import load_study
from study.experiment.walltimes import Limits
from study.machines import launchers, queues
from study.machines.batch_systems import BATCH_SYSTEMS, Job
from study.machines.machine import load

MACHINES = ("summit", "summitdev", "theta", "polaris_prod", "perlmutter", "frontier")
FOLDER = Path(__file__).parent / "golden"
PROGRAM = ["python", "scripts/train.py", "RUN"]


def lines_of(name):
    """The text of one machine's file: a paragraph for each number of ranks and walltime, with its runs."""
    machine = load(name)
    study = load_study(machine.get("study", "icpp2019"))
    limits = Limits(study.runs, plan.NO_FOLDER, machine)
    timed = {run.directory: _timed(limits.get_limit(run)) for run in study.runs}
    kinds = collections.defaultdict(collections.Counter)
    for run in study.runs:
        kinds[_timed(limits.get_limit(run))][f"{run['benchmark']} {run['scaling']}"] += 1
    shared = plan.share_batch_jobs(study, machine, limits)
    jobs = sorted(kinds, key=lambda each: (each.ranks, each.limit_s))
    return "\n".join(_paragraph(each, kinds[each], machine, timed, shared) for each in jobs)


def _timed(limit):
    return queues.Timed(limit.ranks, limit.limit_s)


def _paragraph(run, kinds, machine, timed, shared):
    told = ", ".join(f"{number} of {kind}" for kind, number in kinds.items())
    refused = launchers.refuse_ranks(run.ranks, machine) or queues.refuse_run(run, machine)
    started = shlex.join(launchers.get_launcher(machine).line(run.ranks, machine) + PROGRAM)
    return "\n".join(
        [
            f"# {run.ranks} ranks: {told}" + (f"\n# refused: {refused}" if refused else ""),
            *_submitted(run, machine, timed, shared),
            started,
            "",
        ]
    )


def _submitted(run, machine, timed, shared):
    """The submit line, of a run that shares a job with others that of the longest such job."""
    of_run = (job for job in shared if any(timed.get(name) == run for lane in job.lanes for name in lane))
    job = max(of_run, key=lambda job: (job.minutes, job.nodes))
    number = sum(map(len, job.lanes))
    told = [f"# {job.name}: {number} runs in one job, of {len(job.lanes)} lanes"] if number > 1 else []
    return [*told, _submit_line(job.nodes, job.minutes, run.ranks, machine)]


def _submit_line(nodes, minutes, ranks, machine):
    job = Job(
        "train", "JOB.sh", "JOB.output", nodes, minutes, "PROJECT", tuple(machine.get("job_options", ())),
        min(ranks, machine["ranks_per_node"]), machine["cores_per_rank"], machine["gpus_per_rank"],
    )  # fmt: skip
    return shlex.join(BATCH_SYSTEMS[machine["scheduler"]]().submit_line(job))


if __name__ == "__main__":
    for machine in MACHINES:
        (FOLDER / f"{machine}.txt").write_text(lines_of(machine))
