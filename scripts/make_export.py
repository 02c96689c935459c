"""Starts `study.commands.steps.make_export`."""

from study.commands.steps import make_export

if __name__ == "__main__":
    make_export.start()
