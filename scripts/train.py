"""One rank or other process of a training run; started by a launcher, see scripts/launch_training.py."""

import time

STARTED = time.time_ns(), time.monotonic_ns()  # before the imports: they belong to the startup phase

from study.core import cores  # noqa: E402

cores.limit_cores()  # before the other imports, which take processor time

import sys  # noqa: E402
from pathlib import Path  # noqa: E402

from study.instruments.power import sampling  # noqa: E402

# First of all, so that power is sampled while frameworks are imported. Not in a process that imports this one.
SAMPLING = sampling.join_sampling(Path(sys.argv[-1]) / "ranks") if __name__ == "__main__" else None

import argparse  # noqa: E402
import functools  # noqa: E402

from study import backends  # noqa: E402
from study.communication import roles  # noqa: E402
from study.core.files import write_aside  # noqa: E402
from study.experiment.definition import RunDefinition  # noqa: E402
from study.experiment.ensemble import is_ensemble  # noqa: E402
from study.instruments import heartbeats  # noqa: E402
from study.training.job import CreateJob, Job  # noqa: E402
from study.training.rank import run_rank  # noqa: E402


def main() -> None:
    """Run one process of the training run in the folder on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="the run's directory, holding run.yaml")
    with SAMPLING or sampling.NOT_SAMPLED:
        _run_process(parser.parse_args().folder)


def _run_process(folder: Path) -> None:
    """Run this process of the run in ``folder``, profiled if the run asks for it."""
    heartbeat = heartbeats.start_heartbeat(folder / "ranks")
    run = RunDefinition.read(folder / "run.yaml")
    backend = backends.get_backend(run.framework)
    if backend.serve_or_stand_by(run, folder, STARTED, heartbeat):
        return
    create_job, process_sets = _choose_job(run)
    train = functools.partial(
        run_rank,
        run,
        folder,
        STARTED,
        functools.partial(backend.connect, run, static_sets=process_sets),
        heartbeat,
        create_job=create_job,
    )
    if run["profile"] is not True:  # else with the framework's own profiler, or with none
        train()
        return
    from study.instruments import profiler  # imported late: other runs start earlier without it

    recorder = profiler.SingleThreadProfile()  # on every rank, so that all are equally slow; one profile is kept
    if recorder.runcall(train) == 0:
        with write_aside(folder / "profile.pstats") as aside:
            recorder.dump_stats(aside)


def _choose_job(run: RunDefinition) -> tuple[CreateJob, list[tuple[int, ...]]]:
    """(What creates a rank's job, the process sets of the run)."""
    if not is_ensemble(run.parameters):
        return Job.create, []
    from study.ensembles import members  # imported late: other runs start earlier without it

    return members.join_ensemble, members.list_process_sets(run)


if __name__ == "__main__":
    roles.run_process(main)
