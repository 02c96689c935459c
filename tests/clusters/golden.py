"""The exact submit and launcher lines of every point of the icpp2019 study, for a reviewer who knows the machine.

    python tests/clusters/golden.py      writes tests/clusters/golden/MACHINE.txt anew

tests/unit/test_golden_lines.py holds the code to these files.
"""

import collections
import shlex
from pathlib import Path

from study.experiment.expansion import load_study
from study.machines import launchers, queues
from study.machines.batch_systems import BATCH_SYSTEMS, Job
from study.machines.machine import load

MACHINES = ("summit", "theta", "polaris_prod", "perlmutter", "frontier")
FOLDER = Path(__file__).parent / "golden"
PROGRAM = ["python", "scripts/train.py", "RUN"]


def lines_of(name):
    """The text of one machine's file: a paragraph for each number of ranks, with the runs that it is of."""
    machine = load(name)
    by_ranks = collections.defaultdict(collections.Counter)
    for run in load_study("icpp2019").runs:
        by_ranks[run.gpus][f"{run['benchmark']} {run['scaling']}"] += 1
    return "\n".join(_paragraph(ranks, runs, machine) for ranks, runs in sorted(by_ranks.items()))


def _paragraph(ranks, runs, machine):
    told = ", ".join(f"{number} of {kind}" for kind, number in runs.items())
    run = queues.Timed(ranks, machine["time_limit_s"])
    refused = launchers.refuse_ranks(ranks, machine) or queues.refuse_run(run, machine, {})
    started = shlex.join(launchers.get_launcher(machine).line(ranks, machine) + PROGRAM)
    return "\n".join(
        [
            f"# {ranks} ranks: {told}" + (f"\n# refused: {refused}" if refused else ""),
            *_packed(ranks, machine),
            _submit_line(launchers.count_nodes(ranks, machine), ranks, machine),
            started,
            "",
        ]
    )


def _packed(ranks, machine):
    """How runs that are too small are submitted together."""
    run = queues.Timed(ranks, machine["time_limit_s"])
    packs = queues.advise_components([run], machine, {})
    if not packs:
        return []
    nodes = max(nodes for nodes, _ in queues.list_jobs([run] * 1000, machine, packs))
    return [f"# with {queues.format_components(packs)}: {_submit_line(nodes, ranks, machine)}"]


def _submit_line(nodes, ranks, machine):
    job = Job(
        "train", "JOB.sh", "JOB.output", nodes, queues.compute_job_minutes(machine["time_limit_s"]), "PROJECT",
        tuple(machine.get("job_options", ())), min(ranks, machine["ranks_per_node"]), machine["cores_per_rank"],
        machine["gpus_per_rank"],
    )  # fmt: skip
    return shlex.join(BATCH_SYSTEMS[machine["scheduler"]]().submit_line(job))


if __name__ == "__main__":
    for machine in MACHINES:
        (FOLDER / f"{machine}.txt").write_text(lines_of(machine))
