"""Starts `study.commands.jobs.launch_training`."""

from study.commands.jobs import launch_training

if __name__ == "__main__":
    launch_training.start()
