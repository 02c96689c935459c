"""Starts `study.commands.workflow.replicate`."""

from study.commands.workflow import replicate

if __name__ == "__main__":
    replicate.start()
