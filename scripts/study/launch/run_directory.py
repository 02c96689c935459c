"""A run's directory: held by one launch at a time, emptied before it, and filled from what ranks and samplers wrote."""

import contextlib
import fcntl
import gzip
import os
import shutil
import time

from study.core.errors import StudyError
from study.core.files import written_aside
from study.instruments import phases
from study.instruments.power import telemetry
from study.training import checkpoints

LOG = "train.log"
LOCK_S = 10  # that the end of an earlier launch is waited for
RUN_FILES = {"run.yaml", "provenance.json", "phases.jsonl", "ranks", "telemetry.csv", "sensors.json",
             "timeline.json.gz", "profile.pstats", "history.csv", "metrics.json", "outcome.json", "communication.json",
             "activity.csv", checkpoints.FOLDER, "communication.log", "record.json", "record.log", LOG}  # fmt: skip
TIMELINE = "ranks/timeline.json"  # as Horovod writes it


@contextlib.contextmanager
def alone_in(folder):
    """Hold ``folder`` for one launch: a Snakemake that was killed may have left an earlier one running.

    One that was killed itself holds it until its guard has killed its ranks, which takes a moment.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    deadline = time.monotonic() + LOCK_S
    try:
        while not _locked(descriptor):
            if time.monotonic() > deadline:
                raise StudyError(
                    f"{folder}: an earlier launch of this run is still at work there; let it end or stop it "
                    "(pkill -f scripts/train.py), then run again"
                )
            time.sleep(0.1)
        yield descriptor
    finally:
        os.close(descriptor)


def _locked(descriptor):
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def empty(folder, keep=()):
    """Remove what an earlier attempt left but ``keep``; a folder with anything but a run's own files is refused."""
    strange = sorted(path.name for path in folder.iterdir() if path.name not in RUN_FILES)
    if strange:
        raise StudyError(f"{folder}: is not a run's directory, it holds {strange[0]}; give a new or empty one")
    for path in folder.iterdir():
        if path.name not in keep:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def merge_ranks(folder):
    """Join what the ranks and the hosts' samplers wrote into the run's own files."""
    ranks = folder / "ranks"
    phases.merge(sorted(ranks.glob("phases-*.jsonl")), folder / "phases.jsonl")
    telemetry.merge(ranks, folder / "telemetry.csv", folder / "sensors.json")
    _keep_timeline(folder)
    shutil.rmtree(ranks, ignore_errors=True)


def _keep_timeline(folder):
    """Compress the timeline; it is far larger than all else and opens in Perfetto and chrome://tracing as it is."""
    written = folder / TIMELINE
    if written.exists() and written.stat().st_size:
        with (
            open(written, "rb") as source,
            written_aside(folder / "timeline.json.gz") as aside,
            gzip.open(aside, "wb", compresslevel=4) as target,
        ):
            shutil.copyfileobj(source, target, 1 << 20)
