"""Starts `study.commands.steps.make_report`."""

from study.commands.steps import make_report

if __name__ == "__main__":
    make_report.start()
