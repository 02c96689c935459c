"""One rank or other process of a training run; started by a launcher, see scripts/launch_training.py."""

import time

STARTED = time.time_ns(), time.monotonic_ns()  # before the imports: they belong to the startup phase

from study.core import cores  # noqa: E402

cores.limit()  # before the other imports, which take processor time

import sys  # noqa: E402
from pathlib import Path  # noqa: E402

from study.instruments.power import sampling  # noqa: E402

# First of all, so that power is sampled while frameworks are imported. Not in a process that imports this one.
SAMPLING = sampling.join_sampling(Path(sys.argv[-1]) / "ranks") if __name__ == "__main__" else None

import argparse  # noqa: E402
import functools  # noqa: E402

from study import backends  # noqa: E402
from study.communication import roles  # noqa: E402
from study.core.files import written_aside  # noqa: E402
from study.experiment.definition import RunDefinition  # noqa: E402
from study.experiment.ensemble import is_ensemble  # noqa: E402
from study.instruments import heartbeats  # noqa: E402
from study.training.job import Enter, Job  # noqa: E402
from study.training.rank import run_rank  # noqa: E402


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="the run's directory, holding run.yaml")
    with SAMPLING or sampling.NOT_SAMPLED:
        _run(parser.parse_args().folder)


def _run(folder: Path) -> None:
    heartbeat = heartbeats.start_heartbeat(folder / "ranks")
    run = RunDefinition.read(folder / "run.yaml")
    backend = backends.of_run(run)
    if backend.serve(run, folder, STARTED, heartbeat):
        return
    enter, process_sets = _kind_of_job(run)
    train = functools.partial(
        run_rank,
        run,
        folder,
        STARTED,
        functools.partial(backend.connect, run, static_sets=process_sets),
        heartbeat,
        enter=enter,
    )
    if run["profile"] is not True:  # else with the framework's own profiler, or with none
        train()
        return
    from study.instruments import profiler  # imported late: other runs start earlier without it

    recorder = profiler.SingleThreadProfile()  # on every rank, so that all are equally slow; one profile is kept
    if recorder.runcall(train) == 0:
        with written_aside(folder / "profile.pstats") as aside:
            recorder.dump_stats(aside)


def _kind_of_job(run: RunDefinition) -> tuple[Enter, list[tuple[int, ...]]]:
    """How a rank enters its job, and the process sets of the run."""
    if not is_ensemble(run.parameters):
        return Job.enter, []
    from study.ensembles import members  # imported late: other runs start earlier without it

    return members.enter, members.process_sets(run)


if __name__ == "__main__":
    roles.run_process(main)
