"""Starts `study.commands.analysis.check`."""

from study.commands.analysis import check

if __name__ == "__main__":
    check.start()
