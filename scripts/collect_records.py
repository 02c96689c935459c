"""Starts `study.commands.steps.collect_records`."""

from study.commands.steps import collect_records

if __name__ == "__main__":
    collect_records.start()
