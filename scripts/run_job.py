"""Run the command of a batch job; the profiles submit this, see `study.launch.batch_job`."""

import argparse
from pathlib import Path

from study.core import environment, isolation, number_types
from study.core.errors import exit_with_message
from study.launch import batch_job


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job", type=Path, help="the job's file, which Snakemake has written")
    parser.add_argument(
        "--latency-s", type=number_types.seconds, default=0.0, help="seconds to wait for files that other nodes write"
    )
    arguments = parser.parse_args()
    isolation.require()
    environment.prepare_for_jobs(account=None, is_main_process=False)
    batch_job.start(arguments.job, arguments.latency_s)


if __name__ == "__main__":
    exit_with_message(main)
