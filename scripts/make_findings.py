"""Starts `study.commands.steps.make_findings`."""

from study.commands.steps import make_findings

if __name__ == "__main__":
    make_findings.start()
