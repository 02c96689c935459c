"""Starts `study.commands.steps.make_table`."""

from study.commands.steps import make_table

if __name__ == "__main__":
    make_table.start()
