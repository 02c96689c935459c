"""Starts `study.commands.jobs.run_job`."""

from study.commands.jobs import run_job

if __name__ == "__main__":
    run_job.start()
