"""Starts `study.commands.steps.update_records`."""

from study.commands.steps import update_records

if __name__ == "__main__":
    update_records.start()
