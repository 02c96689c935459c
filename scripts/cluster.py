"""Starts `study.commands.jobs.cluster`."""

from study.commands.jobs import cluster

if __name__ == "__main__":
    cluster.start()
