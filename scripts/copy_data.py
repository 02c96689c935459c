"""Starts `study.commands.datasets.copy_data`."""

from study.commands.datasets import copy_data

if __name__ == "__main__":
    copy_data.start()
