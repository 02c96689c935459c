"""Starts `study.commands.datasets.convert_dataset`."""

from study.commands.datasets import convert_dataset

if __name__ == "__main__":
    convert_dataset.start()
